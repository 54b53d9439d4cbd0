//! What ProbeManager receives.

use crate::facts::{DesiredPodsChanged, PodObserved, ProbeVerdict, WorkerReported};
use crate::{delivery, receives};

/// Send every verdict again: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendVerdicts;
delivery!(ResendVerdicts => (): Command, LatestPerKey);

/// All verdicts now.
#[derive(Clone, Debug)]
pub struct GetVerdicts;
delivery!(GetVerdicts => Vec<ProbeVerdict>: Query, Reject);

receives!("ProbeManager": DesiredPodsChanged, PodObserved, WorkerReported, ResendVerdicts, GetVerdicts);
