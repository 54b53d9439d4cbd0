//! EventRecorder's metrics.

use bridge_metrics::Registry;
use prometheus::{IntCounter, IntCounterVec, Opts};

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone, Debug)]
pub struct EventMetrics {
    pub(crate) recorded: IntCounterVec,
    pub(crate) dropped: IntCounter,
    pub(crate) unsent: IntCounter,
}

impl EventMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            recorded: IntCounterVec::new(
                Opts::new("understudy_events_recorded_total", "Number of events kept by type."),
                &["type"],
            )?,
            dropped: IntCounter::new(
                "understudy_events_dropped_total",
                "Number of events dropped because their object caused too many.",
            )?,
            unsent: IntCounter::new(
                "understudy_events_unsent_total",
                "Number of events dropped because the API server refused them or was away for too long.",
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.recorded.clone()))?;
        registry.register(Box::new(self.unsent.clone()))?;
        registry.register(Box::new(self.dropped.clone()))
    }
}
