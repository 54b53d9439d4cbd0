//! Lists: all objects of a selection, in one answer or in pages.

use std::any::Any;

use k8s_openapi::api::core::v1::Pod;
use pod_rules::critical::has_critical_priority;
use pod_spec::weight::{GROWN, Weigher, Weights};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::{ApiClient, Reply, path};
use super::error::ApiError;
use super::object::{Beyond, Deletion, Object, Said, Unreadable, read_object};
use super::request::{Select, escaped};

/// How many objects are asked for at once where all of them are too long for one answer, and then where so many are.
const PAGES: [u32; 3] = [64, 8, 1];

/// A list of more objects than this is none that a node has to do with.
const OBJECTS_MAX: usize = 1_000_000;

/// A list, or a page of one, as the server answered it; its items are not decoded yet.
#[derive(Deserialize)]
struct ListBody {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Option<Vec<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: Option<String>,
    /// What the next page is asked for with; empty or absent with the last one.
    r#continue: Option<String>,
}

/// All objects of a selection.
pub(super) struct Listed<K> {
    /// How new the list is.
    pub version: Option<String>,
    pub all: Vec<K>,
    /// Those that cannot be decoded, and those beyond the bound of the selection.
    pub unreadable: Vec<Unreadable>,
    /// What those take that were decoded, if there is a bound.
    weights: Option<Weights>,
}

impl<K: Object> Listed<K> {
    fn take(&mut self, page: ListBody) {
        self.version = self.version.take().or(page.metadata.resource_version);
        for item in page.items.into_iter().flatten() {
            // Decoded from bytes like everything else: each further kind of source would compile the same code again.
            match read_object(item.get().as_bytes(), Said::Listed) {
                // Judged one by one, so that no more are in memory than are kept.
                Ok(object) => match self.weights.as_mut().and_then(|weights| beyond(weights, &object)) {
                    None => self.all.push(object),
                    Some(one) => self.unreadable.push(one),
                },
                Err(found) => self.unreadable.push(found.0),
            }
        }
    }
}

/// Takes an object in, if there is room for it; else what is told of it.
fn beyond<K: Object>(weights: &mut Weights, object: &K) -> Option<Unreadable> {
    let metadata = object.meta();
    let mut weigher = Weigher::default();
    // Writing there does not fail, and an API object has string keys only, hence is JSON.
    let _ = serde_json::to_writer(&mut weigher, object);
    let bytes = weigher.bytes();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
    let is_critical = (object as &dyn Any).downcast_ref::<Pod>().is_some_and(has_critical_priority);
    // The bound is the last one: what is listed may run already.
    let fits = weights.fits(&namespace, 0, bytes, GROWN)
        || (is_critical && weights.fits_critical(&namespace, 0, bytes));
    if fits {
        weights.put(&namespace, 0, bytes);
        return None;
    }
    tracing::warn!(
        kind = &*K::kind(&()),
        namespace,
        name,
        uid,
        bytes,
        "There is no room for an object of a list"
    );
    let deletion = Deletion {
        deletion_timestamp: metadata.deletion_timestamp.clone(),
        deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
    };
    let why = format!("it takes {bytes} bytes, for which the objects of its list leave no room");
    let beyond = Some(Beyond { bytes, is_critical });
    Some(Unreadable { namespace, name, uid, deletion, said: Said::Listed, why, beyond })
}

impl ApiClient {
    /// Reads all selected objects once. An object that cannot be decoded is logged and left out.
    pub fn list<K: Object>(&self, select: &Select) -> Reply<Vec<K>> {
        let (this, select) = (self.clone(), select.clone());
        self.on_io(async move { Ok(this.list_all(&select).await?.all) })
    }

