//! Duty: computes every pod's status from facts; the single writer of pod status, here and at the API server; deletes pods
//!   there that are over here.
//! Receives: DesiredPodsChanged, MirrorPods, PodObserved, RuntimeObserved, ProbeVerdict, WorkerReported, PodsQuarantined,
//!   NodeAddressesObserved, GetPodStatus, GetPodStatuses, GetKnownStatuses.
//! Sends: RecordEvent, ResendDesired, ResendReports, ResendObserved, ResendVerdicts, ResendNode, PodTouched.
//! State (rebuilt from): facts (their writers resend), statuses (a checkpoint per pod, else computed anew), what the
//!   API server has been told (it tells it with the pods).
//! On crash: asks wait until the checkpoints have been read; Ready and restart counts go on as they were.
//! Never does: starts, stops or probes a container, or concludes an end that worker and runtime have not both told.

mod actor;
mod addresses;
mod checkpoint;
mod compute;
mod conditions;
mod container_state;
mod containers;
mod effective;
mod facts;
mod finish;
mod in_place;
mod merge;
mod metrics;
mod phase;
mod progress;
#[cfg(test)]
mod props;
mod publish;
mod restore;
#[cfg(test)]
mod scenes;
mod spec;
mod status_cache;

pub use actor::{StatusManager, StatusManagerDeps, Timer};
pub use compute::compute;
pub use facts::{NodeFacts, PodFacts};
pub use merge::PhaseVerdict;
pub use metrics::StatusMetrics;
pub use phase::Phase;
pub use restore::{UnusableCheckpoint, decode as decode_checkpoint};
