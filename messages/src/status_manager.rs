//! The messages that StatusManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use crate::facts::{
    DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeVerdict, RuntimeObserved, WorkerReported,
};
use crate::pod_set::Generation;
use crate::supervision::PodsQuarantined;
use crate::{PodUid, delivery, receives};

/// The mirror pods: pods of the API server that stand for static pods. Writer: PodManager.
#[derive(Clone, Debug, PartialEq)]
pub struct MirrorPods {
    /// The mirror pods by the UID of their static pod.
    pub pods: Arc<BTreeMap<PodUid, Arc<Pod>>>,
}
delivery!(MirrorPods => (): Command, LatestPerKey);

/// Asks for the status of one pod as last computed or restored; `None` if StatusManager has none.
#[derive(Clone, Debug)]
pub struct GetPodStatus {
    /// The pod's UID.
    pub uid: PodUid,
    /// When the pod was made anew, as far as the asker knows: it does not ask for what was before.
    pub made_anew: Option<Generation>,
}
delivery!(GetPodStatus => Option<Arc<PodStatus>>: Query, Wait, pod = |m| Some(&m.uid));

/// Asks for the statuses of all pods.
#[derive(Clone, Debug)]
pub struct GetPodStatuses;
delivery!(GetPodStatuses => BTreeMap<PodUid, Arc<PodStatus>>: Query, Reject);

/// Asks for the statuses of all pods, answered once the checkpoints of earlier kubelet processes have been read. A pod
/// with a status was already admitted or refused.
#[derive(Clone, Debug)]
pub struct GetKnownStatuses;
delivery!(GetKnownStatuses => BTreeMap<PodUid, Arc<PodStatus>>: Query, Wait);

receives!(
    "StatusManager": DesiredPodsChanged, MirrorPods, PodObserved, RuntimeObserved, ProbeVerdict, WorkerReported, PodsQuarantined,
    NodeAddressesObserved, GetPodStatus, GetPodStatuses, GetKnownStatuses
);
