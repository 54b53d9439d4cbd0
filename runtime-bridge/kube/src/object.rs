//! Objects of the API, and the readable parts of an object that cannot be decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_spec::nesting::{self, NESTED_MAX};
use serde::de::{DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A type of API objects.
pub trait Object:
    kube::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// The readable parts of an object that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The namespace; empty without one.
    pub namespace: String,
    /// The name; empty if it cannot be read.
    pub name: String,
    /// The UID; empty if it cannot be read.
    pub uid: String,
    /// The moment and the grace of its deletion, if it is being deleted.
    pub deletion: Deletion,
    /// How the server sent the object.
    pub said: Said,
    /// Why the object cannot be decoded.
    pub why: String,
    /// It can be decoded, and there is no room for it.
    pub beyond: Option<Beyond>,
}

/// An object for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beyond {
    /// About how many bytes of memory it takes.
    pub bytes: u64,
    /// It is a pod that is critical to the node or to the cluster.
    pub is_critical: bool,
}

/// What an object's metadata say of its deletion; nothing if the object is not being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Deletion {
    /// `deletionTimestamp`.
    pub deletion_timestamp: Option<Time>,
    /// `deletionGracePeriodSeconds`.
    pub deletion_grace_period_seconds: Option<i64>,
}

/// How a server sent an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// As an item of a list.
    Listed,
    /// In an event that it is new or has changed.
    Changed,
    /// In an event that it is gone.
    Gone,
}

#[derive(Default, Deserialize)]
struct Named {
    metadata: NameBody,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NameBody {
    namespace: String,
    name: String,
    uid: String,
    resource_version: Option<String>,
    #[serde(flatten)]
    deletion: Deletion,
}

/// The most bytes that are told of why an object cannot be decoded: a value of the object may stand in it whole.
const WHY_BYTES_MAX: usize = 1024;

/// In so many bytes no object nests too much: a volume counts as 13, and may be written in three bytes (`{},`).
const COUNTED_FROM_BYTES: usize = NESTED_MAX / 13 * 3;

/// What is nested in a value of JSON.
#[derive(Default)]
struct Nested {
    /// How many objects and lists, with the value itself.
    count: usize,
    /// The length of the value, if it is a list.
    items: usize,
    /// The length of its list of volumes, if it is an object that has one.
    volumes: usize,
    /// How many of the count are those of its managed fields, if it is an object that has some.
    managed: usize,
}

/// What is nested in the parts of an object: of each its author, or another writer, chooses how much.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Parts {
    metadata: Nested,
    spec: Nested,
    status: Nested,
}

/// The key of an object.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Key {
    Volumes,
    ManagedFields,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Nested {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Counting)
    }
}

struct Counting;

