//! What EvictionManager receives.

use crate::facts::{DesiredPodsChanged, WorkerReported};
use crate::{delivery, receives};

/// How the message of each pod begins that ends since the node runs out of something. One that has taken more than it may
/// ends for the same reason, and is no disruption.
pub const NODE_WAS_LOW: &str = "The node was low on resource: ";

/// Say again what the node runs out of: a receiver has restarted. Answered by nothing while it has not been measured.
#[derive(Clone, Debug)]
pub struct ResendPressure;
delivery!(ResendPressure => (): Command, LatestPerKey);

receives!("EvictionManager": DesiredPodsChanged, WorkerReported, ResendPressure);
