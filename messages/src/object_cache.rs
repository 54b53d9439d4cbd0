//! The messages that ObjectCache receives.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Serialize;

use crate::facts::{DesiredPodsChanged, NodeObserved};
use crate::{PodRef, PodUid, delivery, receives};

/// Asks for a secret as it is now. ObjectCache reads it from a watch that lasts while pods need the secret, unless the configuration
/// wants no watches.
#[derive(Clone, Debug)]
pub struct GetSecret {
    /// The pod that needs it.
    pub pod: PodUid,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The secret's name.
    pub name: Arc<str>,
}
delivery!(GetSecret => Result<Arc<Secret>, ObjectError>: Query, Wait, pod = |m| Some(&m.pod));

/// Asks for a config map as it is now. ObjectCache reads it from a watch that lasts while pods need the config map, unless the
/// configuration wants no watches.
#[derive(Clone, Debug)]
pub struct GetConfigMap {
    /// The pod that needs it.
    pub pod: PodUid,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The config map's name.
    pub name: Arc<str>,
}
delivery!(GetConfigMap => Result<Arc<ConfigMap>, ObjectError>: Query, Wait, pod = |m| Some(&m.pod));

/// Asks for a runtime class as it is now: it names the runtime's handler that is to run a pod.
#[derive(Clone, Debug)]
pub struct GetRuntimeClass {
    /// The pod that names it.
    pub pod: PodUid,
    /// The runtime class' name.
    pub name: Arc<str>,
}
delivery!(GetRuntimeClass => Result<Arc<RuntimeClass>, ObjectError>: Query, Wait, pod = |m| Some(&m.pod));

/// Asks for a service account as it is now.
#[derive(Clone, Debug)]
pub struct GetServiceAccount {
    /// The pod that runs as it.
    pub pod: PodUid,
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The service account's name.
    pub name: Arc<str>,
}
delivery!(GetServiceAccount => Result<Arc<ServiceAccount>, ObjectError>: Query, Wait, pod = |m| Some(&m.pod));

/// Asks for a token of the pod's service account, bound to the pod and with enough of its lifetime left.
#[derive(Clone, Debug)]
pub struct GetToken {
    /// The pod that the token is bound to.
    pub pod: PodRef,
    /// `spec.serviceAccountName`.
    pub service_account: Arc<str>,
    /// The UID that the service account must have; empty for whichever has the name.
    pub account_uid: Arc<str>,
    /// The audience that the token is meant for; empty for the API server.
    pub audience: Arc<str>,
    /// The token's lifetime in seconds; `None` leaves it to the API server.
    pub expiration_seconds: Option<i64>,
}
delivery!(GetToken => Result<Token, ObjectError>: Query, Wait, pod = |m| Some(&m.pod.uid));

/// Asks for the cluster's services as they are now. A kubelet without a cluster has none.
#[derive(Clone, Debug)]
pub struct GetServices;
delivery!(GetServices => Result<Arc<[Arc<Service>]>, ObjectError>: Query, Wait);

/// A token. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token.
    pub text: Arc<str>,
    /// When it ends to hold.
    pub expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Why ObjectCache cannot answer with an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectError {
    /// The object does not exist, so a pod that marks it optional can go on without it.
    pub not_found: bool,
    /// The message, for people, in upstream's words.
    pub message: String,
}

/// An object that the pod refers to has changed: the receiver should read it again. Writer: ObjectCache, which says so once: that
/// an object came without this being heard costs 122 s at most, the longest pause between two tries of a volume.
#[derive(Clone, Debug)]
pub struct PodObjectsChanged {
    /// The UID of the pod.
    pub uid: PodUid,
}
delivery!(PodObjectsChanged => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

receives!(
    "ObjectCache": DesiredPodsChanged,
    NodeObserved,
    GetSecret,
    GetConfigMap,
    GetRuntimeClass,
    GetServiceAccount,
    GetToken,
    GetServices
);
