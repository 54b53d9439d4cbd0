//! Metric handles of the calls to the runtime; names and buckets are upstream's.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, exponential_buckets};

use super::rpc::Rpc;

/// Counts and durations of every call to the runtime. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct CriMetrics {
    operations: IntCounterVec,
    errors: IntCounterVec,
    duration: HistogramVec,
    sandbox_duration: HistogramVec,
    sandbox_errors: IntCounterVec,
}

impl CriMetrics {
    /// Makes the handles; the wiring registers [`collectors`](Self::collectors) once.
    ///
    /// # Errors
    /// Only when a metric's name or label were malformed.
    pub fn new() -> prometheus::Result<Self> {
        let counter =
            |name: &str, help: &str, label: &str| IntCounterVec::new(Opts::new(name, help), &[label]);
        Ok(Self {
            operations: counter(
                "kubelet_runtime_operations_total",
                "[ALPHA] Calls to the container runtime, by type.",
                "operation_type",
            )?,
            errors: counter(
                "kubelet_runtime_operations_errors_total",
                "[ALPHA] Calls to the container runtime that failed, by type.",
                "operation_type",
            )?,
            duration: HistogramVec::new(
                HistogramOpts::new(
                    "kubelet_runtime_operations_duration_seconds",
                    "[ALPHA] Seconds that calls to the container runtime took, by type.",
                )
                .buckets(exponential_buckets(0.005, 2.5, 14)?),
                &["operation_type"],
            )?,
            sandbox_duration: HistogramVec::new(
                HistogramOpts::new(
                    "kubelet_run_podsandbox_duration_seconds",
                    "[ALPHA] Seconds that running a sandbox took, by runtime handler.",
                ),
                &["runtime_handler"],
            )?,
            sandbox_errors: counter(
                "kubelet_run_podsandbox_errors_total",
                "[ALPHA] Sandboxes that could not be run, by runtime handler.",
                "runtime_handler",
            )?,
        })
    }

    /// The collectors to register.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![
            Box::new(self.operations.clone()),
            Box::new(self.errors.clone()),
            Box::new(self.duration.clone()),
            Box::new(self.sandbox_duration.clone()),
            Box::new(self.sandbox_errors.clone()),
        ]
    }

    /// The number of calls of one RPC so far, and of the failed ones among them.
    #[must_use]
    pub fn counted(&self, rpc: Rpc) -> (u64, u64) {
        let label = [rpc.operation_type()];
        (self.operations.with_label_values(&label).get(), self.errors.with_label_values(&label).get())
    }

    pub(crate) fn observe(&self, rpc: Rpc, took: Duration, failed: bool) {
        let label = [rpc.operation_type()];
        self.operations.with_label_values(&label).inc();
        self.duration.with_label_values(&label).observe(took.as_secs_f64());
        if failed {
            self.errors.with_label_values(&label).inc();
        }
    }

    pub(crate) fn observe_sandbox(&self, handler: &str, took: Duration, failed: bool) {
        self.sandbox_duration.with_label_values(&[handler]).observe(took.as_secs_f64());
        if failed {
            self.sandbox_errors.with_label_values(&[handler]).inc();
        }
    }
}
