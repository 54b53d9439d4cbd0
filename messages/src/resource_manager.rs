//! The messages that ResourceManager receives.

use std::sync::Arc;

use serde::Serialize;

use crate::facts::{DesiredPod, DesiredPodsChanged};
use crate::{PodRef, delivery, receives};

/// Asks for the pod's cgroup to exist with the values of the pod's spec. Idempotent. PodWorker asks.
#[derive(Clone, Debug)]
pub struct EnsurePodCgroup {
    /// The pod.
    pub pod: Arc<DesiredPod>,
}
delivery!(EnsurePodCgroup => Result<Arc<PodCgroup>, CgroupFailure>: Command, Wait, pod = |m| Some(&m.pod.pod_ref.uid));

/// Asks ResourceManager to remove the pod's cgroup, wherever it is, and to kill the processes left in it. PodWorker
/// asks only after the pod's containers have died. Idempotent.
#[derive(Clone, Debug)]
pub struct RemovePodCgroup {
    /// The pod.
    pub pod: PodRef,
}
delivery!(RemovePodCgroup => Result<(), CgroupFailure>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// The cgroup of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodCgroup {
    /// The cgroup's name as the runtime is given it (`cgroup_parent`).
    pub name: Arc<str>,
}

/// Why a pod's cgroup could not be made or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupFailure {
    /// The chain of causes, for people.
    pub message: String,
}

receives!("ResourceManager": DesiredPodsChanged, EnsurePodCgroup, RemovePodCgroup);
