//! Duty: states what the container runtime holds of every pod, and how the runtime itself is.
//! Receives: PodTouched, ResendObserved, GetRuntimePods, GetRuntimePod, GetHeldPods.
//! Sends: PodObserved, RuntimeObserved, RecordEvent (FailedSync).
//! State (rebuilt from): every pod's containers and sandboxes (the runtime's lists and statuses).
//! On crash: the first relist of the next incarnation is a baseline; it invents no deaths.
//! Never does: changes anything in the runtime, or lets one pod's slow answer hold up another's.
//!
//! Events (the runtime's stream, process exits, our own calls) only say "look at this pod now"; what a look
//! finds is the truth. A relist finds what no event told.

mod actor;
mod inspect;
mod log_tail;
mod metrics;
mod observe;
mod schedule;

pub use actor::{Pleg, PlegConfig, PlegDeps, Timer};
pub use metrics::PlegMetrics;
