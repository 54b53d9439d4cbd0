//! Which pods are critical to the node (rows 16.7, 19.3, 19.8).

use k8s_openapi::api::core::v1::Pod;
use messages::facts::Source;

use crate::origin::{is_mirror, is_static};

/// A pod of this priority or a higher one is critical.
pub const CRITICAL: i32 = 2_000_000_000;
/// The priority class of pods that are critical to the node itself.
pub const NODE_CRITICAL_CLASS: &str = "system-node-critical";
/// The priority classes that every cluster has. No API server resolves the class of a static pod.
const CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", CRITICAL), (NODE_CRITICAL_CLASS, CRITICAL + 1000)];

/// `spec.priority`, or the priority of the pod's class if every cluster has that class.
pub fn priority(pod: &Pod) -> Option<i32> {
    let spec = pod.spec.as_ref()?;
    let of_class =
        |name: &String| CLASSES.iter().find(|(class, _)| class == name).map(|(_, priority)| *priority);
    spec.priority.or_else(|| spec.priority_class_name.as_ref().and_then(of_class))
}

/// Whether the pod's priority is critical, wherever the pod comes from.
pub fn has_critical_priority(pod: &Pod) -> bool {
    priority(pod).is_some_and(|priority| priority >= CRITICAL)
}

/// Whether a pod is critical: a static pod, a mirror pod, or a pod of critical priority.
pub fn is_critical(pod: &Pod, source: Source) -> bool {
    is_static(source) || is_mirror(pod) || has_critical_priority(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::annotations::CONFIG_MIRROR;

    fn pod(metadata: Value, spec: Value) -> Pod {
        let mut pod = json!({ "metadata": metadata, "spec": { "containers": [] } });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn static_pods_their_mirrors_and_high_priorities_are_critical() {
        let plain = pod(json!({}), json!({ "priority": 1_999_999_999 }));
        assert!(!is_critical(&plain, Source::Api));
        assert!(is_critical(&plain, Source::File) && is_critical(&plain, Source::Http));
        assert!(is_critical(&pod(json!({}), json!({ "priority": CRITICAL })), Source::Api));
        let mirror = pod(json!({ "annotations": { CONFIG_MIRROR: "x" } }), json!({}));
        assert!(is_critical(&mirror, Source::Api) && !has_critical_priority(&mirror));
    }

    #[test]
    fn the_classes_of_every_cluster_have_their_priorities() {
        let of = |class: &str| pod(json!({}), json!({ "priorityClassName": class }));
        assert_eq!(priority(&of("system-cluster-critical")), Some(2_000_000_000));
        assert_eq!(priority(&of(NODE_CRITICAL_CLASS)), Some(2_000_001_000));
        assert_eq!(priority(&of("high")), None);
        assert!(is_critical(&of(NODE_CRITICAL_CLASS), Source::Api) && !is_critical(&of("high"), Source::Api));
    }
}
