//! Objects of the API, and the readable parts of an object that cannot be decoded.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

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
    /// How the server sent the object.
    pub said: Said,
    /// Why the object cannot be decoded.
    pub why: String,
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
}

/// Decodes an object; on failure, the parts that can be read.
pub(super) fn read_object<K: Object>(
    bytes: &[u8],
    said: Said,
) -> Result<K, Box<(Unreadable, Option<String>)>> {
    serde_json::from_slice::<K>(bytes).map_err(|error| {
        let NameBody { namespace, name, uid, resource_version } =
            serde_json::from_slice::<Named>(bytes).unwrap_or_default().metadata;
        let why = error.to_string();
        tracing::error!(
            kind = &*K::kind(&()),
            namespace,
            name,
            uid,
            why,
            "An object of the API server cannot be read; it is left out"
        );
        Box::new((Unreadable { namespace, name, uid, said, why }, resource_version))
    })
}
