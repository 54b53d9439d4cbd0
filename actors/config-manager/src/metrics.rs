//! ConfigManager's metrics.

use bridge_metrics::Registry;
use prometheus::{IntCounter, IntGauge};

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone, Debug)]
pub struct ConfigMetrics {
    pub(crate) generation: IntGauge,
    pub(crate) errors: IntCounter,
}

impl ConfigMetrics {
    /// Makes the handles.
    ///
    /// # Errors
    /// A metric is defined wrongly, which would be a mistake in the source.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            generation: IntGauge::new(
                "understudy_config_generation",
                "Generation of the configuration in force: 1 since the start, one more with each change.",
            )?,
            errors: IntCounter::new(
                "understudy_config_reload_errors_total",
                "Number of changed configurations that were refused.",
            )?,
        })
    }

    /// Registers them.
    ///
    /// # Errors
    /// A metric of the same name is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.generation.clone()))?;
        registry.register(Box::new(self.errors.clone()))
    }
}
