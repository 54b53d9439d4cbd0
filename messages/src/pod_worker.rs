//! What PodWorkerPool receives, and what it hands to the worker of one pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::facts::{
    DesiredPod, DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeVerdict, Rejection,
    RuntimeObserved, WorkerReport, WorkerReported,
};
use crate::object_cache::PodObjectsChanged;
use crate::{PodRef, PodUid, delivery, receives};

/// Stop a pod for a reason of the node (eviction, preemption, shutdown).
#[derive(Clone, Debug)]
pub struct EvictPod {
    /// The pod's UID.
    pub uid: PodUid,
    /// Grace in seconds instead of the pod's own; only ever shortens.
    pub grace_seconds: Option<i64>,
    /// Becomes the status' reason and message.
    pub why: Rejection,
}
delivery!(EvictPod => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// Every worker's newest report.
#[derive(Clone, Debug)]
pub struct GetWorkers;
delivery!(GetWorkers => BTreeMap<PodUid, Arc<WorkerReport>>: Query, Reject);

/// Send everything about this pod to its worker again: it has restarted.
#[derive(Clone, Debug)]
pub struct ResendPod {
    /// The pod's UID.
    pub uid: PodUid,
}
delivery!(ResendPod => (): Command, LatestPerKey, pod = |m| Some(&m.uid));

/// Send every worker's newest report again: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendReports;
delivery!(ResendReports => (): Command, LatestPerKey);

receives!(
    "PodWorkerPool": DesiredPodsChanged, PodObserved, RuntimeObserved, ProbeVerdict, WorkerReported, EvictPod, ResendPod,
    NodeAddressesObserved, PodObjectsChanged, ResendReports, GetWorkers
);

/// What a pod's worker receives, from the pool alone.
pub mod worker {
    use super::{
        Arc, DesiredPod, EvictPod, NodeAddressesObserved, PodObjectsChanged, PodObserved, PodRef,
        ProbeVerdict, RuntimeObserved, delivery, receives,
    };

    /// What the worker shall do about its pod; the latest wins.
    #[derive(Clone, Debug)]
    pub struct SyncPod {
        /// Identity, also of a pod that only the runtime still knows.
        pub pod: PodRef,
        /// The pod to run, or why it has to go.
        pub want: Want,
        /// An end that the pod's status shows is from before this kubelet ran the pod, and final.
        pub trusts_end: bool,
    }

    /// The goal.
    #[derive(Clone, Debug)]
    pub enum Want {
        /// Run this.
        Run(Arc<DesiredPod>),
        /// Stop it and give everything back: it was removed from its source. The last known object, if any.
        Gone(Option<Arc<DesiredPod>>),
    }
    delivery!(SyncPod => (): Command, LatestPerKey, pod = |m| Some(&m.pod.uid));

    receives!(
        "PodWorker": SyncPod, PodObserved, RuntimeObserved, ProbeVerdict, EvictPod, NodeAddressesObserved, PodObjectsChanged
    );
}
