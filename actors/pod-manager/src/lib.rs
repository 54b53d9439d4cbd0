//! Duty: knows the pods that this node shall run: merges the sources, admits or refuses.
//! Receives: PodsChanged, ResendDesired, WorkerReported, GetPods.
//! Sends: DesiredPods, RecordEvent, ResendPods, GetWorkers.
//! State (rebuilt from): each source's pods (the sources list again), workers' reports (the pool is asked).
//! On crash: until every source has been heard again, no absence means removal.
//! Never does: runs or stops a pod, or invents one that no source named.

mod actor;
mod merge;
mod metrics;

pub use actor::{PodManager, PodManagerConfig, PodManagerDeps};
pub use metrics::PodManagerMetrics;
