//! The messages that PodWorkerPool receives, and those that it sends to the worker of one pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::{
    DesiredPod, DesiredPodsChanged, NodeAddressesObserved, NodeResourcesConfigured, PodObserved,
    ProbeVerdict, Rejection, RuntimeObserved, SeenPod, Verdicts, WorkerReport,
};
use crate::object_cache::PodObjectsChanged;
use crate::{Key, PodRef, PodUid, delivery, receives};

/// Asks the pool to stop a pod for a reason of the node (eviction, preemption, shutdown).
#[derive(Clone, Debug)]
pub struct EvictPod {
    /// The pod's UID.
    pub uid: PodUid,
    /// Grace in seconds instead of the pod's own; applied only where it is shorter.
    pub grace_seconds: Option<i64>,
    /// The reason and message of the pod's status.
    pub why: Rejection,
}
delivery!(EvictPod => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// Asks for every worker's newest report.
#[derive(Clone, Debug)]
pub struct GetWorkers;
delivery!(GetWorkers => BTreeMap<PodUid, Arc<WorkerReport>>: Query, Reject);

/// Asks the pool to send everything about this pod to its worker again, since the worker has restarted.
#[derive(Clone, Debug)]
pub struct ResendPod {
    /// The pod's UID.
    pub uid: PodUid,
}
delivery!(ResendPod => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// A worker's newest report, which the pool tells its followers.
#[derive(Clone, Debug)]
pub struct PodReported {
    /// The pod's UID.
    pub uid: PodUid,
    /// The report.
    pub report: Arc<WorkerReport>,
}
delivery!(PodReported => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// Asks the pool to send every worker's newest report again: the receiver has restarted or has missed a change.
#[derive(Clone, Debug)]
pub struct ResendReports {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendReports => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

receives!(
    "PodWorkerPool": DesiredPodsChanged, PodObserved, RuntimeObserved, ProbeVerdict, PodReported, EvictPod, ResendPod,
    NodeAddressesObserved, NodeResourcesConfigured, PodObjectsChanged, ResendReports, GetWorkers
);

/// The messages that a pod's worker receives, from the pool alone.
pub mod worker {
    use super::{
        Arc, DesiredPod, EvictPod, NodeAddressesObserved, NodeResourcesConfigured, PodObjectsChanged, PodRef,
        PodUid, RuntimeObserved, SeenPod, Verdicts, delivery, receives,
    };

    /// States what the worker shall do about its pod; a newer message replaces a waiting one.
    #[derive(Clone, Debug)]
    pub struct SyncPod {
        /// The pod's identity, also of a pod that only the runtime still has.
        pub pod: PodRef,
        /// Whether to run the pod or to end it.
        pub want: Want,
        /// The final state that the pod's status shows dates from before this kubelet ran the pod, and holds.
        pub trusts_end: bool,
    }

    /// The goal for one pod.
    #[derive(Clone, Debug)]
    pub enum Want {
        /// Run this pod.
        Run(Arc<DesiredPod>),
        /// Stop the pod and give its resources back, since its source has removed it. Holds the last known object, if
        /// any.
        Gone(Option<Arc<DesiredPod>>),
    }
    delivery!(SyncPod => (): Command, LatestPerKey, pod = |m| Some(&m.pod.uid));

    /// ProbeManager's verdicts on the worker's pod.
    #[derive(Clone, Debug)]
    pub struct PodJudged {
        /// The pod's UID.
        pub uid: PodUid,
        /// As they are now.
        pub verdicts: Verdicts,
    }
    delivery!(PodJudged => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

    /// What Pleg sees of the worker's pod.
    #[derive(Clone, Debug)]
    pub struct PodSeen {
        /// The pod's UID.
        pub uid: PodUid,
        /// As of Pleg's newest look.
        pub seen: SeenPod,
    }
    delivery!(PodSeen => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

    receives!(
        "PodWorker": SyncPod, PodSeen, RuntimeObserved, PodJudged, EvictPod, NodeAddressesObserved,
        NodeResourcesConfigured, PodObjectsChanged
    );
}