    /// Reads all selected objects, as they are now: in one answer, which the server has ready, or in pages if that one is too
    /// long. How long it is, is up to the authors of the objects.
    pub(super) async fn list_all<K: Object>(&self, select: &Select) -> Result<Listed<K>, ApiError> {
        let weights = select.bytes_max.map(|bytes_max| Weights::new(bytes_max / GROWN));
        let mut listed = Listed { version: None, all: Vec::new(), unreadable: Vec::new(), weights };
        let (mut limit, mut sizes) = (None, PAGES.into_iter());
        let mut from = None;
        loop {
            match self.list_page::<K>(select, limit, from.as_deref()).await {
                // Taken for an empty list, an answer of a proxy would make all that is known be gone.
                Ok(page) if !page.kind.ends_with("List") => {
                    let why = format!("the answer is no list: its kind is {:?}", page.kind);
                    return Err(ApiError::unanswered(
                        path::<K>(select.namespace.as_deref(), None, None),
                        why,
                    ));
                }
                Ok(mut page) => {
                    from = page.metadata.r#continue.take().filter(|from| !from.is_empty());
                    let is_empty = page.items.as_ref().is_none_or(Vec::is_empty);
                    listed.take(page);
                    if from.is_none() {
                        return Ok(listed);
                    }
                    let count = listed.all.len() + listed.unreadable.len();
                    if is_empty || count > OBJECTS_MAX {
                        let why =
                            format!("the list does not end: {count} objects so far, and more are promised");
                        return Err(ApiError::unanswered(
                            path::<K>(select.namespace.as_deref(), None, None),
                            why,
                        ));
                    }
                }
                Err(error) if error.is_too_long() => match sizes.next() {
                    Some(fewer) => limit = Some(fewer),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn list_page<K: Object>(
        &self,
        select: &Select,
        limit: Option<u32>,
        from: Option<&str>,
    ) -> Reply<ListBody> {
        let mut query = match from {
            // The version is part of it.
            Some(from) => format!("continue={}", escaped(from)),
            None => "resourceVersion=".to_owned(),
        };
        if let Some(limit) = limit {
            query.push_str("&limit=");
            query.push_str(&limit.to_string());
        }
        if let Some(fields) = &select.fields {
            query.push_str("&fieldSelector=");
            query.extend(escaped(fields));
        }
        let path = format!("{}?{query}", path::<K>(select.namespace.as_deref(), None, None));
        self.json(http::Method::GET, path, None, None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bridge_io::Io;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;

    use super::*;
    use crate::limits::RateLimit;

    async fn refused(answer: &'static str) -> String {
        let answer = tower::service_fn(move |_: Request<Body>| async move {
            Ok::<_, tower::BoxError>(Response::new(Body::from(answer.as_bytes().to_vec())))
        });
        let client = kube::Client::new(answer, "default");
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let api = ApiClient::new(client, Io::current(), unlimited, Duration::from_secs(5));
        api.list::<ConfigMap>(&Select::default()).await.expect_err("no list is made of it").message
    }

    #[tokio::test]
    async fn an_empty_page_that_promises_more_ends_the_list() {
        let page = r#"{"kind":"ConfigMapList","metadata":{"continue":"more"},"items":[]}"#;
        let said = refused(page).await;
        assert!(said.contains("the list does not end"), "{said}");
    }

    #[tokio::test]
    async fn objects_of_a_list_beyond_its_bound_are_told_and_not_kept() {
        let map = |namespace: &str, name: &str, bytes: usize| {
            serde_json::json!({
                "metadata": { "namespace": namespace, "name": name, "uid": name, "deletionGracePeriodSeconds": 7 },
                "data": { "key": "x".repeat(bytes) }
            })
        };
        let items = [
            map("crowd", "a", 20_000),
            map("crowd", "b", 40_000),
            map("quiet", "c", 20_000),
            map("crowd", "d", 10_000),
        ];
        let list = serde_json::json!({ "kind": "ConfigMapList", "metadata": {}, "items": items }).to_string();
        let answer = tower::service_fn(move |_: Request<Body>| {
            let list = list.clone().into_bytes();
            async move { Ok::<_, tower::BoxError>(Response::new(Body::from(list))) }
        });
        let client = kube::Client::new(answer, "default");
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let api = ApiClient::new(client, Io::current(), unlimited, Duration::from_secs(5));
        let select = Select { bytes_max: Some(100_000), ..Select::default() };
        let Ok(listed) = api.list_all::<ConfigMap>(&select).await else { panic!("there is a list") };
        let names: Vec<&str> = listed.all.iter().filter_map(|map| map.metadata.name.as_deref()).collect();
        assert_eq!(names, ["a", "c", "d"]);
        let [beyond] = &listed.unreadable[..] else { panic!("one is beyond: {:?}", listed.unreadable) };
        assert_eq!([&*beyond.namespace, &*beyond.name, &*beyond.uid], ["crowd", "b", "b"]);
        assert_eq!(beyond.deletion.deletion_grace_period_seconds, Some(7));
        assert!(beyond.beyond.is_some_and(|beyond| beyond.bytes > 40_000 && !beyond.is_critical));
        let whole = api.list_all::<ConfigMap>(&Select::default()).await.map(|listed| listed.all.len());
        assert_eq!(whole.ok(), Some(4), "another list has no bound");
    }

    #[tokio::test]
    async fn the_order_of_a_list_decides_of_no_small_namespace_and_of_no_critical_pod() {
        let pod = |namespace: &str, name: &str, bytes: usize, class: &str| {
            serde_json::json!({
                "metadata": { "namespace": namespace, "name": name, "uid": name },
                "spec": { "priorityClassName": class, "containers": [{ "name": "c", "image": "i".repeat(bytes) }] }
            })
        };
        let mut items: Vec<_> = ["a", "b", "c", "d"]
            .iter()
            .flat_map(|crowd| (0..40).map(move |number| pod(crowd, &format!("{crowd}{number}"), 20_000, "")))
            .collect();
        items.push(pod("quiet", "quiet", 20_000, ""));
        items.push(pod("system", "system", 150_000, "system-node-critical"));
        items.push(pod("large", "large", 150_000, ""));
        let list = serde_json::json!({ "kind": "PodList", "metadata": {}, "items": items }).to_string();
        let answer = tower::service_fn(move |_: Request<Body>| {
            let list = list.clone().into_bytes();
            async move { Ok::<_, tower::BoxError>(Response::new(Body::from(list))) }
        });
        let client = kube::Client::new(answer, "default");
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let api = ApiClient::new(client, Io::current(), unlimited, Duration::from_secs(5));
        let select = Select { bytes_max: Some(2_000_000), ..Select::default() };
        let Ok(listed) = api.list_all::<Pod>(&select).await else { panic!("there is a list") };
        let has = |name: &str| listed.all.iter().any(|pod| pod.metadata.name.as_deref() == Some(name));
        assert_eq!(["quiet", "system", "large"].map(has), [true, true, false]);
        assert!((40..80).contains(&listed.all.len()), "{}", listed.all.len());
    }

    #[tokio::test]
    async fn an_answer_that_is_no_list_is_not_an_empty_one() {
        for answer in ["{}", r#"{"kind":"Status","status":"Success"}"#] {
            let said = refused(answer).await;
            assert!(said.contains("the answer is no list"), "{said}");
        }
    }
}
