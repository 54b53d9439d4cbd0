//! What StatusManager counts.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Handles that survive restarts.
#[derive(Clone, Debug)]
pub struct StatusMetrics {
    /// Statuses computed that differ from the one before.
    pub(crate) changes: IntCounter,
    /// Operations on checkpoints by `operation` (save, remove, load) and `outcome` (ok, failed, corrupt).
    pub(crate) checkpoints: IntCounterVec,
}

impl StatusMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            changes: IntCounter::new(
                "understudy_pod_status_changes_total",
                "Number of pod statuses that differ from the one before.",
            )?,
            checkpoints: IntCounterVec::new(
                Opts::new(
                    "understudy_pod_status_checkpoint_operations_total",
                    "Number of operations on checkpoints of pod statuses by operation and outcome.",
                ),
                &["operation", "outcome"],
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.changes.clone()))?;
        registry.register(Box::new(self.checkpoints.clone()))
    }

    pub(crate) fn checkpoint(&self, operation: &str, outcome: &str) {
        self.checkpoints.with_label_values(&[operation, outcome]).inc();
    }
}
