//! Duty: knows the pods that this node shall run: merges the sources, admits or refuses, makes room for
//!   critical ones, keeps mirrors of static pods at the API server.
//! Receives: PodsChanged, ApiPodsChanged, ResendDesired, WorkerReported, RuntimeObserved, NodeObserved, PressureObserved,
//!   NodeResourcesConfigured, GetPods, GetPressure, GetStaticOf.
//! Sends: DesiredPodsChanged, MirrorPods, RecordEvent, ResendPods, ResendReports, GetWorkers, GetKnownStatuses, GetHeldPods,
//!   ResendObserved, ResendNode, ResendPressure, ResendConfiguration, EvictPod.
//! State (rebuilt from): each source's pods (the sources list again); workers' reports (the pool is asked); which
//!   pods were admitted (the workers' and the runtime's pods) or refused (StatusManager is asked); which pods the
//!   runtime holds, and its abilities (Pleg is asked, and sends again); the Node (NodeStatus sends again); the node's
//!   pressure (EvictionManager sends again); changed settings (ConfigManager is asked).
//! On crash: until every source has been heard again, no absent pod counts as removed; admitted pods are not judged
//!   again.
//! Never does: runs or stops a pod by itself, or invents a pod that no source named.

mod actor;
pub mod admission;
mod decide;
mod execute;
mod merge;
mod metrics;
pub mod mirror;
mod reported;
mod same;

pub use actor::{PodManager, PodManagerConfig, PodManagerDeps};
pub use metrics::PodManagerMetrics;
