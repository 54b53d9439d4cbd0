//! Duty: keeps the node from running out of memory, disk and processes: measures, reclaims what no pod needs, and ends
//!   one pod after the other. Pods that take more of the local disk than their limits allow end, too.
//! Receives: DesiredPodsChanged, WorkerReported, ResendPressure, EvictionConfigured.
//! Sends: PressureObserved, EvictPod, RecordEvent (EvictionThresholdMet, ExceededGracePeriod), RecordAnnotatedEvent
//!   (Evicted), GetPressure, RemoveDeadContainers, DeleteUnusedImages, ResendDesired, ResendReports,
//!   ResendConfiguration.
//! State (rebuilt from): the node's figures (cgroups, file systems, kernel), the pressure last told (PodManager is
//!   asked), pods and their workers (resends are asked for), changed settings (ConfigManager is asked).
//! On crash: pressure stays as it was told until the node has been measured again; a pod that is being evicted is found
//!   again and waited for again; grace periods of soft thresholds begin anew, and pods that were left out for not ending in
//!   their time are chosen as others are.
//! Never does: ends a critical pod, or withdraws a pressure that it has not measured.

mod actor;
mod candidates;
mod execute;
mod file_systems;
mod limits;
mod local_storage;
mod message;
mod metrics;
mod observation;
mod rank;
mod rounds;
mod signal;
pub mod threshold;
mod usage;
mod watch;

pub use actor::{EvictionConfig, EvictionManager, EvictionManagerDeps, Timer};
pub use execute::Backends;
pub use metrics::EvictionMetrics;
pub use rounds::Lane;
pub use signal::Signal;
pub use threshold::{Threshold, ThresholdError, Thresholds};
