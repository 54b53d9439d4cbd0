//! The parts of the API server that an actor may use: small traits, of which the wiring hands each actor only its own.
//!
//! [`ApiClient`] implements all of them; a test may implement one of them alone. This keeps one writer per fact: only
//! StatusManager is given [`PodStatuses`], only NodeStatus [`NodeObject`], only Lease [`Leases`].
//!
//! An actor that follows the Node cannot write it. This compiles:
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
//! nor can an actor that makes mirror pods write a pod's status:
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
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};

use super::api::{ApiClient, Delete, Patch, Reply, Select};
use super::follow::Followed;
use super::object::Object;

/// Lists of one kind of objects that stay current.
pub trait Follow<K>: Send + Sync + 'static {
    /// Follows the selected objects. The stream ends with the I/O runtime; dropping it ends the watch.
    fn follow(&self, select: Select) -> BoxStream<'static, Followed<K>>;
}

impl<K: Object> Follow<K> for ApiClient {
    fn follow(&self, select: Select) -> BoxStream<'static, Followed<K>> {
        ApiClient::follow(self, select)
    }
}

/// Lists and single objects of one kind.
pub trait Read<K>: Follow<K> {
    /// Reads an object as it is now.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    fn read(&self, namespace: Option<&str>, name: &str) -> Reply<K>;
}

impl<K: Object> Read<K> for ApiClient {
    fn read(&self, namespace: Option<&str>, name: &str) -> Reply<K> {
        self.get(namespace, name)
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
    /// Writes to the status of pods, and their deletion; for StatusManager.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    PodStatuses(api) {
        /// Changes the status of a pod; returns the changed pod.
        fn patch_status(namespace: &str, name: &str, patch: &Patch) -> Reply<Pod> {
            api.patch_status(Some(namespace), name, patch)
        }
        /// Deletes a pod.
        fn delete(namespace: &str, name: &str, how: &Delete) -> Reply<()> {
            api.delete::<Pod>(Some(namespace), name, how)
        }
    }

    /// Mirror pods of static pods, and the Node that owns them; for PodManager.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    MirrorObjects(api) {
        /// Reads a Node.
        fn node(name: &str) -> Reply<Node> { api.get(None, name) }
        /// Reads a Node, with a deadline of its own.
        fn node_within(name: &str, deadline: Duration) -> Reply<Node> {
            api.with_deadline(deadline).get(None, name)
        }
        /// Creates a mirror pod.
        fn create(mirror: &Pod) -> Reply<Pod> { api.create(mirror) }
        /// Reads the pod that has a mirror's name.
        fn get(namespace: &str, name: &str) -> Reply<Pod> { api.get(Some(namespace), name) }
        /// Deletes a mirror pod.
        fn delete(namespace: &str, name: &str, how: &Delete) -> Reply<()> {
            api.delete::<Pod>(Some(namespace), name, how)
        }
    }

    /// The Node object; for NodeStatus, and for the last words of a kubelet in which NodeStatus has failed.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    NodeObject(api) {
        /// Creates the Node.
        fn create(node: &Node) -> Reply<Node> { api.create(node) }
        /// Reads the Node.
        fn get(name: &str) -> Reply<Node> { api.get(None, name) }
        /// Changes the Node's status; returns the changed Node.
        fn patch_status(name: &str, patch: &Patch) -> Reply<Node> { api.patch_status(None, name, patch) }
        /// Gives up connections that may be dead; see [`ApiClient::redial`].
        fn redial() -> () { ApiClient::redial(api) }
    }

    /// The node's lease; for Lease.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
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
    /// The API server's answer, or that no answer came in time.
    Events(api) {
        /// Creates an event.
        fn create(event: &Event) -> Reply<Event> { api.create(event) }
        /// Changes an event.
        fn patch(namespace: Option<&str>, name: &str, patch: &Patch) -> Reply<Event> {
            api.patch(namespace, name, patch)
        }
    }

    /// Claims and the volumes behind them; for VolumeManager.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    VolumeObjects(api) {
        /// Reads a claim.
        fn claim(namespace: &str, name: &str) -> Reply<PersistentVolumeClaim> {
            api.get(Some(namespace), name)
        }
        /// Reads a PersistentVolume.
        fn volume(name: &str) -> Reply<PersistentVolume> { api.get(None, name) }
        /// Reads what a CSI driver says of itself.
        fn csi_driver(name: &str) -> Reply<CSIDriver> { api.get(None, name) }
        /// Reads whether a volume is attached to a node.
        fn attachment(name: &str) -> Reply<VolumeAttachment> { api.get(None, name) }
        /// Reads a Secret that a volume of a CSI driver names.
        fn secret(namespace: &str, name: &str) -> Reply<Secret> { api.get(Some(namespace), name) }
    }

    /// The status of claims, in which the node tells that it has made a volume larger; for VolumeManager.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    ClaimStatuses(api) {
        /// Changes the status of a claim.
        fn patch_status(namespace: &str, name: &str, patch: &Patch) -> Reply<PersistentVolumeClaim> {
            api.patch_status(Some(namespace), name, patch)
        }
    }

    /// The node's CSINode, which lists the CSI drivers that are registered here; for VolumeManager.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    CsiNodes(api) {
        /// Reads a CSINode.
        fn get(name: &str) -> Reply<CSINode> { api.get(None, name) }
        /// Creates a CSINode.
        fn create(csi_node: &CSINode) -> Reply<CSINode> { api.create(csi_node) }
        /// Replaces a CSINode; its `resourceVersion` must be current.
        fn replace(csi_node: &CSINode) -> Reply<CSINode> { api.replace(csi_node) }
        /// Deletes a CSINode.
        fn delete(name: &str, how: &Delete) -> Reply<()> { api.delete::<CSINode>(None, name, how) }
    }

    /// Tokens of service accounts; for ObjectCache.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    Tokens(api) {
        /// Issues a token of a service account.
        fn issue(namespace: &str, account: &str, request: &TokenRequest) -> Reply<TokenRequest> {
            api.create_subresource::<ServiceAccount, _>(Some(namespace), account, "token", request)
        }
    }

    /// Certificate signing requests; for CertificateManager, and for the bootstrap before actors start.
    ///
    /// # Errors
    /// The API server's answer, or that no answer came in time.
    CertificateRequests(api): Follow<CertificateSigningRequest> {
        /// Creates a request.
        fn create(request: &CertificateSigningRequest) -> Reply<CertificateSigningRequest> {
            api.create(request)
        }
        /// Reads a request.
        fn get(name: &str) -> Reply<CertificateSigningRequest> { api.get(None, name) }
    }
}

/// The objects that pods refer to, each followed or read now and then, and tokens for pods; for ObjectCache.
pub trait PodObjects:
    Read<Secret> + Read<ConfigMap> + Read<RuntimeClass> + Read<ServiceAccount> + Follow<Service> + Tokens
{
}

impl<T> PodObjects for T where
    T: Read<Secret> + Read<ConfigMap> + Read<RuntimeClass> + Read<ServiceAccount> + Follow<Service> + Tokens
{
}
