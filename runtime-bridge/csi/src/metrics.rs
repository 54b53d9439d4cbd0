//! The metric handle of calls to drivers; name, labels and buckets are upstream's.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec};

use crate::error::CsiError;
use crate::rpc::Rpc;

/// Counts and durations of every call to a driver. Cheap to clone; clones count together.
#[derive(Clone, Debug)]
pub struct CsiMetrics {
    operations: HistogramVec,
}

impl CsiMetrics {
    /// Makes the handle; the wiring registers [`collectors`](Self::collectors) once.
    ///
    /// # Errors
    /// Only when a metric's name or label were malformed.
    pub fn new() -> prometheus::Result<Self> {
        let help = "[ALPHA] Seconds that calls to CSI drivers took, by gRPC status.";
        let buckets = vec![0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
        let options = HistogramOpts::new("csi_operations_seconds", help).buckets(buckets);
        let labels = ["driver_name", "method_name", "grpc_status_code", "migrated"];
        Ok(Self { operations: HistogramVec::new(options, &labels)? })
    }

    /// The collectors to register.
    #[must_use]
    pub fn collectors(&self) -> Vec<Box<dyn Collector>> {
        vec![Box::new(self.operations.clone())]
    }

    /// The number of calls with this outcome (`OK` or a code) so far.
    #[must_use]
    pub fn counted(&self, driver: &str, rpc: Rpc, code: &str) -> u64 {
        self.operations.with_label_values(&[driver, rpc.method(), code, "false"]).get_sample_count()
    }

    pub(crate) fn observe(&self, driver: &str, rpc: Rpc, took: Duration, failure: Option<&CsiError>) {
        let code = failure.map_or_else(|| "OK".to_owned(), CsiError::code_label);
        let labels = [driver, rpc.method(), code.as_str(), "false"];
        self.operations.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
