//! Duty: takes back what no pod needs any more: dead sandboxes, log directories, links to lost logs.
//! Receives: DesiredPods, PodObserved, WorkerReported, CollectNow.
//! Sends: nothing.
//! State (rebuilt from): desired pods, observed pods and reports (everybody's next fact; resends are asked for).
//! On crash: nothing is collected until all sources have been heard again.
//! Never does: touches anything of a pod that has a worker, beyond its superseded dead sandboxes.

mod actor;
mod plan;

pub use actor::{GarbageCollector, GarbageCollectorDeps, Timer};
