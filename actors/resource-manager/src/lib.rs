//! Duty: states what pods may use of the node: the tree of cgroups, one per class of service and one per pod; and keeps the
//! kubelet and the system's processes in cgroups of their own.
//! Receives: DesiredPodsChanged, EnsurePodCgroup, RemovePodCgroup.
//! Sends: ResendDesired; GetHeldPods; RecordEvent (NodeAllocatableEnforced, FailedNodeAllocatableEnforcement,
//! FailedCreatePodContainer).
//! State (rebuilt from): desired pods (they are sent again), cgroups (the kernel's own directories).
//! On crash: pods run on in their cgroups; a pod that starts waits for the next incarnation.
//! Never does: kills a process while PodWorker or the runtime still has its pod, or removes a cgroup with processes in
//! it.

mod actor;
pub mod capacity;
mod execute;
mod metrics;
mod node;
mod pod_cgroups;
mod values;

pub use actor::{ResourceManager, ResourceManagerConfig, ResourceManagerDeps, Timer};
pub use metrics::ResourceMetrics;
pub use node::{ProcessCgroups, ReservedCgroup, ReservedFor};
pub use values::PodRules;
