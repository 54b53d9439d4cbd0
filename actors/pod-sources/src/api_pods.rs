//! PURE: the pods that the API server has bound to this node, followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::facts::{Rejection, Source, SourcePod, UNSUPPORTED_FIELDS};
use messages::pod_set::{GonePod, PodSetDigest, PodSetUpdate};
use messages::{PodRef, PodUid};
use pod_set::Journal;

use crate::restart_rules::RestartRules;
use crate::static_pod::{CONFIG_SEEN_ANNOTATION, CONFIG_SOURCE_ANNOTATION};
use crate::unsupported::{Supported, unsupported};

/// Marks the pod that stands for a static pod.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// All pods of the node, by UID.
#[derive(Debug)]
pub struct ApiPods {
    supported: Supported,
    rules: RestartRules,
    /// As the API server has them.
    pods: BTreeMap<PodUid, SourcePod>,
    /// As PodManager is told of them. Complete once the list has been heard.
    journal: Journal<SourcePod>,
}

impl ApiPods {
    /// Nothing has been heard, by PodSources in this incarnation.
    pub fn new(incarnation: u64, rules: RestartRules) -> Self {
        let supported = Supported::for_api_pods();
        Self { supported, rules, pods: BTreeMap::new(), journal: Journal::new(incarnation) }
    }

    /// The whole list. Returns the message that tells of it, if it brings anything new.
    pub fn all(&mut self, pods: Vec<Pod>, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let listed: Vec<PodUid> = pods.iter().map(|pod| PodRef::of(pod).uid).collect();
        let before = self.journal.digest();
        for pod in pods {
            self.changed(pod, now);
        }
        let mut gone = std::mem::take(&mut self.pods);
        for uid in &listed {
            if let Some(pod) = gone.remove(uid) {
                self.pods.insert(uid.clone(), pod);
            }
        }
        for uid in gone.keys() {
            self.journal.remove(uid, GonePod::default());
        }
        self.journal.completed();
        (self.journal.digest() != before).then(|| self.journal.snapshot())
    }

    /// One pod is new or has changed. Returns the message that tells of it, if it brings anything new.
    pub fn changed(&mut self, pod: Pod, now: Timestamp) -> Option<PodSetUpdate<SourcePod>> {
        let uid = PodRef::of(&pod).uid;
        let known = self.pods.get(&uid);
        let pod = source_pod(pod, known, &self.supported, now);
        if known.is_some_and(|known| Arc::ptr_eq(&known.pod, &pod.pod)) {
            return None;
        }
        self.pods.insert(uid.clone(), pod.clone());
        Some(self.journal.put(&uid, self.rules.of(pod)))
    }

    /// One pod is gone. What its deletion granted it is told with that: who deletes a pod by force says so in the last
    /// change before it goes, and nobody may have heard of that one yet.
    pub fn gone(&mut self, pod: &Pod) -> Option<PodSetUpdate<SourcePod>> {
        let uid = PodRef::of(pod).uid;
        self.pods.remove(&uid);
        let granted_seconds = pod.metadata.deletion_grace_period_seconds;
        self.journal.remove(&uid, GonePod { granted_seconds, superseded: false })
    }

    /// The message that tells everything, once the list has been heard.
    pub fn snapshot(&self) -> Option<PodSetUpdate<SourcePod>> {
        self.has_heard().then(|| self.journal.snapshot())
    }

    /// What PodManager compares itself with, once the list has been heard.
    pub fn digest(&self) -> Option<PodSetDigest> {
        self.has_heard().then(|| self.journal.digest())
    }

    /// How many pods there are, once the list has been heard.
    pub fn count(&self) -> Option<usize> {
        self.has_heard().then_some(self.pods.len())
    }

    fn has_heard(&self) -> bool {
        self.journal.digest().complete
    }
}

