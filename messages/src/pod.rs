//! A pod's identity: its UID, name and namespace.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

/// A pod's UID: the key under which every subsystem keeps the pod.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PodUid(Arc<str>);

impl PodUid {
    /// Wraps a UID as the API or the runtime's label spells it.
    pub fn new(uid: &str) -> Self {
        Self(Arc::from(uid))
    }

    /// The UID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod's name, namespace and UID, as events, logs and errors name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodRef {
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl PodRef {
    /// The identity of a pod object of the API; absent fields are empty.
    pub fn of(pod: &Pod) -> Self {
        let text = |field: &Option<String>| Arc::from(field.as_deref().unwrap_or_default());
        Self {
            uid: PodUid::new(pod.metadata.uid.as_deref().unwrap_or_default()),
            namespace: text(&pod.metadata.namespace),
            name: text(&pod.metadata.name),
        }
    }

    /// `<name>_<namespace>`, the key under which two pods of one source are duplicates.
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }
}

impl fmt::Display for PodRef {
    /// Upstream's form in events and messages: `name_namespace(uid)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}({})", self.name, self.namespace, self.uid)
    }
}
