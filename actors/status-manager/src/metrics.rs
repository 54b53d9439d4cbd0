//! StatusManager's metrics.

use bridge_metrics::Registry;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use pod_rules::reasons::{COMPLETED, EVICTED};
use prometheus::{GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts};

use crate::container_state::by_name;
use crate::progress::Start;
use crate::publish::Outcome;

/// Upper bounds of the time until the API server knows a status, in seconds.
const SYNC_SECONDS: [f64; 11] = [0.010, 0.050, 0.100, 0.500, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Upper bounds of the time until a pod runs, in seconds.
const START_SECONDS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0,
    480.0, 600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// Handles of the metrics, which survive restarts of the actor.
#[derive(Clone, Debug)]
pub struct StatusMetrics {
    /// Statuses computed that differ from the one before.
    pub(crate) changes: IntCounter,
    /// Operations on checkpoints by `operation` (save, remove, load) and `outcome` (ok, failed, corrupt).
    pub(crate) checkpoints: IntCounterVec,
    /// Calls to the API server by `outcome` (patched, deleted, gone, failed).
    pub(crate) calls: IntCounterVec,
    sync_seconds: Histogram,
    start_total_seconds: Histogram,
    start_own_seconds: Histogram,
    /// Has a series once there was such a pod.
    first_network_start_seconds: GaugeVec,
    terminated: IntCounterVec,
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
            sync_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    "kubelet_pod_status_sync_duration_seconds",
                    "[ALPHA] Seconds from the first change of a pod's status that the API server does not know until it knows all.",
                )
                .buckets(SYNC_SECONDS.to_vec()),
            )?,
            start_total_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    "kubelet_pod_start_total_duration_seconds",
                    "[ALPHA] Seconds from the creation of a pod until the API server knows that all its containers have started, pulls and init containers included.",
                )
                .buckets(START_SECONDS.to_vec()),
            )?,
            start_own_seconds: Histogram::with_opts(
                HistogramOpts::new(
                    "kubelet_pod_start_sli_duration_seconds",
                    "[ALPHA] Seconds from the creation of a pod without state until the API server knows that all its containers have started, without the time of pulls and init containers.",
                )
                .buckets(START_SECONDS.to_vec()),
            )?,
            first_network_start_seconds: GaugeVec::new(
                Opts::new(
                    "kubelet_first_network_pod_start_sli_duration_seconds",
                    "[INTERNAL] The same seconds of the first pod with a network of its own.",
                ),
                &[],
            )?,
            terminated: IntCounterVec::new(
                Opts::new(
                    "kubelet_terminated_containers_total",
                    "[ALPHA] Number of containers that have ended, by type, exit code and reason.",
                ),
                &["container_type", "exit_code", "reason"],
            )?,
        })
    }

    /// Registers them.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.changes.clone()))?;
        registry.register(Box::new(self.calls.clone()))?;
        registry.register(Box::new(self.sync_seconds.clone()))?;
        registry.register(Box::new(self.start_total_seconds.clone()))?;
        registry.register(Box::new(self.start_own_seconds.clone()))?;
        registry.register(Box::new(self.first_network_start_seconds.clone()))?;
        registry.register(Box::new(self.terminated.clone()))?;
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

    /// Observes that the API server knows the status of a pod that had changed so long ago.
    pub(crate) fn synced(&self, after: Duration) {
        self.sync_seconds.observe(after.as_secs_f64());
    }

    /// Observes that all containers of a pod have started.
    pub(crate) fn started(&self, start: Start) {
        self.start_total_seconds.observe(start.whole.as_secs_f64());
        let Some(own) = start.own else { return };
        self.start_own_seconds.observe(own.as_secs_f64());
        if start.is_first_network {
            self.first_network_start_seconds.with_label_values::<&str>(&[]).set(own.as_secs_f64());
        }
    }

    /// Counts the containers that have ended since the status before.
    pub(crate) fn ended(&self, before: Option<&PodStatus>, now: &PodStatus) {
        for (kind, exit_code, reason) in ended(before, now) {
            self.terminated.with_label_values(&[kind, &exit_code.to_string(), reason_label(&reason)]).inc();
        }
    }

    pub(crate) fn checkpoint(&self, operation: &str, outcome: &str) {
        self.checkpoints.with_label_values(&[operation, outcome]).inc();
    }
}

/// The reasons that runtimes and the kubelet give; others would be labels that a runtime makes up.
const REASONS: [&str; 9] = [
    COMPLETED,
    "Error",
    "OOMKilled",
    "ContainerStatusUnknown",
    "ContainerCannotRun",
    "StartError",
    "DeadlineExceeded",
    EVICTED,
    "",
];

fn reason_label(reason: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == reason).unwrap_or("other")
}

/// PURE: type, exit code and reason of each container that has ended and had not before.
fn ended(before: Option<&PodStatus>, now: &PodStatus) -> Vec<(&'static str, i32, String)> {
    type List = fn(&PodStatus) -> Option<&Vec<ContainerStatus>>;
    let lists: [(&str, List); 3] = [
        ("init_container", |status| status.init_container_statuses.as_ref()),
        ("container", |status| status.container_statuses.as_ref()),
        ("ephemeral_container", |status| status.ephemeral_container_statuses.as_ref()),
    ];
    let end = |status: &ContainerStatus| status.state.as_ref()?.terminated.clone();
    let mut found = Vec::new();
    for (kind, list) in lists {
        let before = by_name(before.and_then(list).into_iter().flatten());
        for container in list(now).into_iter().flatten() {
            let Some(ended) = end(container) else { continue };
            if before.get(&*container.name).is_none_or(|old| end(old).is_none()) {
                found.push((kind, ended.exit_code, ended.reason.unwrap_or_default()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: &str) -> PodStatus {
        let state = match state {
            "running" => serde_json::json!({"running": {}}),
            reason => serde_json::json!({"terminated": {"exitCode": 3, "reason": reason}}),
        };
        let one = serde_json::json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        serde_json::from_value(serde_json::json!({"containerStatuses": [one]})).unwrap()
    }

    #[test]
    fn a_container_ends_once() {
        let (running, error) = (status("running"), status("Error"));
        let found = vec![("container", 3, "Error".to_owned())];
        assert_eq!(ended(Some(&running), &error), found);
        assert_eq!(ended(None, &error), found);
        assert_eq!(ended(Some(&error), &error), []);
        assert_eq!(ended(Some(&error), &running), []);
        assert_eq!(["OOMKilled", "made up"].map(reason_label), ["OOMKilled", "other"]);
    }
}
