//! Duty: states what pods may use of the node: the tree of cgroups, one per class of service and one per pod.
//! Receives: DesiredPods, EnsurePodCgroup, RemovePodCgroup.
//! Sends: nothing.
//! State (rebuilt from): desired pods (they are sent again), cgroups (the kernel's own directories).
//! On crash: pods run on in their cgroups; one that starts waits for the next incarnation.
//! Never does: kills a process, or removes a cgroup with processes in it.

mod actor;

pub use actor::{ResourceManager, ResourceManagerDeps, Timer};
