//! Duty: knows the pods that this node shall run: merges the sources, admits or refuses, makes room for
//!   critical ones, keeps mirrors of static pods at the API server.
//! Receives: PodsChanged, ApiPodsChanged, ResendDesired, WorkerReported, RuntimeObserved, NodeObserved, PressureObserved,
//!   GetPods, GetPressure, GetStaticOf.
//! Sends: DesiredPodsChanged, MirrorPods, RecordEvent, ResendPods, GetWorkers, GetKnownStatuses, GetHeldPods,
//!   ResendObserved, ResendNode, ResendPressure, EvictPod.
//! State (rebuilt from): each source's pods (the sources list again), workers' reports (the pool is asked), who was
//!   admitted (the workers' and the runtime's pods) or refused (StatusManager is asked), what the runtime holds and can
//!   do (Pleg is asked, and sends again), the Node
//!   (NodeStatus sends it again), what the node runs out of (EvictionManager sends again).
//! On crash: until every source has been heard again, no absence means removal; admitted pods are not judged again.
//! Never does: runs or stops a pod by itself, or invents one that no source named.

mod actor;
pub mod admission;
mod decide;
mod execute;
mod known;
mod merge;
mod metrics;
pub mod mirror;
mod same;

pub use actor::{PodManager, PodManagerConfig, PodManagerDeps};
pub use metrics::PodManagerMetrics;
