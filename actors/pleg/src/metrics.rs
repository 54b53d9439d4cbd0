//! Pleg's metrics, under upstream's names (row 22.1).

use bridge_metrics::Registry;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, IntGaugeVec, Opts};

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone)]
pub struct PlegMetrics {
    pub(crate) relist_seconds: Histogram,
    pub(crate) relist_interval_seconds: Histogram,
    pub(crate) pod_relist_seconds: Histogram,
    pub(crate) last_seen_seconds: Gauge,
    pub(crate) running_pods: IntGauge,
    pub(crate) running_containers: IntGaugeVec,
    /// Subscriptions to the runtime's events that succeeded.
    pub(crate) subscribed: IntCounter,
    /// Subscriptions that failed. A runtime that has no events is no failure.
    pub(crate) not_subscribed: IntCounter,
    /// From an event to its arrival.
    pub(crate) event_seconds: Histogram,
}

impl PlegMetrics {
    /// Makes the handles.
    pub fn new() -> prometheus::Result<Self> {
        let histogram = |name: &str, help: &str| Histogram::with_opts(HistogramOpts::new(name, help));
        Ok(Self {
            relist_seconds: histogram(
                "kubelet_pleg_relist_duration_seconds",
                "[ALPHA] Duration in seconds for relisting pods in PLEG.",
            )?,
            relist_interval_seconds: histogram(
                "kubelet_pleg_relist_interval_seconds",
                "[ALPHA] Interval in seconds between relisting in PLEG.",
            )?,
            pod_relist_seconds: histogram(
                "kubelet_pleg_pod_relist_duration_seconds",
                "[ALPHA] Duration in seconds for looking at a single pod in PLEG.",
            )?,
            last_seen_seconds: Gauge::new(
                "kubelet_pleg_last_seen_seconds",
                "[ALPHA] Timestamp in seconds when PLEG was last seen active.",
            )?,
            subscribed: IntCounter::new(
                "kubelet_evented_pleg_connection_success_count",
                "[ALPHA] Number of times that the runtime's events were subscribed to.",
            )?,
            not_subscribed: IntCounter::new(
                "kubelet_evented_pleg_connection_error_count",
                "[ALPHA] Number of times that the runtime's events could not be subscribed to.",
            )?,
            event_seconds: histogram(
                "kubelet_evented_pleg_connection_latency_seconds",
                "[ALPHA] Seconds from an event of the runtime to its arrival.",
            )?,
            running_pods: IntGauge::new(
                "kubelet_running_pods",
                "[ALPHA] Number of pods that have a running pod sandbox.",
            )?,
            running_containers: IntGaugeVec::new(
                Opts::new("kubelet_running_containers", "[ALPHA] Number of containers by state."),
                &["container_state"],
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.relist_seconds.clone()))?;
        registry.register(Box::new(self.relist_interval_seconds.clone()))?;
        registry.register(Box::new(self.pod_relist_seconds.clone()))?;
        registry.register(Box::new(self.last_seen_seconds.clone()))?;
        registry.register(Box::new(self.subscribed.clone()))?;
        registry.register(Box::new(self.not_subscribed.clone()))?;
        registry.register(Box::new(self.event_seconds.clone()))?;
        registry.register(Box::new(self.running_pods.clone()))?;
        registry.register(Box::new(self.running_containers.clone()))
    }
}
