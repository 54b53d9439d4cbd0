//! PURE: which pods may be evicted at all, and with which grace period (rows 19.3, 19.9).

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, WorkerReport, WorkerState};
use pod_rules::critical;
use pod_rules::reasons::EVICTED;
use pod_set::{Followed, PodSet};

use crate::threshold::Threshold;

/// The grace period, in seconds, of a pod that is evicted by a hard threshold or its own limit.
pub(crate) const HARD_GRACE_SECONDS: i64 = 1;
/// A pod's end is waited for at least this long (row 4.6), in seconds.
const STOP_SECONDS_MIN: i64 = 10;

/// The pod's priority; a pod without one has 0.
pub(crate) fn priority(pod: &Pod) -> i32 {
    critical::priority(pod).unwrap_or(0)
}

/// The pods that use, or may still use, resources of the node.
pub(crate) fn active(
    desired: &PodSet<Arc<DesiredPod>>,
    reports: &Followed<Arc<WorkerReport>>,
) -> Vec<Arc<DesiredPod>> {
    let over = |uid: &PodUid| reports.get(uid).is_some_and(|one| one.state == WorkerState::Terminated);
    let pods = desired.iter().filter(|(uid, pod)| pod.rejected.is_none() && !over(uid));
    pods.map(|(_, pod)| pod.clone()).collect()
}

/// Whether the pod is being evicted already.
pub(crate) fn is_being_evicted(report: Option<&Arc<WorkerReport>>) -> bool {
    let why = report.and_then(|report| report.failed.as_ref());
    why.is_some_and(|why| why.reason == EVICTED)
}

/// The grace period of a pod that is evicted by this threshold, in seconds.
pub(crate) fn grace_seconds(threshold: &Threshold, pod: &Pod, soft_max: i64) -> i64 {
    if threshold.is_hard() {
        return HARD_GRACE_SECONDS;
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    own.map_or(soft_max, |own| own.min(soft_max))
}

/// How long the pod's containers are waited for: one and a half grace periods.
pub(crate) fn stop_within(grace_seconds: i64) -> Duration {
    let seconds = grace_seconds.saturating_add(grace_seconds / 2).max(STOP_SECONDS_MIN);
    Duration::from_secs(seconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use pod_rules::thresholds::Value as Amount;
    use pod_spec::quantity::Quantity;
    use serde_json::json;

    use super::*;
    use crate::signal::Signal;

    #[test]
    fn graces() {
        let threshold = |grace| Threshold {
            signal: Signal::MemoryAvailable,
            value: Amount::Amount(Quantity::binary(1)),
            grace: Duration::from_secs(grace),
            min_reclaim: None,
        };
        let pod = |grace: Option<i64>| -> Pod {
            let spec = json!({ "containers": [], "terminationGracePeriodSeconds": grace });
            serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
        };
        assert_eq!(grace_seconds(&threshold(0), &pod(Some(600)), 60), 1);
        assert_eq!(grace_seconds(&threshold(30), &pod(Some(600)), 60), 60);
        assert_eq!(grace_seconds(&threshold(30), &pod(Some(5)), 60), 5);
        assert_eq!(grace_seconds(&threshold(30), &pod(None), 0), 0);
        assert_eq!((stop_within(1).as_secs(), stop_within(60).as_secs()), (10, 90));
    }
}
