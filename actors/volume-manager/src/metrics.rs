//! Upstream's metrics of volumes (row 22.1).

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_metrics::Registry;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts};

use crate::selinux::{Judged, What};

const OPERATION_SECONDS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The kind of an operation on one volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A volume is set up.
    Mount,
    /// A volume is undone.
    Unmount,
    /// A block device is set up.
    Map,
    /// A block device is undone.
    Unmap,
    /// A volume grows while a pod has it.
    Resize,
}

impl Operation {
    /// Upstream's name.
    fn name(self) -> &'static str {
        match self {
            Self::Mount => "volume_mount",
            Self::Unmount => "volume_unmount",
            Self::Map => "map_volume",
            Self::Unmap => "unmap_volume",
            Self::Resize => "volume_fs_resize",
        }
    }
}

/// The operation on one volume, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The operation.
    pub operation: Operation,
    /// The volume's plugin.
    pub plugin: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How long it took.
    pub took: Duration,
}

/// The metrics' handles; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct VolumeMetrics {
    operations: HistogramVec,
    measures: HistogramVec,
    volumes: IntGaugeVec,
    orphans: IntGauge,
    orphan_errors: IntGauge,
    reconstructed: IntCounter,
    reconstruct_errors: IntCounter,
    labels: Labels,
}

impl VolumeMetrics {
    /// New metrics, all empty.
    pub fn new() -> Self {
        let constant = "name and labels are constants";
        let operations =
            HistogramOpts::new("storage_operation_duration_seconds", "[ALPHA] Storage operation duration")
                .buckets(OPERATION_SECONDS.to_vec());
        let labels = ["volume_plugin", "operation_name", "status", "migrated"];
        let volumes =
            Opts::new("volume_manager_total_volumes", "[ALPHA] Number of volumes in Volume Manager");
        let measures = HistogramOpts::new(
            "kubelet_volume_metric_collection_duration_seconds",
            "[ALPHA] Seconds that a look at one volume took, by the way in which its files are counted",
        );
        let gauge = |name: &str, help: &str| IntGauge::new(name, help).expect(constant);
        let counter = |name: &str, help: &str| IntCounter::new(name, help).expect(constant);
        Self {
            operations: HistogramVec::new(operations, &labels).expect(constant),
            measures: HistogramVec::new(measures, &["metric_source"]).expect(constant),
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
            labels: Labels::new(),
        }
    }

    /// Registers the metrics with a registry.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.operations.clone()))?;
        registry.register(Box::new(self.measures.clone()))?;
        registry.register(Box::new(self.volumes.clone()))?;
        registry.register(Box::new(self.orphans.clone()))?;
        registry.register(Box::new(self.orphan_errors.clone()))?;
        registry.register(Box::new(self.reconstructed.clone()))?;
        registry.register(Box::new(self.reconstruct_errors.clone()))?;
        self.labels.all().into_iter().try_for_each(|gauge| registry.register(Box::new(gauge.clone())))
    }

    pub(crate) fn operated(&self, plugin: &str, operation: Operation, ok: bool, took: Duration) {
        let status = if ok { "success" } else { "fail-unknown" };
        let labels = [plugin, operation.name(), status, "false"];
        self.operations.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Counts what was judged of a volume's SELinux label.
    pub(crate) fn labelled(&self, judged: &Judged) {
        let Judged { what, is_error, plugin, mode } = judged;
        let of_volume = [plugin.as_str(), *mode];
        let Labels { pods, volumes, admitted, .. } = &self.labels;
        let gauge =
            |[errors, warnings]: &[IntGaugeVec; 2]| if *is_error { errors.clone() } else { warnings.clone() };
        match what {
            What::PodMismatch => gauge(pods).with_label_values(&[*mode]).inc(),
            What::VolumeMismatch => gauge(volumes).with_label_values(&of_volume).inc(),
            What::Admitted => admitted.with_label_values(&of_volume).inc(),
        }
    }

    /// Observes that a volume was measured, by counting its files (`du`) or by this CSI driver.
    pub(crate) fn measured(&self, source: &str, took: Duration) {
        self.measures.with_label_values(&[source]).observe(took.as_secs_f64());
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

/// Upstream's metrics of volumes' SELinux labels (row 10.24): of each mismatch those that refuse a pod, and those that would.
#[derive(Clone, Debug)]
struct Labels {
    /// Never counted, as in practice upstream's: the label of a container can be told, or there is none.
    containers: [IntGaugeVec; 2],
    pods: [IntGaugeVec; 2],
    volumes: [IntGaugeVec; 2],
    admitted: IntGaugeVec,
}

impl Labels {
    fn new() -> Self {
        let gauge = |what: &str, help: &str, labels: &[&str]| {
            let opts = Opts::new(format!("volume_manager_selinux_{what}_total"), format!("[ALPHA] {help}"));
            IntGaugeVec::new(opts, labels).expect("name and labels are constants")
        };
        let both = |what: &str, help: &str, labels: &[&str]| {
            let refused = format!("{help}; the pod is not started and tried again");
            let would_be = format!("{help}, which refuses no pod while only some access modes are labelled");
            [
                gauge(&format!("{what}_errors"), &refused, labels),
                gauge(&format!("{what}_warnings"), &would_be, labels),
            ]
        };
        let (mode, volume) = (["access_mode"], ["volume_plugin", "access_mode"]);
        Self {
            containers: both("container", "Containers whose SELinux label cannot be told", &mode),
            pods: both(
                "pod_context_mismatch",
                "Pods whose containers use a volume with different labels",
                &mode,
            ),
            volumes: both(
                "volume_context_mismatch",
                "Pods that use a volume which other pods have with another label",
                &volume,
            ),
            admitted: gauge("volumes_admitted", "Volumes that can be mounted with an SELinux label", &volume),
        }
    }

    fn all(&self) -> Vec<&IntGaugeVec> {
        let pairs = [&self.containers, &self.pods, &self.volumes];
        pairs.into_iter().flatten().chain([&self.admitted]).collect()
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
