//! Probes in flight.

use std::sync::Arc;

use supervision::EffectId;

use crate::lanes::Lane;

/// One of them.
#[derive(Debug)]
pub struct Flying {
    /// What waits for its answer.
    pub effect: EffectId,
    /// The lane it holds.
    pub lane: Lane,
    /// The instance that is asked.
    pub container_id: Arc<str>,
}