fn source_pod(mut pod: Pod, known: Option<&SourcePod>, supported: &Supported, now: Timestamp) -> SourcePod {
    // Large, and nothing here goes by it.
    pod.metadata.managed_fields = None;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    let is_mirror = annotations.contains_key(MIRROR_ANNOTATION);
    if !is_mirror {
        let seen = known
            .and_then(|known| known.pod.metadata.annotations.as_ref()?.get(CONFIG_SEEN_ANNOTATION).cloned());
        annotations.insert(CONFIG_SOURCE_ANNOTATION.to_owned(), Source::Api.as_str().to_owned());
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

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn nothing() -> ApiPods {
        ApiPods::new(1, RestartRules::default())
    }

    fn uids(pods: &ApiPods) -> Vec<String> {
        assert_eq!(pods.pods.len(), pods.journal.len());
        pods.journal.iter().map(|(uid, _)| uid.to_string()).collect()
    }

    fn only(pods: &ApiPods) -> SourcePod {
        let mut all = pods.journal.iter();
        all.next().filter(|_| pods.journal.len() == 1).expect("there is one pod").1.clone()
    }

    #[test]
    fn the_list_is_followed() {
        let mut pods = nothing();
        assert_eq!((pods.count(), pods.snapshot().is_some()), (None, false));
        assert!(matches!(pods.all(vec![], NOW), Some(PodSetUpdate::All(_))), "an empty list has been heard");
        assert!(pods.all(vec![], NOW).is_none(), "no news");
        assert!(matches!(pods.changed(plain("a"), NOW), Some(PodSetUpdate::Pod { .. })));
        pods.changed(plain("b"), NOW);
        assert!(pods.gone(&plain("a")).is_some() && pods.gone(&plain("a")).is_none());
        assert_eq!(uids(&pods), ["b"]);
        assert!(matches!(pods.all(vec![plain("c")], NOW), Some(PodSetUpdate::All(_))));
        assert_eq!(uids(&pods), ["c"]);
    }

    #[test]
    fn an_echo_is_told_to_nobody() {
        let mut pods = nothing();
        pods.all(vec![plain("a"), plain("b")], NOW);
        let mut again = plain("a");
        again.metadata.managed_fields = None;
        assert!(pods.changed(again, NOW).is_none());
        assert!(pods.all(vec![plain("a"), plain("b")], NOW).is_none(), "a list that shows the same");
    }

    #[test]
    fn what_a_deletion_granted_is_told() {
        let mut pods = nothing();
        pods.all(vec![plain("a"), plain("b")], NOW);
        let mut last = plain("a");
        last.metadata.deletion_grace_period_seconds = Some(0);
        pods.gone(&last);
        pods.gone(&plain("b"));
        let granted = |uid| pods.journal.gone(&PodUid::new(uid)).and_then(|gone| gone.granted_seconds);
        assert_eq!((granted("a"), granted("b")), (Some(0), None));
    }

    #[test]
    fn a_pod_is_marked_with_its_source_and_when_it_was_first_seen() {
        let mut pods = nothing();
        pods.changed(plain("a"), NOW);
        let first = only(&pods);
        pods.changed(plain("a"), Timestamp::from_second(1_000_000).unwrap());
        let second = only(&pods);
        assert!(Arc::ptr_eq(&first.pod, &second.pod), "nothing has changed");
        let annotations = second.pod.metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[CONFIG_SOURCE_ANNOTATION], "api");
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
        let mut pods = nothing();
        pods.changed(pod("a", spec.clone()), NOW);
        let refused = only(&pods).refused.unwrap();
        assert_eq!(refused.reason, UNSUPPORTED_FIELDS);
        assert!(refused.message.starts_with("spec.volumes[0].nfs"), "{}", refused.message);
        let mut mirror = pod("m", spec);
        mirror.metadata.annotations = Some([(MIRROR_ANNOTATION.to_owned(), "h".to_owned())].into());
        pods.all(vec![mirror], NOW);
        assert_eq!(only(&pods).refused, None);
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
