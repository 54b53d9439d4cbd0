//! Duty: runs the startup, liveness and readiness probes of all pods from one queue, and says what is settled.
//! Receives: DesiredPodsChanged, NodeAddressesObserved, PodObserved, WorkerReported, ResendVerdicts, GetVerdicts.
//! Sends: ProbeVerdict to PodWorkerPool and StatusManager; ResendDesired, ResendObserved, ResendReports, ResendNode;
//!   RecordEvent.
//! State (rebuilt from): probes (desired pods, container starts); verdicts (checkpoints `probe-results/<uid>`).
//! On crash: verdicts come back from their checkpoints; streaks and runs under way begin anew, so nothing flaps.
//! Never does: restarts a container, patches a status, or takes a probe that ran late for one that failed.

mod actor;
mod checkpoint;
mod execute;
mod lanes;
mod metrics;
mod pod;
mod running;
mod schedule;
mod target;
mod texts;
mod timer;
mod verdict;

pub use actor::{ProbeManager, ProbeManagerDeps};
pub use checkpoint::{SavedPod, SavedVerdict};
pub use execute::Backends;
pub use lanes::ProbeLimits;
pub use metrics::ProbeMetrics;
pub use timer::Timer;
