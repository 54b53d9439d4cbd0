//! StatusManager's metrics.

use bridge_metrics::Registry;
use prometheus::{IntCounter, IntCounterVec, Opts};

use crate::publish::Outcome;

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone, Debug)]
pub struct StatusMetrics {
    /// Statuses computed that differ from the one before.
    pub(crate) changes: IntCounter,
    /// Operations on checkpoints by `operation` (save, remove, load) and `outcome` (ok, failed, corrupt).
    pub(crate) checkpoints: IntCounterVec,
    /// Calls to the API server by `outcome` (patched, deleted, gone, failed).
    pub(crate) calls: IntCounterVec,
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
            calls: IntCounterVec::new(
                Opts::new(
                    "understudy_pod_status_calls_total",
                    "Number of calls that tell the API server of pods by outcome.",
                ),
                &["outcome"],
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.changes.clone()))?;
        registry.register(Box::new(self.calls.clone()))?;
        registry.register(Box::new(self.checkpoints.clone()))
    }

    pub(crate) fn published(&self, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Patched(_) => "patched",
            Outcome::Deleted => "deleted",
            Outcome::Gone => "gone",
            Outcome::Failed(_) => "failed",
        };
        self.calls.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn checkpoint(&self, operation: &str, outcome: &str) {
        self.checkpoints.with_label_values(&[operation, outcome]).inc();
    }
}
