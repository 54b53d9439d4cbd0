//! Lists: all objects of a selection, in one answer or in pages.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::{ApiClient, Reply, path};
use super::error::ApiError;
use super::object::{Object, Said, Unreadable, read_object};
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
    /// Those that cannot be decoded.
    pub unreadable: Vec<Unreadable>,
}

impl<K: Object> Listed<K> {
    fn take(&mut self, page: ListBody) {
        self.version = self.version.take().or(page.metadata.resource_version);
        for item in page.items.into_iter().flatten() {
            // Decoded from bytes like everything else: each further kind of source would compile the same code again.
            match read_object(item.get().as_bytes(), Said::Listed) {
                Ok(object) => self.all.push(object),
                Err(found) => self.unreadable.push(found.0),
            }
        }
    }
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
        let mut listed = Listed { version: None, all: Vec::new(), unreadable: Vec::new() };
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
    async fn an_answer_that_is_no_list_is_not_an_empty_one() {
        for answer in ["{}", r#"{"kind":"Status","status":"Success"}"#] {
            let said = refused(answer).await;
            assert!(said.contains("the answer is no list"), "{said}");
        }
    }
}
