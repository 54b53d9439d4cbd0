//! PURE: the pods that the API server has bound to this node, as its list and watch tell them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{GonePods, Rejection, Source, SourcePod, UNSUPPORTED_FIELDS};
use messages::{PodRef, PodUid};
use pod_rules::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};
use supervision::blame;

use crate::static_pod::CONFIG_SEEN_ANNOTATION;
use crate::unsupported::{Supported, unsupported};

/// So many deleted pods are remembered.
const GONE_MAX: usize = 128;

/// All pods of the node, by UID; `None` until the list has been heard once.
#[derive(Debug, Default)]
pub struct ApiPods {
    pods: Option<BTreeMap<PodUid, SourcePod>>,
    /// The grace periods in seconds that deleted pods were granted, the newest last. A deletion by force sets the
    /// period in the pod's last change, which PodManager may not have been told.
    gone: VecDeque<(PodUid, i64)>,
    /// Pods of the next list that cannot be decoded.
    unreadable: BTreeSet<PodUid>,
    /// Pods that PodSources has quarantined, in their newest version.
    left_alone: BTreeMap<PodUid, Pod>,
}

impl ApiPods {
    /// Takes a whole list. Pods that are `left_alone` keep their last known version.
    pub fn all(
        &mut self,
        pods: Vec<Pod>,
        left_alone: &BTreeSet<PodUid>,
        supported: &Supported,
        now: Timestamp,
    ) {
        let mut before = self.pods.take().unwrap_or_default();
        let mut taken = BTreeMap::new();
        self.left_alone.clear();
        for pod in pods {
            let uid = PodRef::of(&pod).uid;
            let known = before.remove(&uid);
            if left_alone.contains(&uid) {
                taken.insert(uid.clone(), known.unwrap_or_else(|| unjudged(pod.clone(), now)));
                self.left_alone.insert(uid, pod);
            } else {
                let pod = blame::for_pod(&uid, || source_pod(pod, known.as_ref(), supported, now));
                taken.insert(uid, pod);
            }
        }
        for uid in std::mem::take(&mut self.unreadable) {
            taken.extend(before.remove_entry(&uid));
        }
        self.pods = Some(taken);
    }

    /// Notes that a pod of the next list cannot be decoded: its last known version stays.
    pub fn unreadable(&mut self, uid: PodUid) {
        self.unreadable.insert(uid);
    }

    /// Notes that a pod is quarantined: its last known version stays until [`ApiPods::let_in`].
    pub fn leave_alone(&mut self, pod: Pod, now: Timestamp) {
        let uid = PodRef::of(&pod).uid;
        let pods = self.pods.get_or_insert_default();
        pods.entry(uid.clone()).or_insert_with(|| unjudged(pod.clone(), now));
        self.left_alone.insert(uid, pod);
    }

    /// Lets a quarantined pod in again. Returns whether it has changed meanwhile.
    pub fn let_in(&mut self, uid: &PodUid, supported: &Supported, now: Timestamp) -> bool {
        let pod = self.left_alone.remove(uid);
        let is_news = pod.is_some();
        if let Some(pod) = pod {
            self.changed(pod, supported, now);
        }
        is_news
    }

    /// Takes a pod that is new or has changed.
    pub fn changed(&mut self, pod: Pod, supported: &Supported, now: Timestamp) {
        let pods = self.pods.get_or_insert_default();
        let uid = PodRef::of(&pod).uid;
        self.left_alone.remove(&uid);
        let known = pods.get(&uid);
        let pod = source_pod(pod, known, supported, now);
        pods.insert(uid, pod);
    }

    /// Takes a pod that was deleted.
    pub fn gone(&mut self, pod: &Pod) {
        let uid = PodRef::of(pod).uid;
        self.forget(&uid);
        let Some(granted) = pod.metadata.deletion_grace_period_seconds else { return };
        self.gone.push_back((uid, granted));
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }

    /// Removes a pod of which the last version is not known.
    pub fn forget(&mut self, uid: &PodUid) {
        self.left_alone.remove(uid);
        if let Some(pods) = &mut self.pods {
            pods.remove(uid);
        }
    }

    /// The pods that were deleted lately, with their grace periods in seconds.
    pub fn lately_gone(&self) -> GonePods {
        Arc::new(self.gone.iter().cloned().collect())
    }

    /// All pods; `None` before the first list.
    pub fn pods(&self) -> Option<Vec<SourcePod>> {
        self.pods.as_ref().map(|pods| pods.values().cloned().collect())
    }
}

/// A quarantined pod of which no earlier version is known: if it runs it goes on, else it waits.
fn unjudged(mut pod: Pod, now: Timestamp) -> SourcePod {
    annotate(&mut pod, None, now);
    let message = "PodSources leaves the pod alone after repeated panics".to_owned();
    let refused = Rejection { reason: UNSUPPORTED_FIELDS.to_owned(), message };
    SourcePod { pod: Arc::new(pod), refused: Some(refused) }
}

/// Annotates the pod with source and time; returns whether it is a mirror.
fn annotate(pod: &mut Pod, known: Option<&SourcePod>, now: Timestamp) -> bool {
    // Managed fields are large and of no use here.
    pod.metadata.managed_fields = None;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let is_mirror = annotations.contains_key(CONFIG_MIRROR);
    if !is_mirror {
        let seen = known
            .and_then(|known| known.pod.metadata.annotations.as_ref()?.get(CONFIG_SEEN_ANNOTATION).cloned());
        annotations.insert(CONFIG_SOURCE.to_owned(), Source::Api.as_str().to_owned());
        annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen.unwrap_or_else(|| now.to_string()));
    }
    is_mirror
}

fn source_pod(mut pod: Pod, known: Option<&SourcePod>, supported: &Supported, now: Timestamp) -> SourcePod {
    let is_mirror = annotate(&mut pod, known, now);
    let refused = if is_mirror { None } else { refused(&pod, known, supported) };
    match known {
        // Without a change the same `Arc` goes on, so that receivers compare pointers.
        Some(known) if *known.pod == pod && known.refused == refused => known.clone(),
        _ => SourcePod { pod: Arc::new(pod), refused },
    }
}

fn refused(pod: &Pod, known: Option<&SourcePod>, supported: &Supported) -> Option<Rejection> {
    // An unchanged spec has the same unsupported fields as before; statuses change often.
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
        pods.all(vec![], &BTreeSet::new(), &supported, Timestamp::UNIX_EPOCH);
        assert_eq!(pods.pods(), Some(vec![]), "an empty list has been heard");
        pods.changed(plain("a"), &supported, Timestamp::UNIX_EPOCH);
        pods.changed(plain("b"), &supported, Timestamp::UNIX_EPOCH);
        pods.gone(&plain("a"));
        assert_eq!(uids(&pods), ["b"]);
        pods.all(vec![plain("c")], &BTreeSet::new(), &supported, Timestamp::UNIX_EPOCH);
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
        pods.all(vec![mirror], &BTreeSet::new(), &supported, Timestamp::UNIX_EPOCH);
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
