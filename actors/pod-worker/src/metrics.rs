//! Metrics of the pool and its workers; names, labels and buckets are upstream's (row 22.1).

use bridge_metrics::Registry;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts, exponential_buckets,
};

/// Buckets of the time until a pod runs, in seconds.
const START_BUCKETS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// The metrics' handles. Cheap to clone; clones count into the same metrics, which outlive incarnations.
#[derive(Clone, Debug)]
pub struct PodWorkerMetrics {
    /// Seconds of one operation of a worker, by type of operation.
    pub worker_seconds: HistogramVec,
    /// Seconds from the first sight of a pod to its worker's first sync.
    pub worker_start_seconds: Histogram,
    /// Seconds from the first sight of a pod until its containers run.
    pub pod_start_seconds: Histogram,
    /// Sandboxes that the runtime was asked to create.
    pub started_pods: IntCounter,
    /// Sandboxes that could not be created.
    pub started_pods_errors: IntCounter,
    /// Containers that were to be started, by type.
    pub started_containers: IntCounterVec,
    /// Containers that could not be started, by type and waiting reason.
    pub started_containers_errors: IntCounterVec,
    /// Image volumes of containers that were to be created.
    pub image_volumes_requested: IntCounter,
    /// Mounts of image volumes that the runtime has made.
    pub image_volumes_mounted: IntCounter,
    /// Mounts of image volumes of containers that the runtime could not create, since one of them failed.
    pub image_volumes_errors: IntCounter,
    /// Workers, by lifecycle, whether their pod is desired, and whether it is static.
    pub working_pods: IntGaugeVec,
    /// Pods that came back under the same UID, by whether they are static.
    pub restarted_pods: IntCounterVec,
    /// Pods that the runtime held and no source knew.
    pub orphaned_pods: IntCounter,
    /// Regular containers per started pod.
    pub containers_per_pod: Histogram,
    /// HTTPS hooks that were repeated in plain HTTP.
    pub hook_http_fallbacks: IntCounter,
    /// Sleeping hooks that were cut off by the end of the grace period.
    pub hook_sleeps_cut: IntCounter,
}

impl PodWorkerMetrics {
    /// New metrics, all empty.
    ///
    /// # Errors
    /// A name or label is malformed, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        let counter = |name: &str, help: &str| IntCounter::new(name, help);
        let counters =
            |name: &str, help: &str, labels: &[&str]| IntCounterVec::new(Opts::new(name, help), labels);
        let seconds = |name: &str, help: &str, buckets: Option<Vec<f64>>| {
            let options = HistogramOpts::new(name, help);
            Histogram::with_opts(match buckets {
                Some(buckets) => options.buckets(buckets),
                None => options,
            })
        };
        Ok(Self {
            worker_seconds: HistogramVec::new(
                HistogramOpts::new(
                    "kubelet_pod_worker_duration_seconds",
                    "[ALPHA] Seconds that one operation on a pod took, by type.",
                ),
                &["operation_type"],
            )?,
            worker_start_seconds: seconds(
                "kubelet_pod_worker_start_duration_seconds",
                "[ALPHA] Seconds from seeing a pod to starting its worker.",
                None,
            )?,
            pod_start_seconds: seconds(
                "kubelet_pod_start_duration_seconds",
                "[ALPHA] Seconds from seeing a pod to it running.",
                Some(START_BUCKETS.to_vec()),
            )?,
            started_pods: counter("kubelet_started_pods_total", "[ALPHA] Pods started.")?,
            started_pods_errors: counter(
                "kubelet_started_pods_errors_total",
                "[ALPHA] Pods that did not start.",
            )?,
            started_containers: counters(
                "kubelet_started_containers_total",
                "[ALPHA] Containers started, by type.",
                &["container_type"],
            )?,
            started_containers_errors: counters(
                "kubelet_started_containers_errors_total",
                "[ALPHA] Containers that did not start, by type and reason.",
                &["container_type", "code"],
            )?,
            image_volumes_requested: counter(
                "kubelet_image_volume_requested_total",
                "[BETA] Image volumes that were asked for.",
            )?,
            image_volumes_mounted: counter(
                "kubelet_image_volume_mounted_succeed_total",
                "[BETA] Image volumes that were mounted.",
            )?,
            image_volumes_errors: counter(
                "kubelet_image_volume_mounted_errors_total",
                "[BETA] Image volumes that could not be mounted.",
            )?,
            working_pods: IntGaugeVec::new(
                Opts::new("kubelet_working_pods", "[ALPHA] Pods that are worked on."),
                &["lifecycle", "config", "static"],
            )?,
            restarted_pods: counters(
                "kubelet_restarted_pods_total",
                "[ALPHA] Pods that were deleted and came back under the same UID.",
                &["static"],
            )?,
            orphaned_pods: counter(
                "kubelet_orphaned_runtime_pods_total",
                "[ALPHA] Pods that the runtime held, and that neither a source nor the workers knew.",
            )?,
            containers_per_pod: seconds(
                "kubelet_containers_per_pod_count",
                "[ALPHA] Containers per pod.",
                Some(exponential_buckets(1.0, 2.0, 5)?),
            )?,
            hook_http_fallbacks: counter(
                "kubelet_lifecycle_handler_http_fallbacks_total",
                "[ALPHA] Lifecycle hooks that fell back from HTTPS to HTTP.",
            )?,
            hook_sleeps_cut: counter(
                "kubelet_sleep_action_terminated_early_total",
                "[ALPHA] Sleeping lifecycle hooks that were cut off.",
            )?,
        })
    }

    /// Registers the metrics with a registry.
    ///
    /// # Errors
    /// The registry has a metric of one of these names already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let all: [Box<dyn Collector>; 16] = [
            Box::new(self.worker_seconds.clone()),
            Box::new(self.worker_start_seconds.clone()),
            Box::new(self.pod_start_seconds.clone()),
            Box::new(self.started_pods.clone()),
            Box::new(self.started_pods_errors.clone()),
            Box::new(self.started_containers.clone()),
            Box::new(self.started_containers_errors.clone()),
            Box::new(self.image_volumes_requested.clone()),
            Box::new(self.image_volumes_mounted.clone()),
            Box::new(self.image_volumes_errors.clone()),
            Box::new(self.working_pods.clone()),
            Box::new(self.restarted_pods.clone()),
            Box::new(self.orphaned_pods.clone()),
            Box::new(self.containers_per_pod.clone()),
            Box::new(self.hook_http_fallbacks.clone()),
            Box::new(self.hook_sleeps_cut.clone()),
        ];
        all.into_iter().try_for_each(|collector| registry.register(collector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_valid_and_distinct() {
        let registry = Registry::new();
        PodWorkerMetrics::new().expect("well-formed").register(&registry).expect("distinct");
    }
}
