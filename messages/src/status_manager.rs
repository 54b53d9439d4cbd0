//! What StatusManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::facts::{
    DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeVerdict, RuntimeObserved, WorkerReported,
};
use crate::supervision::PodQuarantined;
use crate::{PodUid, delivery, receives};

/// The pods that stand for static pods at the API server. Writer: PodManager.
#[derive(Clone, Debug)]
pub struct MirrorPods {
    /// By the UID of the static pod.
    pub pods: Arc<BTreeMap<PodUid, Arc<Pod>>>,
}
delivery!(MirrorPods => (): Command, LatestPerKey);

/// The status of one pod as last computed or restored; `None` if there never was one.
#[derive(Clone, Debug)]
pub struct GetPodStatus {
    /// The pod's UID.
    pub uid: PodUid,
}
delivery!(GetPodStatus => Option<Arc<PodStatus>>: Query, Wait, pod = |m| Some(&m.uid));

/// The statuses of all pods.
#[derive(Clone, Debug)]
pub struct GetPodStatuses;
delivery!(GetPodStatuses => BTreeMap<PodUid, Arc<PodStatus>>: Query, Reject);

/// The statuses of all pods, once those have been read that were written down before this process. A pod that has one
/// was admitted or refused already.
#[derive(Clone, Debug)]
pub struct GetKnownStatuses;
delivery!(GetKnownStatuses => BTreeMap<PodUid, Arc<PodStatus>>: Query, Wait);

receives!(
    "StatusManager": DesiredPodsChanged, MirrorPods, PodObserved, RuntimeObserved, ProbeVerdict, WorkerReported, PodQuarantined,
    NodeAddressesObserved, GetPodStatus, GetPodStatuses, GetKnownStatuses
);
