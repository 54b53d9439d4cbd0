//! PURE: which pods may be ended at all, and how one is (rows 19.3, 19.9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, Source, WorkerReport, WorkerState};
use pod_set::PodSet;

use crate::threshold::Threshold;

/// The reason of events and statuses.
pub(crate) const REASON: &str = "Evicted";
/// From this priority on a pod is critical.
const CRITICAL: i32 = 2_000_000_000;
/// Stands for a static pod at the API server.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The grace of a pod that a hard threshold or a limit of its own ends, in seconds.
pub(crate) const HARD_GRACE_SECONDS: i64 = 1;
/// A pod is waited for at least this long (row 4.6), in seconds.
const STOP_SECONDS_MIN: i64 = 10;

/// The node does not do without it.
pub(crate) fn is_critical(pod: &DesiredPod) -> bool {
    let annotations = pod.pod.metadata.annotations.as_ref();
    let mirror = annotations.is_some_and(|annotations| annotations.contains_key(MIRROR));
    pod.source != Source::Api || mirror || priority(&pod.pod) >= CRITICAL
}

pub(crate) fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// The pods that have, or may still get, something of the node.
pub(crate) fn active(
    desired: &PodSet<Arc<DesiredPod>>,
    reports: &BTreeMap<PodUid, Arc<WorkerReport>>,
) -> Vec<Arc<DesiredPod>> {
    let over = |uid: &PodUid| reports.get(uid).is_some_and(|one| one.state == WorkerState::Terminated);
    let pods = desired.iter().filter(|(uid, pod)| pod.rejected.is_none() && !over(uid));
    pods.map(|(_, pod)| pod.clone()).collect()
}

/// It is on its way out for this reason already.
pub(crate) fn is_being_evicted(report: Option<&Arc<WorkerReport>>) -> bool {
    let why = report.and_then(|report| report.failed.as_ref());
    why.is_some_and(|why| why.reason == REASON)
}

/// The grace of a pod that this threshold ends, in seconds.
pub(crate) fn grace_seconds(threshold: &Threshold, pod: &Pod, soft_max: i64) -> i64 {
    if threshold.is_hard() {
        return HARD_GRACE_SECONDS;
    }
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    own.map_or(soft_max, |own| own.min(soft_max))
}

/// How long its containers are waited for: half as long again as its grace.
pub(crate) fn stop_within(grace_seconds: i64) -> Duration {
    let seconds = grace_seconds.saturating_add(grace_seconds / 2).max(STOP_SECONDS_MIN);
    Duration::from_secs(seconds.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use messages::PodRef;
    use messages::quantity::Quantity;
    use serde_json::{Value, json};

    use super::*;
    use crate::signal::Signal;
    use crate::threshold::Value as Amount;

    fn desired(source: Source, pod: Value) -> DesiredPod {
        let pod_ref = PodRef { uid: PodUid::new("u"), namespace: Arc::from("n"), name: Arc::from("p") };
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        DesiredPod { pod_ref, pod, source, rejected: None }
    }

    #[test]
    fn who_is_critical() {
        let plain = json!({ "metadata": {}, "spec": { "containers": [], "priority": 1_999_999_999 } });
        let high = json!({ "metadata": {}, "spec": { "containers": [], "priority": 2_000_000_000 } });
        let mirror = json!({ "metadata": { "annotations": { MIRROR: "x" } }, "spec": { "containers": [] } });
        assert!(!is_critical(&desired(Source::Api, plain.clone())));
        assert!(is_critical(&desired(Source::File, plain.clone())));
        assert!(is_critical(&desired(Source::Http, plain)));
        assert!(is_critical(&desired(Source::Api, high)));
        assert!(is_critical(&desired(Source::Api, mirror)));
    }

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
