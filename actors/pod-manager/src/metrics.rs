//! What PodManager counts, under upstream's names (FEATURES 27.1).

use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};

/// Handles that survive restarts.
#[derive(Clone)]
pub struct PodManagerMetrics {
    pub(crate) desired_pods: IntGaugeVec,
    pub(crate) rejections: IntCounterVec,
    pub(crate) preemptions: IntCounterVec,
}

impl PodManagerMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        Ok(Self {
            desired_pods: IntGaugeVec::new(
                Opts::new(
                    "kubelet_desired_pods",
                    "The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
                ),
                &["static"],
            )?,
            rejections: IntCounterVec::new(
                Opts::new(
                    "kubelet_admission_rejections_total",
                    "Cumulative number pod admission rejections by the Kubelet.",
                ),
                &["reason"],
            )?,
            preemptions: IntCounterVec::new(
                Opts::new(
                    "kubelet_preemptions",
                    "Cumulative number of pod preemptions by preemption resource",
                ),
                &["preemption_signal"],
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.desired_pods.clone()))?;
        registry.register(Box::new(self.rejections.clone()))?;
        registry.register(Box::new(self.preemptions.clone()))
    }
}
