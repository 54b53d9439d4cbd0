//! Upstream's metrics of evictions (row 22.1).

use std::time::Duration;

use bridge_metrics::Registry;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

use crate::signal::Signal;

/// Handles of the metrics; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct EvictionMetrics {
    evictions: IntCounterVec,
    age: HistogramVec,
}

impl EvictionMetrics {
    /// Fresh metrics, all empty.
    ///
    /// # Errors
    /// A metric's name or labels are invalid, which only a mistake in the source can cause.
    pub fn new() -> prometheus::Result<Self> {
        let evictions = Opts::new("kubelet_evictions", "[ALPHA] Number of pods evicted, by eviction signal.");
        let age = HistogramOpts::new(
            "kubelet_eviction_stats_age_seconds",
            "[ALPHA] Age of the figures by which a pod is evicted, by eviction signal, in seconds.",
        );
        Ok(Self {
            evictions: IntCounterVec::new(evictions, &["eviction_signal"])?,
            age: HistogramVec::new(age, &["eviction_signal"])?,
        })
    }

    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.evictions.clone()))?;
        registry.register(Box::new(self.age.clone()))
    }

    pub(crate) fn evicted(&self, signal: &str) {
        self.evictions.with_label_values(&[signal]).inc();
    }

    pub(crate) fn used(&self, signal: Signal, age: Duration) {
        self.age.with_label_values(&[signal.as_str()]).observe(age.as_secs_f64());
    }
}
