//! Probes in flight.

use std::sync::Arc;

use supervision::EffectId;

use crate::lanes::Lane;

/// A probe in flight.
#[derive(Debug)]
pub struct RunningProbe {
    /// The effect that waits for its answer.
    pub effect: EffectId,
    /// The lane that it holds.
    pub lane: Lane,
    /// The container instance that it asks.
    pub container_id: Arc<str>,
}
