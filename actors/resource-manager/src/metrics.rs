//! ResourceManager's metrics, under upstream's names (row 22.1).

use std::time::Duration;

use bridge_metrics::Registry;
use bridge_node::cgroups::CgroupVersion;
use prometheus::{HistogramOpts, HistogramVec, IntGauge};

/// The operations on cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A cgroup was made.
    Create,
    /// A cgroup that existed got its values.
    Update,
    /// A cgroup was removed.
    Destroy,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Destroy => "destroy",
        }
    }
}

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone)]
pub struct ResourceMetrics {
    operations: HistogramVec,
    version: IntGauge,
}

impl ResourceMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        let operations = HistogramOpts::new(
            "kubelet_cgroup_manager_duration_seconds",
            "[ALPHA] Duration in seconds for cgroup manager operations. Broken down by method.",
        );
        Ok(Self {
            operations: HistogramVec::new(operations, &["operation_type"])?,
            version: IntGauge::new("kubelet_cgroup_version", "[ALPHA] cgroup version on the hosts.")?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.operations.clone()))?;
        registry.register(Box::new(self.version.clone()))
    }

    pub(crate) fn done(&self, operation: Operation, took: Duration) {
        self.operations.with_label_values(&[operation.as_str()]).observe(took.as_secs_f64());
    }

    pub(crate) fn set_version(&self, version: CgroupVersion) {
        self.version.set(version.number());
    }
}
