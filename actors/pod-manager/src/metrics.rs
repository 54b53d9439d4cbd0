//! PodManager's metrics, under upstream's names (row 22.1).

use bridge_metrics::Registry;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts};

/// The metrics' handles, which outlive incarnations; clones count into the same metrics.
#[derive(Clone)]
pub struct PodManagerMetrics {
    pub(crate) desired_pods: IntGaugeVec,
    pub(crate) active_pods: IntGaugeVec,
    pub(crate) mirror_pods: IntGauge,
    pub(crate) ephemeral_containers: IntGauge,
    pub(crate) rejections: IntCounterVec,
    pub(crate) preemptions: IntCounterVec,
}

impl PodManagerMetrics {
    /// New metrics, all empty. The error is that of a malformed name, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            desired_pods: IntGaugeVec::new(
                Opts::new(
                    "kubelet_desired_pods",
                    "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
                ),
                &["static"],
            )?,
            active_pods: IntGaugeVec::new(
                Opts::new(
                    "kubelet_active_pods",
                    "[ALPHA] Pods that are not over, which count when another one is admitted; static is true if the pod is not of the API server.",
                ),
                &["static"],
            )?,
            mirror_pods: IntGauge::new(
                "kubelet_mirror_pods",
                "[ALPHA] Pods of the API server that mirror static pods.",
            )?,
            ephemeral_containers: IntGauge::new(
                "kubelet_managed_ephemeral_containers",
                "[ALPHA] Ephemeral containers of the desired pods.",
            )?,
            rejections: IntCounterVec::new(
                Opts::new(
                    "kubelet_admission_rejections_total",
                    "[ALPHA] Cumulative number pod admission rejections by the Kubelet.",
                ),
                &["reason"],
            )?,
            preemptions: IntCounterVec::new(
                Opts::new(
                    "kubelet_preemptions",
                    "[ALPHA] Cumulative number of pod preemptions by preemption resource",
                ),
                &["preemption_signal"],
            )?,
        })
    }

    /// The pods that were refused, by reason: for other subsystems that refuse pods.
    pub fn rejections(&self) -> IntCounterVec {
        self.rejections.clone()
    }

    /// Registers the metrics with a registry.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.desired_pods.clone()))?;
        registry.register(Box::new(self.active_pods.clone()))?;
        registry.register(Box::new(self.mirror_pods.clone()))?;
        registry.register(Box::new(self.ephemeral_containers.clone()))?;
        registry.register(Box::new(self.rejections.clone()))?;
        registry.register(Box::new(self.preemptions.clone()))
    }
}
