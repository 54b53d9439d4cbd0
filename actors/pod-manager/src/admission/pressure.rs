//! PURE: which pods a node under pressure refuses (row 19.8).

use k8s_openapi::api::core::v1::{Pod, Taint};
use messages::facts::{Pressure, Rejection, Source};
use pod_rules::conditions::{DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};
use pod_rules::critical::is_critical;
use pod_rules::reasons::EVICTED;
use pod_rules::taints::NO_SCHEDULE;
use pod_spec::resources::QosClass;

use super::taints;

/// Why a pod is refused, if it is. Critical pods are not; as for eviction, every static pod counts as
/// critical. Under memory pressure alone only pods of the class BestEffort are refused, unless they tolerate
/// the taint.
pub fn refusal(pod: &Pod, source: Source, pressure: Pressure) -> Option<Rejection> {
    let named =
        [(pressure.memory, MEMORY_PRESSURE), (pressure.disk, DISK_PRESSURE), (pressure.pid, PID_PRESSURE)];
    let held: Vec<&str> = named.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect();
    if held.is_empty() || is_critical(pod, source) {
        return None;
    }
    if held == [MEMORY_PRESSURE] {
        let taint = Taint {
            key: "node.kubernetes.io/memory-pressure".to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            value: None,
            time_added: None,
        };
        if QosClass::of(pod) != QosClass::BestEffort || taints::tolerated(pod, &taint) {
            return None;
        }
    }
    let message = format!("The node had condition: [{}]. ", held.join(" "));
    Some(Rejection::new(EVICTED, message))
}

/// Whether there is a pressure under which the pod is refused.
pub fn may_refuse(pod: &Pod, source: Source) -> bool {
    refusal(pod, source, Pressure { memory: true, disk: true, pid: true }).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(requests: Value, tolerations: Value, priority: i32) -> Pod {
        let container = json!({ "name": "c", "resources": { "requests": requests } });
        let spec = json!({ "containers": [container], "tolerations": tolerations, "priority": priority });
        serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap()
    }

    fn message(pod: &Pod, memory: bool, disk: bool, pid: bool) -> Option<String> {
        let refused = refusal(pod, Source::Api, Pressure { memory, disk, pid });
        refused.map(|why| format!("{}: {}", why.reason, why.message))
    }

    #[test]
    fn too_little_memory_keeps_those_away_that_have_asked_for_none() {
        let best_effort = pod(json!({}), json!([]), 0);
        let refused = Some("Evicted: The node had condition: [MemoryPressure]. ".to_owned());
        assert_eq!(message(&best_effort, true, false, false), refused);
        assert_eq!(message(&best_effort, false, false, false), None);
        assert_eq!(message(&pod(json!({ "cpu": "1" }), json!([]), 0), true, false, false), None);
        let bears = |key: &str, effect: &str| {
            pod(json!({}), json!([{ "key": key, "operator": "Exists", "effect": effect }]), 0)
        };
        let key = "node.kubernetes.io/memory-pressure";
        assert_eq!(message(&bears(key, "NoSchedule"), true, false, false), None);
        assert_eq!(message(&bears(key, ""), true, false, false), None);
        assert_eq!(message(&bears(key, "NoExecute"), true, false, false), refused);
        assert_eq!(message(&bears("node.kubernetes.io/disk-pressure", ""), true, false, false), refused);
    }

    #[test]
    fn anything_else_keeps_all_away_but_the_critical_ones() {
        let guaranteed = pod(json!({ "cpu": "1", "memory": "1Gi" }), json!([{ "operator": "Exists" }]), 0);
        assert_eq!(
            message(&guaranteed, false, true, false).as_deref(),
            Some("Evicted: The node had condition: [DiskPressure]. ")
        );
        assert_eq!(
            message(&guaranteed, true, false, true).as_deref(),
            Some("Evicted: The node had condition: [MemoryPressure PIDPressure]. ")
        );
        assert_eq!(message(&pod(json!({}), json!([]), 2_000_000_000), true, true, true), None);
        let all = Pressure { memory: true, disk: true, pid: true };
        assert_eq!(refusal(&guaranteed, Source::File, all), None, "static pods are critical");
        assert!(may_refuse(&guaranteed, Source::Api) && !may_refuse(&guaranteed, Source::File));
    }
}
