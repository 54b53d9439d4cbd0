//! What of the API server an actor may use: small traits, of which wiring hands each actor only its own.
//!
//! [`ApiClient`] implements all of them; a test may stand in for one of them alone. So a fact has one writer: only
//! StatusManager is given [`PodStatuses`], only NodeStatus [`NodeObject`], only Lease [`Leases`].
//!
//! What follows the Node cannot write it. This compiles:
//!
//! ```no_run
//! # fn sample(api: &dyn bridge_kube::Follow<k8s_openapi::api::core::v1::Node>) {
//! let _ = api.follow(bridge_kube::Select::default());
//! # }
//! ```
//!
//! and this does not:
//!
//! ```compile_fail,E0599
//! # fn sample(api: &dyn bridge_kube::Follow<k8s_openapi::api::core::v1::Node>) {
//! let _ = api.patch_status("node", &bridge_kube::Patch::Merge(Default::default()));
//! # }
//! ```
//!
//! nor does what makes mirror pods write a pod's status:
//!
//! ```compile_fail,E0599
//! # fn sample(api: &dyn bridge_kube::MirrorObjects) {
//! let _ = api.patch_status("namespace", "pod", &bridge_kube::Patch::Merge(Default::default()));
//! # }
//! ```

use std::fmt::Debug;
use std::time::Duration;

use futures::stream::BoxStream;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;

use super::api::{ApiClient, Delete, Patch, Reply, Select};
use super::follow::Followed;
use super::object::Object;

/// Lists of one kind of objects that stay current.
pub trait Follow<K>: Send + Sync + 'static {
    /// Follows the objects selected. Ends when it is dropped, and with the I/O runtime.
    fn follow(&self, select: Select) -> BoxStream<'static, Followed<K>>;
}

impl<K: Object> Follow<K> for ApiClient {
    fn follow(&self, select: Select) -> BoxStream<'static, Followed<K>> {
        ApiClient::follow(self, select)
    }
}

/// Makes each trait, and its implementation by calls of [`ApiClient`].
macro_rules! ports {
    ($($(#[$about:meta])* $port:ident($api:ident) $(: $more:path)? {
        $($(#[$says:meta])* fn $method:ident($($argument:ident: $kind:ty),*) -> $answer:ty { $call:expr })*
    })*) => {$(
        $(#[$about])*
        pub trait $port: $($more +)? Debug + Send + Sync + 'static {
            $($(#[$says])* fn $method(&self, $($argument: $kind),*) -> $answer;)*
        }

        impl $port for ApiClient {
            $(fn $method(&self, $($argument: $kind),*) -> $answer {
                let $api = self;
                $call
            })*
        }
    )*};
}

ports! {
    /// The statuses and the ends of pods; for StatusManager.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    PodStatuses(api) {
        /// Changes the status of a pod; the pod as it is then.
        fn patch_status(namespace: &str, name: &str, patch: &Patch) -> Reply<Pod> {
            api.patch_status(Some(namespace), name, patch)
        }
        /// Deletes a pod.
        fn delete(namespace: &str, name: &str, how: &Delete) -> Reply<()> {
            api.delete::<Pod>(Some(namespace), name, how)
        }
    }

    /// MirrorObjects of static pods, and the Node that owns them; for PodManager.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    MirrorObjects(api) {
        /// Reads a Node.
        fn node(name: &str) -> Reply<Node> { api.get(None, name) }
        /// Reads a Node, and waits for it no longer than `deadline`.
        fn node_within(name: &str, deadline: Duration) -> Reply<Node> {
            api.with_deadline(deadline).get(None, name)
        }
        /// Creates a mirror.
        fn create(mirror: &Pod) -> Reply<Pod> { api.create(mirror) }
        /// Reads the pod of a mirror's name.
        fn get(namespace: &str, name: &str) -> Reply<Pod> { api.get(Some(namespace), name) }
        /// Deletes a mirror.
        fn delete(namespace: &str, name: &str, how: &Delete) -> Reply<()> {
            api.delete::<Pod>(Some(namespace), name, how)
        }
    }

    /// The Node object; for NodeStatus, and for what writes it when NodeStatus itself has failed.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    NodeObject(api) {
        /// Creates the Node.
        fn create(node: &Node) -> Reply<Node> { api.create(node) }
        /// Reads the Node.
        fn get(name: &str) -> Reply<Node> { api.get(None, name) }
        /// Changes the Node's status; the Node as it is then.
        fn patch_status(name: &str, patch: &Patch) -> Reply<Node> { api.patch_status(None, name, patch) }
        /// Gives up connections that may be dead; see [`ApiClient::redial`].
        fn redial() -> () { ApiClient::redial(api) }
    }

    /// The node's lease; for Lease.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    Leases(api) {
        /// Reads a lease.
        fn get(namespace: &str, name: &str) -> Reply<Lease> { api.get(Some(namespace), name) }
        /// Creates a lease.
        fn create(lease: &Lease) -> Reply<Lease> { api.create(lease) }
        /// Replaces a lease; its `resourceVersion` must be current.
        fn replace(lease: &Lease) -> Reply<Lease> { api.replace(lease) }
        /// Gives up connections that may be dead; see [`ApiClient::redial`].
        fn redial() -> () { ApiClient::redial(api) }
    }

    /// Events; for EventRecorder.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    Events(api) {
        /// Creates an event.
        fn create(event: &Event) -> Reply<Event> { api.create(event) }
        /// Changes an event.
        fn patch(namespace: Option<&str>, name: &str, patch: &Patch) -> Reply<Event> {
            api.patch(namespace, name, patch)
        }
    }

    /// Tokens of service accounts.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    Tokens(api) {
        /// Asks for a token of a service account.
        fn issue(namespace: &str, account: &str, request: &TokenRequest) -> Reply<TokenRequest> {
            api.create_subresource::<ServiceAccount, _>(Some(namespace), account, "token", request)
        }
    }

    /// Certificate signing requests; for CertificateManager, and for the bootstrap before it.
    ///
    /// # Errors
    /// What the API server answers, or that there was no answer in time.
    CertificateRequests(api): Follow<CertificateSigningRequest> {
        /// Creates a request.
        fn create(request: &CertificateSigningRequest) -> Reply<CertificateSigningRequest> {
            api.create(request)
        }
        /// Reads a request.
        fn get(name: &str) -> Reply<CertificateSigningRequest> { api.get(None, name) }
    }
}

/// What pods refer to, and tokens for them; for ObjectCache.
pub trait PodObjects:
    Follow<Secret> + Follow<ConfigMap> + Follow<RuntimeClass> + Follow<Service> + Tokens
{
}

impl<T> PodObjects for T where
    T: Follow<Secret> + Follow<ConfigMap> + Follow<RuntimeClass> + Follow<Service> + Tokens
{
}
