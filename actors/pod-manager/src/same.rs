//! PURE: whether there is anything new in a pod's object.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use messages::facts::{DesiredPod, Source};
use pod_rules::phases::pod_has_ended;

/// Nothing is new.
pub(crate) fn is_same(known: &DesiredPod, now: &DesiredPod) -> bool {
    known.source == now.source
        && known.rejected == now.rejected
        && known.made_anew == now.made_anew
        && (Arc::ptr_eq(&known.pod, &now.pod) || known.pod == now.pod)
}

/// Nothing is new but what a patch of the status changes: the status and the version of the object. That a pod has come
/// to its end is more than that.
pub(crate) fn is_same_but_status(known: &DesiredPod, now: &DesiredPod) -> bool {
    let (a, b): (&Pod, &Pod) = (&known.pod, &now.pod);
    known.source == Source::Api
        && now.source == Source::Api
        && known.rejected == now.rejected
        && pod_has_ended(a) == pod_has_ended(b)
        && is_same_metadata(&a.metadata, &b.metadata)
        && a.spec == b.spec
}

fn is_same_metadata(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    // Every field is named, so that a new one is looked at here.
    let ObjectMeta {
        annotations,
        creation_timestamp,
        deletion_grace_period_seconds,
        deletion_timestamp,
        finalizers,
        generate_name,
        generation,
        labels,
        managed_fields: _,
        name,
        namespace,
        owner_references,
        resource_version: _,
        self_link,
        uid,
    } = a;
    *annotations == b.annotations
        && *creation_timestamp == b.creation_timestamp
        && *deletion_grace_period_seconds == b.deletion_grace_period_seconds
        && *deletion_timestamp == b.deletion_timestamp
        && *finalizers == b.finalizers
        && *generate_name == b.generate_name
        && *generation == b.generation
        && *labels == b.labels
        && *name == b.name
        && *namespace == b.namespace
        && *owner_references == b.owner_references
        && *self_link == b.self_link
        && *uid == b.uid
}

#[cfg(test)]
mod tests {
    use messages::PodRef;
    use serde_json::{Value, json};

    use super::*;

    fn desired(source: Source, pod: Value) -> DesiredPod {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        DesiredPod { pod_ref: PodRef::of(&pod), pod: Arc::new(pod), source, rejected: None, made_anew: None }
    }

    fn pod(version: &str, image: &str, phase: &str, labels: &Value) -> Value {
        json!({
            "metadata": { "name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version, "labels": labels },
            "spec": { "containers": [{ "name": "c", "image": image }] },
            "status": { "phase": phase }
        })
    }

    #[test]
    fn the_echo_of_a_status_patch_is_nothing_new_but_for_the_status() {
        let before = desired(Source::Api, pod("1", "i", "Pending", &json!({})));
        let echo = desired(Source::Api, pod("2", "i", "Running", &json!({})));
        assert!(is_same(&before, &before.clone()) && !is_same(&before, &echo));
        assert!(is_same_but_status(&before, &echo));
        for other in [
            pod("2", "j", "Pending", &json!({})),
            pod("2", "i", "Pending", &json!({ "app": "web" })),
            pod("2", "i", "Failed", &json!({})),
        ] {
            assert!(!is_same_but_status(&before, &desired(Source::Api, other.clone())), "{other}");
        }
        let fixed = |version| desired(Source::File, pod(version, "i", "Pending", &json!({})));
        assert!(!is_same_but_status(&fixed("1"), &fixed("2")), "a manifest has no patches");
    }
}
