//! The messages that EvictionManager receives, and words that it shares.

use std::sync::Arc;

use crate::facts::{DesiredPodsChanged, WorkerReported};
use crate::{Key, delivery, receives};

/// How the status message of a pod begins that is evicted because the node runs out of a resource. A pod that uses more
/// than its own limits allow is evicted with another message, and does not count as disrupted.
pub const NODE_WAS_LOW: &str = "The node was low on resource: ";

/// Asks EvictionManager to send [`PressureObserved`](crate::facts::PressureObserved) again, since a receiver has
/// restarted. EvictionManager sends nothing before it has measured.
#[derive(Clone, Debug)]
pub struct ResendPressure {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendPressure => (): Command, LatestPerKey, key = |m| Key::Name(Arc::from(m.receiver)));

receives!("EvictionManager": DesiredPodsChanged, WorkerReported, ResendPressure);
