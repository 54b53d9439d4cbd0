//! Duty: takes back what no pod needs any more: dead containers with their logs, dead sandboxes, log directories, links
//! to lost logs. A running pod's worker keeps each container's dead instances at their number itself; here the rest is
//! seen to: finished pods, the limit of the whole node, and what was left of pods that are gone.
//! Receives: DesiredPodsChanged, PodObserved, WorkerReported, CollectNow, RemoveDeadContainers.
//! Sends: ResendDesired, ResendObserved, ResendReports, PodTouched, RecordEvent (ContainerGCFailed).
//! State (rebuilt from): desired pods, observed pods and reports (resends are asked for).
//! A removal of one pod's garbage that hangs holds up that pod's alone; places for removals are shared by namespaces.
//! On crash: nothing is collected until PodManager, Pleg and PodWorkerPool have said all again.
//! Never does: touches a pod that its worker is ending, or the newest instance of a running pod's container.

mod actor;
mod execute;
mod plan;
mod removals;

pub use actor::{GarbageCollector, GarbageCollectorDeps, Timer};
pub use execute::Backends;
pub use plan::GcPolicy;
