//! **Duty.** Runs the startup, liveness and readiness probes of all pods from one queue, and says what is settled.
//! **Receives.** DesiredPodsChanged, PodObserved, WorkerReported, ResendVerdicts, GetVerdicts.
//! **Sends.** ProbeVerdict to PodWorkerPool and StatusManager; ResendDesired, ResendObserved, ResendReports; RecordEvent.
//! **State (rebuilt from).** Probes (desired pods, container starts); verdicts (checkpoints `probe-results/<uid>`).
//! **On crash.** Verdicts come back from their checkpoints; streaks and runs under way begin anew, so nothing flaps.
//! **Never does.** Restarts a container, patches a status, or takes a late probe for a failed one.

mod actor;
mod execute;
mod flying;
mod lanes;
mod metrics;
mod pod;
mod saved;
mod schedule;
mod target;
mod texts;
mod timer;
mod verdict;

pub use actor::{ProbeManager, ProbeManagerDeps};
pub use execute::Ways;
pub use lanes::ProbeLimits;
pub use metrics::ProbeMetrics;
pub use timer::Timer;
