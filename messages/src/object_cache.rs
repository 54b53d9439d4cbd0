//! What ObjectCache receives.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Serialize;

use crate::facts::DesiredPodsChanged;
use crate::{PodRef, PodUid, delivery, receives};

/// A secret, as it is now. Read from a watch that lasts while pods need it.
#[derive(Clone, Debug)]
pub struct GetSecret {
    /// Its namespace: that of the pod.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}
delivery!(GetSecret => Result<Arc<Secret>, ObjectError>: Query, Wait);

/// A config map, as it is now. Read from a watch that lasts while pods need it.
#[derive(Clone, Debug)]
pub struct GetConfigMap {
    /// Its namespace: that of the pod.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}
delivery!(GetConfigMap => Result<Arc<ConfigMap>, ObjectError>: Query, Wait);

/// A runtime class, as it is now: it names the handler of the runtime that is to run a pod.
#[derive(Clone, Debug)]
pub struct GetRuntimeClass {
    /// Its name.
    pub name: Arc<str>,
}
delivery!(GetRuntimeClass => Result<Arc<RuntimeClass>, ObjectError>: Query, Wait);

/// A token of the pod's service account, bound to the pod; fresh enough to be used for a while.
#[derive(Clone, Debug)]
pub struct GetToken {
    /// The pod that it is bound to.
    pub pod: PodRef,
    /// `spec.serviceAccountName`.
    pub service_account: Arc<str>,
    /// For whom it is meant; empty for the API server.
    pub audience: Arc<str>,
    /// How long it is to hold, in seconds; the server's own time if absent.
    pub expiration_seconds: Option<i64>,
}
delivery!(GetToken => Result<Token, ObjectError>: Query, Wait, pod = |m| Some(&m.pod.uid));

/// The services of the cluster, as they are now. Without a cluster there are none.
#[derive(Clone, Debug)]
pub struct GetServices;
delivery!(GetServices => Result<Arc<[Arc<Service>]>, ObjectError>: Query, Wait);

/// A token. Its debugging form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub Arc<str>);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Why an object cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectError {
    /// There is no such object: who does not need it may go on.
    pub not_found: bool,
    /// For people, in upstream's words.
    pub message: String,
}

/// What the pod refers to is not what it was: have another look. Writer: ObjectCache.
#[derive(Clone, Debug)]
pub struct PodObjectsChanged {
    /// The pod.
    pub uid: PodUid,
}
delivery!(PodObjectsChanged => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

receives!("ObjectCache": DesiredPodsChanged, GetSecret, GetConfigMap, GetRuntimeClass, GetToken, GetServices);
