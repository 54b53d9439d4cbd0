//! What EvictionManager receives.

use crate::facts::{DesiredPods, WorkerReported};
use crate::{delivery, receives};

/// Say again what the node runs out of: a receiver has restarted. Answered by nothing while it has not been measured.
#[derive(Clone, Debug)]
pub struct ResendPressure;
delivery!(ResendPressure => (): Command, LatestPerKey);

receives!("EvictionManager": DesiredPods, WorkerReported, ResendPressure);