impl<'de> Visitor<'de> for Counting {
    type Value = Nested;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<Nested, E> {
        Ok(Nested::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Nested, A::Error> {
        let mut nested = Nested { count: 1, ..Nested::default() };
        while let Some(item) = list.next_element::<Nested>()? {
            nested.count += item.count;
            nested.items += 1;
        }
        Ok(nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Nested, A::Error> {
        let mut nested = Nested { count: 1, ..Nested::default() };
        while let Some((key, value)) = object.next_entry::<Key, Nested>()? {
            nested.count += value.count;
            match key {
                Key::Volumes => nested.volumes += value.items,
                Key::ManagedFields => nested.managed += value.count,
                Key::Other => {}
            }
        }
        Ok(nested)
    }
}

/// The name of a spec among the parts of an object.
const SPEC: &str = "spec";

/// The metadata among them.
const METADATA: &str = "metadata";

/// The first part of an object that nests more than any needs, and what is wrong with it; `None` if none does.
type Excess = Option<(&'static str, String)>;

/// What is wrong with an object, and the object without its managed fields if those alone are too many to be built: a kubelet does
/// not keep them, so an object is none the worse for them.
fn excess(bytes: &[u8]) -> Result<(Excess, Cow<'_, [u8]>), String> {
    if bytes.len() <= COUNTED_FROM_BYTES {
        return Ok((None, Cow::Borrowed(bytes)));
    }
    let told = |error: serde_json::Error| error.to_string();
    let Parts { metadata, spec, status } = serde_json::from_slice(bytes).map_err(told)?;
    let own = metadata.count.saturating_sub(metadata.managed);
    let all = [(SPEC, spec.count, spec.volumes), (METADATA, own, 0), ("status", status.count, 0)];
    let excess =
        all.into_iter().find_map(|(part, count, volumes)| Some((part, nesting::excess(count, volumes)?)));
    let is_managed_too_much = nesting::excess(metadata.count, 0).is_some();
    let bytes = match is_managed_too_much {
        true => Cow::Owned(without_managed_fields(bytes).map_err(told)?),
        false => Cow::Borrowed(bytes),
    };
    Ok((excess, bytes))
}

fn without_managed_fields(bytes: &[u8]) -> serde_json::Result<Vec<u8>> {
    let parts: BTreeMap<String, &RawValue> = serde_json::from_slice(bytes)?;
    let Some(metadata) = parts.get(METADATA).copied() else { return Ok(bytes.to_vec()) };
    let mut metadata: BTreeMap<String, &RawValue> = serde_json::from_str(metadata.get())?;
    metadata.remove("managedFields");
    let metadata = serde_json::value::to_raw_value(&metadata)?;
    let mut parts = parts;
    parts.insert(METADATA.to_owned(), metadata.as_ref());
    serde_json::to_vec(&parts)
}

/// Decodes an object, without what is nothing to a kubelet.
///
/// # Errors
/// The bytes are no such object, or a part of it nests more than any needs.
pub fn decode<K: Object>(bytes: &[u8]) -> Result<K, String> {
    match excess(bytes)? {
        (Some((part, excess)), _) => Err(format!("its {part} {excess}")),
        (None, bytes) => build(&bytes),
    }
}

/// The same for an object that the server has just written: that is done, so a spec that nests more than any needs is no error, and is
/// left out.
pub(super) fn decode_written<K: Object>(bytes: &[u8]) -> Result<K, String> {
    let bytes = match excess(bytes)? {
        (None, bytes) => return build(&bytes),
        (Some((SPEC, _)), bytes) => bytes,
        (Some((part, excess)), _) => return Err(format!("its {part} {excess}")),
    };
    let parts: serde_json::Result<BTreeMap<String, &RawValue>> = serde_json::from_slice(&bytes);
    let without_spec = parts.and_then(|mut parts| {
        parts.remove(SPEC);
        serde_json::to_vec(&parts)
    });
    decode(&without_spec.map_err(|error| error.to_string())?)
}

fn build<K: Object>(bytes: &[u8]) -> Result<K, String> {
    let mut object = serde_json::from_slice::<K>(bytes).map_err(|error| error.to_string())?;
    // Which manager has set which field is nothing to a kubelet, and takes many times its text: it goes here, and not where the
    // object is used.
    object.meta_mut().managed_fields = None;
    Ok(object)
}

/// Decodes an object; on failure, the parts that can be read.
pub(super) fn read_object<K: Object>(
    bytes: &[u8],
    said: Said,
) -> Result<K, Box<(Unreadable, Option<String>)>> {
    decode(bytes).map_err(|mut why| {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        let NameBody { namespace, name, uid, resource_version, deletion } =
            serde_json::from_slice::<Named>(bytes).unwrap_or_default().metadata;
        tracing::error!(
            kind = &*K::kind(&()),
            namespace,
            name,
            uid,
            why,
            "An object of the API server cannot be read; it is left out"
        );
        Box::new((Unreadable { namespace, name, uid, deletion, said, why, beyond: None }, resource_version))
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Result<Pod, String> {
        let object = json!({ "metadata": { "namespace": "a", "name": "b", "uid": "c" }, "spec": spec });
        read_object(object.to_string().as_bytes(), Said::Changed).map_err(|unreadable| {
            let Unreadable { namespace, name, uid, why, .. } = unreadable.0;
            assert_eq!([&*namespace, &*name, &*uid], ["a", "b", "c"]);
            why
        })
    }

    #[test]
    fn a_spec_that_nests_more_than_any_pod_needs_is_not_built() {
        let volumes = |count: usize| -> Vec<Value> {
            (0..count).map(|number| json!({ "name": number.to_string(), "emptyDir": {} })).collect()
        };
        let spec = |count: usize| json!({ "containers": [], "volumes": volumes(count) });
        // The spec itself, its two lists, and two for each volume.
        let read_in =
            |count| read(spec(count)).map(|pod| pod.spec.and_then(|spec| spec.volumes).map(|all| all.len()));
        assert_eq!(read_in(4_680), Ok(Some(4_680)));
        let why = "its spec nests 65537 objects and lists, of which a volume counts as 13, and this kubelet takes at most 65536";
        assert_eq!(read_in(4_681), Err(why.to_owned()));
        let unnamed = |count: usize| read(json!({ "containers": [], "volumes": vec![json!({}); count] }));
        assert!(unnamed(5_041).is_ok());
        assert!(unnamed(5_042).is_err_and(|why| why.contains("nests 65549")), "however short it is");
        let others = |count: usize| json!({ "containers": [], "tolerations": vec![json!({}); count] });
        assert!(read(others(65_533)).is_ok());
        assert!(read(others(65_534)).is_err_and(|why| why.contains("nests 65537")));
        let elsewhere = json!({ "containers": [], "other": { "volumes": vec![json!({}); 65_532] } });
        assert!(read(elsewhere).is_ok(), "what has the name elsewhere is no volume");
    }

    #[test]
    fn metadata_and_a_status_that_nest_more_than_any_need_are_not_built_either() {
        let object = |owners: usize, conditions: usize| {
            let owners = vec![json!({ "apiVersion": "", "kind": "", "name": "", "uid": "" }); owners];
            let conditions = vec![json!({ "type": "", "status": "" }); conditions];
            let metadata = json!({ "uid": "c", "ownerReferences": owners });
            json!({ "metadata": metadata, "spec": { "containers": [] }, "status": { "conditions": conditions } })
                .to_string()
        };
        let read = |owners: usize, conditions: usize| {
            let read = read_object::<Pod>(object(owners, conditions).as_bytes(), Said::Changed);
            read.map(|_| ()).map_err(|unreadable| unreadable.0.why)
        };
        // The part itself, and its list.
        assert_eq!(read(NESTED_MAX - 2, NESTED_MAX - 2), Ok(()));
        assert!(read(NESTED_MAX - 1, 0).is_err_and(|why| why.starts_with("its metadata nests 65537")));
        assert!(read(0, NESTED_MAX - 1).is_err_and(|why| why.starts_with("its status nests 65537")));
        let written = decode_written::<Pod>(object(0, NESTED_MAX - 1).as_bytes());
        assert!(written.is_err_and(|why| why.starts_with("its status nests")));
    }

    #[test]
    fn what_the_server_has_written_is_told_without_a_spec_that_nests_too_much() {
        let written = |tolerations: usize| {
            let spec = json!({ "containers": [], "tolerations": vec![json!({}); tolerations] });
            let metadata = json!({ "name": "b", "managedFields": [{ "manager": "m" }] });
            let object = json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Failed" } });
            decode_written::<Pod>(object.to_string().as_bytes()).expect("a pod")
        };
        for (tolerations, has_spec) in [(1, true), (60_000, true), (70_000, false)] {
            let pod = written(tolerations);
            assert_eq!(pod.spec.is_some(), has_spec, "{tolerations}");
            assert_eq!(pod.status.and_then(|status| status.phase).as_deref(), Some("Failed"));
            assert_eq!((pod.metadata.name.as_deref(), pod.metadata.managed_fields), (Some("b"), None));
        }
    }

    #[test]
    fn of_what_cannot_be_read_the_deletion_is_told() {
        let mut object =
            json!({ "metadata": { "uid": "c", "annotations": { "a": "b" } }, "spec": { "containers": 1 } });
        let told = |object: &Value| {
            let unreadable =
                read_object::<Pod>(object.to_string().as_bytes(), Said::Changed).expect_err("no pod");
            assert_eq!(unreadable.0.uid, "c");
            unreadable.0.deletion
        };
        assert_eq!(told(&object), Deletion::default());
        object["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        object["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        let deletion = told(&object);
        assert_eq!(
            deletion.deletion_timestamp.map(|at| at.0.to_string()).as_deref(),
            Some("2026-01-02T03:04:05Z")
        );
        assert_eq!(deletion.deletion_grace_period_seconds, Some(30));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_not_told_whole() {
        let long = read(json!({ "containers": "ä".repeat(100_000) })).expect_err("no pod");
        assert!(long.starts_with("invalid type") && long.len() <= WHY_BYTES_MAX, "{}", long.len());
    }

    #[test]
    fn who_has_set_which_field_is_not_kept() {
        let object =
            json!({ "metadata": { "uid": "c", "managedFields": [{ "fieldsV1": { "f:spec": {} } }] } });
        let pod = read_object::<Pod>(object.to_string().as_bytes(), Said::Listed).expect("a pod");
        assert_eq!((pod.metadata.uid.as_deref(), pod.metadata.managed_fields), (Some("c"), None));
    }

    #[test]
    fn managed_fields_make_no_object_unreadable() {
        let managed = vec![json!({ "fieldsV1": { "f:spec": {} } }); NESTED_MAX];
        let read = |owners: usize| -> Result<_, String> {
            let owners = vec![json!({ "apiVersion": "", "kind": "", "name": "", "uid": "" }); owners];
            let metadata = json!({ "uid": "c", "managedFields": managed, "ownerReferences": owners });
            let object = json!({ "metadata": metadata, "spec": { "containers": [] } }).to_string();
            let pod = read_object::<Pod>(object.as_bytes(), Said::Listed).map_err(|found| found.0.why)?;
            Ok((
                pod.metadata.uid,
                pod.metadata.owner_references.map(|all| all.len()),
                pod.metadata.managed_fields,
            ))
        };
        assert_eq!(read(1), Ok((Some("c".to_owned()), Some(1), None)));
        assert!(read(NESTED_MAX - 1).is_err_and(|why| why.starts_with("its metadata nests 65537")));
        let status = json!({ "managedFields": vec![json!({}); NESTED_MAX] });
        let object = json!({ "metadata": { "uid": "c" }, "status": status }).to_string();
        assert!(decode::<Pod>(object.as_bytes()).is_err_and(|why| why.starts_with("its status nests")));
    }

    #[test]
    fn what_is_no_json_is_told_of_alike() {
        let long = "x".repeat(COUNTED_FROM_BYTES + 1);
        for text in ["{", &*long] {
            let error = read_object::<Pod>(text.as_bytes(), Said::Listed).expect_err("no object");
            assert!(!error.0.why.is_empty() && error.0.uid.is_empty());
        }
    }
}
