//! PURE: the pods that the API server has bound to this node, followed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{GonePods, Rejection, Source, SourcePod, UNSUPPORTED_FIELDS};
use messages::{PodRef, PodUid};
use pod_rules::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};

use crate::static_pod::CONFIG_SEEN_ANNOTATION;
use crate::unsupported::{Supported, unsupported};

/// Marks the pod that stands for a static pod.

/// Pods that are remembered for a while after they have gone.
const GONE_MAX: usize = 128;

/// All pods of the node, by UID; `None` until the list has been heard once.
#[derive(Debug, Default)]
pub struct ApiPods {
    pods: Option<BTreeMap<PodUid, SourcePod>>,
    /// What their deletion granted them, the newest last. Who deletes a pod by force says so in the last change before
    /// it goes, and nobody may have heard of that one yet.
    gone: VecDeque<(PodUid, i64)>,
}

impl ApiPods {
    /// The whole list.
    pub fn all(&mut self, pods: Vec<Pod>, supported: &Supported, now: Timestamp) {
        let mut before = self.pods.take().unwrap_or_default();
        let taken = pods.into_iter().map(|pod| {
            let uid = PodRef::of(&pod).uid;
            let known = before.remove(&uid);
            (uid, source_pod(pod, known.as_ref(), supported, now))
        });
        self.pods = Some(taken.collect());
    }

    /// One pod is new or has changed.
    pub fn changed(&mut self, pod: Pod, supported: &Supported, now: Timestamp) {
        let pods = self.pods.get_or_insert_default();
        let uid = PodRef::of(&pod).uid;
        let known = pods.remove(&uid);
        pods.insert(uid, source_pod(pod, known.as_ref(), supported, now));
    }

    /// One pod is gone.
    pub fn gone(&mut self, pod: &Pod) {
        let uid = PodRef::of(pod).uid;
        if let Some(pods) = &mut self.pods {
            pods.remove(&uid);
        }
        let Some(granted) = pod.metadata.deletion_grace_period_seconds else { return };
        self.gone.push_back((uid, granted));
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }

    /// The newest of those that are gone.
    pub fn lately_gone(&self) -> GonePods {
        Arc::new(self.gone.iter().cloned().collect())
    }

    /// All pods, once they have been heard of.
    pub fn pods(&self) -> Option<Vec<SourcePod>> {
        self.pods.as_ref().map(|pods| pods.values().cloned().collect())
    }
}

fn source_pod(mut pod: Pod, known: Option<&SourcePod>, supported: &Supported, now: Timestamp) -> SourcePod {
    // Large, and nothing here goes by it.
    pod.metadata.managed_fields = None;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let is_mirror = annotations.contains_key(CONFIG_MIRROR);
    if !is_mirror {
        let seen = known
            .and_then(|known| known.pod.metadata.annotations.as_ref()?.get(CONFIG_SEEN_ANNOTATION).cloned());
        annotations.insert(CONFIG_SOURCE.to_owned(), Source::Api.as_str().to_owned());
        annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen.unwrap_or_else(|| now.to_string()));
    }
    let refused = if is_mirror { None } else { refused(&pod, known, supported) };
    match known {
        // Who holds it need not look what has changed.
        Some(known) if *known.pod == pod && known.refused == refused => known.clone(),
        _ => SourcePod { pod: Arc::new(pod), refused },
    }
}

