//! What StatusManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodStatus;

use crate::facts::{DesiredPods, PodObserved, ProbeVerdict, RuntimeObserved, WorkerReported};
use crate::supervision::PodQuarantined;
use crate::{PodUid, delivery, receives};

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
    "StatusManager": DesiredPods, PodObserved, RuntimeObserved, ProbeVerdict, WorkerReported, PodQuarantined,
    GetPodStatus, GetPodStatuses, GetKnownStatuses
);
