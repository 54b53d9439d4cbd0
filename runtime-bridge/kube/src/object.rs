//! Objects of the API, and what can be read of one that is not of its kind's form.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An object of the API.
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

/// An object that cannot be read, as far as it can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its namespace; empty without one.
    pub namespace: String,
    /// Its name; empty if not even that can be read.
    pub name: String,
    /// Its UID, if that can be read.
    pub uid: String,
    /// What the server said of it.
    pub said: Said,
    /// What does not fit.
    pub why: String,
}

/// What a server says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is an item of a list.
    Listed,
    /// It is new or has changed.
    Changed,
    /// It is gone.
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

/// An object, or what can be read of one that is not of the kind's form.
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
