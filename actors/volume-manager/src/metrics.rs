//! Upstream's metrics of volumes (row 22.1).

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_metrics::Registry;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts};

const OPERATION_SECONDS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The kind of an operation on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Mount,
    Unmount,
}

/// The metrics' handles; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    operations: HistogramVec,
    measurements: HistogramVec,
    volumes: IntGaugeVec,
    orphans: IntGauge,
    orphan_errors: IntGauge,
    reconstructed: IntCounter,
    reconstruct_errors: IntCounter,
}

impl VolumeMetrics {
    /// New metrics, all empty.
    pub fn new() -> Self {
        let constant = "name and labels are constants";
        let operations =
            HistogramOpts::new("storage_operation_duration_seconds", "[ALPHA] Storage operation duration")
                .buckets(OPERATION_SECONDS.to_vec());
        let labels = ["volume_plugin", "operation_name", "status", "migrated"];
        let measurements = HistogramOpts::new(
            "kubelet_volume_metric_collection_duration_seconds",
            "[ALPHA] Seconds that a look at one volume took, by the way in which its files are counted",
        );
        let volumes =
            Opts::new("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager");
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect(constant);
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect(constant);
        Self {
            operations: HistogramVec::new(operations, &labels).expect(constant),
            measurements: HistogramVec::new(measurements, &["metric_source"]).expect(constant),
            volumes: IntGaugeVec::new(volumes, &["plugin_name", "state"]).expect(constant),
            orphans: gauge(
                "kubelet_orphan_pod_cleaned_volumes",
                "[ALPHA] The total number of orphaned Pods whose volumes were cleaned in the last periodic sweep.",
            ),
            orphan_errors: gauge(
                "kubelet_orphan_pod_cleaned_volumes_errors",
                "[ALPHA] The number of orphaned Pods whose volumes failed to be cleaned in the last periodic sweep.",
            ),
            reconstructed: counter(
                "reconstruct_volume_operations_total",
                "[ALPHA] Volumes found on disk at the start, whether or not they could be told.",
            ),
            reconstruct_errors: counter(
                "reconstruct_volume_operations_errors_total",
                "[ALPHA] Looks at the disk at the start that failed.",
            ),
        }
    }

    /// Registers the metrics with a registry.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.operations.clone()))?;
        registry.register(Box::new(self.measurements.clone()))?;
        registry.register(Box::new(self.volumes.clone()))?;
        registry.register(Box::new(self.orphans.clone()))?;
        registry.register(Box::new(self.orphan_errors.clone()))?;
        registry.register(Box::new(self.reconstructed.clone()))?;
        registry.register(Box::new(self.reconstruct_errors.clone()))
    }

    pub(crate) fn operated(&self, plugin: &str, operation: Operation, ok: bool, took: Duration) {
        let operation = match operation {
            Operation::Mount => "volume_mount",
            Operation::Unmount => "volume_unmount",
        };
        let status = if ok { "success" } else { "fail-unknown" };
        self.operations.with_label_values(&[plugin, operation, status, "false"]).observe(took.as_secs_f64());
    }

    /// The files of a volume were counted.
    pub(crate) fn measured(&self, took: Duration) {
        self.measurements.with_label_values(&["du"]).observe(took.as_secs_f64());
    }

    /// Sets how many volumes there are, by state (desired or actual) and plugin.
    pub(crate) fn volumes(&self, counts: &BTreeMap<(&'static str, String), i64>) {
        self.volumes.reset();
        for ((state, plugin), count) in counts {
            self.volumes.with_label_values(&[plugin.as_str(), *state]).set(*count);
        }
    }

    /// The orphans that the last sweep has found, whatever became of them, and those among them whose removal has failed:
    /// upstream counts in the same way, and the help is upstream's too.
    pub(crate) fn swept(&self, orphans: usize, failing: usize) {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.orphans.set(count(orphans));
        self.orphan_errors.set(count(failing));
    }

    pub(crate) fn reconstructed(&self, volumes: usize) {
        self.reconstructed.inc_by(u64::try_from(volumes).unwrap_or(0));
    }

    pub(crate) fn not_reconstructed(&self) {
        self.reconstructed.inc();
        self.reconstruct_errors.inc();
    }
}

impl Default for VolumeMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_are_gone_are_not_counted_on() {
        let (metrics, registry) = (VolumeMetrics::new(), Registry::new());
        metrics.register(&registry).expect("the registry is empty");
        let series = || {
            let families = registry.gather();
            let volumes = families.iter().find(|family| family.name() == "volume_manager_total_volumes");
            volumes.map_or(0, |family| family.get_metric().len())
        };
        metrics.volumes(&BTreeMap::from([(("actual_state_of_world", "p".to_owned()), 2)]));
        assert_eq!(series(), 1);
        metrics.volumes(&BTreeMap::new());
        assert_eq!(series(), 0);
    }
}