fn refused(pod: &Pod, known: Option<&SourcePod>, supported: &Supported) -> Option<Rejection> {
    // A spec that has not changed asks for the same as before; statuses change often.
    if let Some(known) = known.filter(|known| known.pod.spec == pod.spec) {
        return known.refused.clone();
    }
    let fields = unsupported(pod, supported);
    (!fields.is_empty()).then(|| Rejection {
        reason: UNSUPPORTED_FIELDS.to_owned(),
        message: fields.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, spec: serde_json::Value) -> Pod {
        let json = json!({
            "metadata": { "name": uid, "namespace": "ns", "uid": uid, "managedFields": [{ "manager": "m" }] },
            "spec": spec
        });
        serde_json::from_value(json).unwrap()
    }

    fn plain(uid: &str) -> Pod {
        pod(uid, json!({ "containers": [{ "name": "c", "image": "i" }] }))
    }

    fn uids(pods: &ApiPods) -> Vec<String> {
        let pods = pods.pods().expect("has been heard");
        pods.iter().map(|pod| pod.pod.metadata.uid.clone().unwrap()).collect()
    }

    #[test]
    fn the_list_is_followed() {
        let (mut pods, supported) = (ApiPods::default(), Supported::for_api_pods());
        assert_eq!(pods.pods(), None);
        pods.all(vec![], &supported, Timestamp::UNIX_EPOCH);
        assert_eq!(pods.pods(), Some(vec![]), "an empty list has been heard");
        pods.changed(plain("a"), &supported, Timestamp::UNIX_EPOCH);
        pods.changed(plain("b"), &supported, Timestamp::UNIX_EPOCH);
        pods.gone(&plain("a"));
        assert_eq!(uids(&pods), ["b"]);
        pods.all(vec![plain("c")], &supported, Timestamp::UNIX_EPOCH);
        assert_eq!(uids(&pods), ["c"]);
    }

    #[test]
    fn what_a_deletion_granted_is_remembered() {
        let mut pods = ApiPods::default();
        let deleted = |uid: &str| {
            let mut last = plain(uid);
            last.metadata.deletion_grace_period_seconds = Some(0);
            last
        };
        pods.gone(&deleted("a"));
        pods.gone(&plain("b"));
        assert_eq!(*pods.lately_gone(), [(PodUid::new("a"), 0)].into());
        for number in 0..2 * GONE_MAX {
            pods.gone(&deleted(&number.to_string()));
        }
        assert_eq!(pods.lately_gone().len(), GONE_MAX);
    }

    #[test]
    fn a_pod_is_marked_with_its_source_and_when_it_was_first_seen() {
        let (mut pods, supported) = (ApiPods::default(), Supported::for_api_pods());
        pods.changed(plain("a"), &supported, Timestamp::UNIX_EPOCH);
        let first = pods.pods().unwrap().remove(0);
        pods.changed(plain("a"), &supported, Timestamp::from_second(1_000_000).unwrap());
        let second = pods.pods().unwrap().remove(0);
        assert!(Arc::ptr_eq(&first.pod, &second.pod), "nothing has changed");
        let annotations = second.pod.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[CONFIG_SOURCE], "api");
        assert_eq!(annotations[CONFIG_SEEN_ANNOTATION], "1970-01-01T00:00:00Z");
        assert_eq!(second.pod.metadata.managed_fields, None);
        assert_eq!(second.refused, None);
    }

    #[test]
    fn a_pod_that_asks_for_what_is_not_done_is_refused_and_a_mirror_never_is() {
        let spec = json!({
            "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "nfs": { "server": "s", "path": "/" } }]
        });
        let (mut pods, supported) = (ApiPods::default(), Supported::for_api_pods());
        pods.changed(pod("a", spec.clone()), &supported, Timestamp::UNIX_EPOCH);
        let refused = pods.pods().unwrap().remove(0).refused.unwrap();
        assert_eq!(refused.reason, UNSUPPORTED_FIELDS);
        assert!(refused.message.starts_with("spec.volumes[0].nfs"), "{}", refused.message);
        let mut mirror = pod("m", spec);
        mirror.metadata.annotations = Some([(CONFIG_MIRROR.to_owned(), "h".to_owned())].into());
        pods.all(vec![mirror], &supported, Timestamp::UNIX_EPOCH);
        assert_eq!(pods.pods().unwrap()[0].refused, None);
    }

    #[test]
    fn a_stock_pod_of_a_cluster_is_taken() {
        let spec = json!({
            "automountServiceAccountToken": true,
            "containers": [{
                "name": "c", "image": "i", "imagePullPolicy": "Always", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{
                    "name": "kube-api-access-x", "readOnly": true,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"
                }]
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "n",
            "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [{
                "effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists",
                "tolerationSeconds": 300
            }],
            "volumes": [{ "name": "kube-api-access-x", "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{
                    "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" }
                }] } }
            ] } }]
        });
        assert_eq!(unsupported(&pod("a", spec), &Supported::for_api_pods()), []);
    }
}
