//! Duty: removes what no pod needs any more: dead containers with their logs, dead sandboxes, log directories, links
//! to lost logs. A running pod's worker itself limits the dead instances of each container; GarbageCollector collects
//! the rest: finished pods, the limit of the whole node, and the leftovers of pods that are gone.
//! Receives: DesiredPods, PodObserved, WorkerReported, CollectNow, RemoveDeadContainers.
//! Sends: ResendDesired, ResendObserved, ResendReports, PodTouched, RecordEvent (ContainerGCFailed).
//! State (rebuilt from): desired pods, observed pods and reports (resends are asked for).
//! On crash: nothing is collected until all sources have been heard again.
//! Never does: touches a pod that its worker is ending, or the newest instance of a running pod's container.

mod actor;
mod execute;
mod plan;

pub use actor::{GarbageCollector, GarbageCollectorDeps, Timer};
pub use execute::Ways;
pub use plan::GcPolicy;
