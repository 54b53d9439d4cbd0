//! The messages that EvictionManager receives, and words that it shares.

use crate::facts::{DesiredPodsChanged, WorkerReported};
use crate::{delivery, receives};

/// How the status message of a pod begins that is evicted because the node runs out of a resource. A pod that uses more
/// than its own limits allow is evicted with another message, and does not count as disrupted.
pub const NODE_WAS_LOW: &str = "The node was low on resource: ";

/// Asks EvictionManager to send [`PressureObserved`](crate::facts::PressureObserved) again, since a receiver has
/// restarted. EvictionManager sends nothing before it has measured.
#[derive(Clone, Debug)]
pub struct ResendPressure;
delivery!(ResendPressure => (): Command, LatestPerKey);

receives!("EvictionManager": DesiredPodsChanged, WorkerReported, ResendPressure);
