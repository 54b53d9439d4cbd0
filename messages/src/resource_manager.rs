//! What ResourceManager receives.

use std::sync::Arc;

use serde::Serialize;

use crate::facts::{DesiredPod, DesiredPodsChanged};
use crate::{PodRef, delivery, receives};

/// Have the pod's cgroup there with the values that its spec asks for. Idempotent.
#[derive(Clone, Debug)]
pub struct EnsurePodCgroup {
    /// The pod.
    pub pod: Arc<DesiredPod>,
}
delivery!(EnsurePodCgroup => Result<Arc<PodCgroup>, CgroupFailure>: Command, Wait, pod = |m| Some(&m.pod.pod_ref.uid));

/// Remove the pod's cgroup, wherever it is, and kill what is left in it. Only after its containers have died.
/// Idempotent.
#[derive(Clone, Debug)]
pub struct RemovePodCgroup {
    /// The pod.
    pub pod: PodRef,
}
delivery!(RemovePodCgroup => Result<(), CgroupFailure>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// The cgroup of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodCgroup {
    /// As the runtime is told (`cgroup_parent`).
    pub name: Arc<str>,
}

/// Why a pod's cgroup cannot be had, or not be removed; for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupFailure {
    /// The chain of causes.
    pub message: String,
}

receives!("ResourceManager": DesiredPodsChanged, EnsurePodCgroup, RemovePodCgroup);
