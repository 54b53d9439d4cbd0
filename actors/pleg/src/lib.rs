//! Duty: tells what the container runtime holds of every pod, and the health of the runtime itself.
//! Receives: PodTouched, ResendObserved, GetRuntimePods, GetRuntimePod, GetHeldPods.
//! Sends: PodObserved, RuntimeObserved, RecordEvent (FailedSync).
//! State (rebuilt from): every pod's containers and sandboxes (the runtime's lists and statuses).
//! On crash: the first relist of the next incarnation is a baseline; it invents no deaths.
//! Never does: changes anything in the runtime, or lets one pod's slow look delay another's.
//!
//! Events (the runtime's stream, process exits, our own calls) only cause a look at their pod; the pod's state is what
//! the look finds. A relist finds changes without an event.

mod actor;
mod inspect;
mod log_tail;
mod metrics;
mod observe;
mod schedule;
mod undead;

pub use actor::{Pleg, PlegConfig, PlegDeps, Timer};
pub use metrics::PlegMetrics;
