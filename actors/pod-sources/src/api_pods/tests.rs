use bridge_kube::Said;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_rules::annotations::{CONFIG_MIRROR, CONFIG_SOURCE};
use pod_set::PodSet;
use serde_json::json;

use super::*;
use crate::static_pod::CONFIG_SEEN_ANNOTATION;
use crate::unsupported::unsupported;

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

fn unread(uid: &str) -> Unreadable {
    let (namespace, name, uid, why) =
        ("ns".to_owned(), uid.to_owned(), uid.to_owned(), "too much".to_owned());
    Unreadable { namespace, name, uid, deletion: Deletion::default(), said: Said::Listed, why, beyond: None }
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn nothing() -> ApiPods {
    ApiPods::new(1, RestartRules::default())
}

/// Reads a whole list. Returns the last message that tells of it, if it brings anything new.
fn all(pods: &mut ApiPods, list: Vec<Pod>, left_alone: &BTreeSet<PodUid>) -> Option<PodSetUpdate<SourcePod>> {
    let mut told = None;
    for piece in News::pieces(Followed::All(list)) {
        let update = match piece {
            News::Changed { pod, is_listed: true } => {
                let uid = PodRef::of(&pod).uid;
                pods.note_listed(uid.clone());
                if left_alone.contains(&uid) { pods.leave_alone(pod, NOW) } else { pods.changed(pod, NOW) }
            }
            News::AllListed => pods.all_listed(NOW),
            other => panic!("a list has no {other:?}"),
        };
        told = update.or(told);
    }
    told
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
    assert_eq!((pods.count(), pods.has_heard()), (None, false));
    assert!(
        matches!(all(&mut pods, vec![], &BTreeSet::new()), Some(PodSetUpdate::All(_))),
        "an empty list has been heard"
    );
    assert!(all(&mut pods, vec![], &BTreeSet::new()).is_none(), "no news");
    assert!(matches!(pods.changed(plain("a"), NOW), Some(PodSetUpdate::Pod { .. })));
    pods.changed(plain("b"), NOW);
    assert!(pods.gone(&plain("a")).is_some() && pods.gone(&plain("a")).is_none());
    assert_eq!(uids(&pods), ["b"]);
    assert!(matches!(all(&mut pods, vec![plain("c")], &BTreeSet::new()), Some(PodSetUpdate::All(_))));
    assert_eq!(uids(&pods), ["c"]);
}

#[test]
fn a_pod_that_is_judged_elsewhere_is_there_meanwhile_and_stays_as_it_was_known() {
    let (mut pods, mut heard) = (nothing(), PodSet::default());
    let uid = PodUid::new("a");
    heard.take(all(&mut pods, vec![], &BTreeSet::new()).unwrap());
    heard.take(pods.awaits(&uid).unwrap());
    assert!(heard.is_unread(&uid) && pods.awaits(&uid).is_none(), "once");
    let verdict = pods.judge(&uid, NOW).weighed(plain("a"));
    heard.take(pods.judged(&plain("a"), verdict, NOW).expect("it is new"));
    assert!(heard.get(&uid).is_some() && !heard.is_unread(&uid));
    assert!(pods.awaits(&uid).is_none(), "it is known");
    assert!(pods.judge(&uid, NOW).of(plain("a")).is_none(), "no news");
    pods.note_listed(uid.clone());
    assert!(pods.is_listed(&uid) && !pods.is_listed(&PodUid::new("b")));
}

#[test]
fn an_echo_is_told_to_nobody() {
    let mut pods = nothing();
    all(&mut pods, vec![plain("a"), plain("b")], &BTreeSet::new());
    let mut again = plain("a");
    again.metadata.managed_fields = None;
    assert!(pods.changed(again, NOW).is_none());
    assert!(
        all(&mut pods, vec![plain("a"), plain("b")], &BTreeSet::new()).is_none(),
        "a list that shows the same"
    );
}

#[test]
fn a_pod_that_is_left_alone_goes_on_as_it_was_known_and_is_judged_when_it_is_let_in() {
    let (mut pods, alone) = (nothing(), BTreeSet::from(["a", "b"].map(PodUid::new)));
    all(&mut pods, vec![plain("a")], &BTreeSet::new());
    let mut other = plain("a");
    other.metadata.labels = Some([("app".to_owned(), "other".to_owned())].into());
    all(&mut pods, vec![other, plain("b")], &alone);
    let told = |pods: &ApiPods, uid| pods.journal.get(&PodUid::new(uid)).cloned().unwrap();
    assert_eq!((told(&pods, "a").pod.metadata.labels.clone(), told(&pods, "a").refused), (None, None));
    assert_eq!(told(&pods, "b").refused, Some(not_judged()));
    assert!(pods.leave_alone(plain("b"), NOW).is_none(), "no news");
    for uid in ["a", "b"] {
        let newest = pods.let_in(&PodUid::new(uid)).expect("there was news of it");
        assert!(pods.changed(newest, NOW).is_some(), "{uid}");
    }
    assert!(told(&pods, "a").pod.metadata.labels.is_some());
    assert_eq!(told(&pods, "b").refused, None);
    assert!(pods.let_in(&PodUid::new("b")).is_none());
}

#[test]
fn a_pod_of_the_list_that_cannot_be_read_goes_on_as_it_was_known() {
    let mut pods = nothing();
    all(&mut pods, vec![plain("a"), plain("b")], &BTreeSet::new());
    pods.unreadable(unread("a"));
    assert!(all(&mut pods, vec![plain("b")], &BTreeSet::new()).is_none());
    assert!(all(&mut pods, vec![plain("b")], &BTreeSet::new()).is_some());
    assert_eq!(uids(&pods), ["b"]);
}

#[test]
fn a_pod_of_which_nothing_is_known_is_told_as_one_that_cannot_be_read_until_it_can_or_goes() {
    let (mut pods, mut heard) = (nothing(), PodSet::default());
    let unread_in =
        |heard: &PodSet<SourcePod>| heard.unread_uids().map(ToString::to_string).collect::<Vec<_>>();
    let list = |pods: &mut ApiPods, unreadable: &[&str], listed: &[&str]| {
        unreadable.iter().for_each(|uid| pods.unreadable(unread(uid)));
        all(pods, listed.iter().map(|uid| plain(uid)).collect(), &BTreeSet::new())
    };
    heard.take(list(&mut pods, &["x", "y", "z"], &["a"]).unwrap());
    assert_eq!((unread_in(&heard), heard.len()), (vec!["x".to_owned(), "y".to_owned(), "z".to_owned()], 1));
    let removed = |heard: &PodSet<SourcePod>, uid| heard.is_removed(&PodUid::new(uid));
    assert!(heard.is_complete() && !removed(&heard, "x") && removed(&heard, "b"));
    assert!(list(&mut pods, &["x", "y", "z"], &["a"]).is_none(), "no news");
    heard.take(pods.changed(plain("x"), NOW).unwrap());
    heard.take(pods.gone(&plain("y")).unwrap());
    assert_eq!((unread_in(&heard), heard.len(), removed(&heard, "y")), (vec!["z".to_owned()], 2, true));
    heard.take(list(&mut pods, &["x"], &["a"]).unwrap());
    assert_eq!((unread_in(&heard), heard.len(), removed(&heard, "z")), (vec![], 2, true), "x is known");
    assert!(pods.unread(&unread("x"), NOW).is_none(), "what was known goes on");
    heard.take(pods.unread(&unread("new"), NOW).unwrap());
    assert_eq!(unread_in(&heard), ["new"]);
}

#[test]
fn a_pod_that_cannot_be_read_is_deleted_whether_anything_is_known_of_it_or_not() {
    let mut pods = nothing();
    all(&mut pods, vec![plain("a")], &BTreeSet::new());
    let deleted = |uid| {
        let deletion =
            Deletion { deletion_timestamp: Some(Time(NOW)), deletion_grace_period_seconds: Some(7) };
        Unreadable { deletion, ..unread(uid) }
    };
    pods.unreadable(deleted("b"));
    pods.unreadable(deleted("a"));
    assert!(all(&mut pods, vec![], &BTreeSet::new()).is_some());
    assert!(
        pods.unread(&deleted("a"), NOW).is_none() && pods.unread(&deleted("b"), NOW).is_none(),
        "no news"
    );
    for (uid, containers, refused) in [("a", 1, false), ("b", 0, true)] {
        let told = pods.journal.get(&PodUid::new(uid)).unwrap();
        assert_eq!(told.pod.metadata.deletion_timestamp, Some(Time(NOW)));
        assert_eq!(told.pod.metadata.deletion_grace_period_seconds, Some(7));
        assert_eq!(told.pod.spec.as_ref().map(|spec| spec.containers.len()), Some(containers));
        assert_eq!(told.refused.is_some(), refused);
    }
}

#[test]
fn what_a_deletion_granted_is_told() {
    let mut pods = nothing();
    all(&mut pods, vec![plain("a"), plain("b")], &BTreeSet::new());
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
    assert_eq!(annotations[CONFIG_SOURCE], "api");
    assert_eq!(annotations[CONFIG_SEEN_ANNOTATION], "1970-01-01T00:00:00Z");
    assert_eq!(second.pod.metadata.managed_fields, None);
    assert_eq!(second.refused, None);
}

#[test]
fn a_pod_that_asks_for_what_is_not_done_is_refused_and_a_mirror_never_is() {
    let spec = json!({
        "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "rbd": { "monitors": ["m"], "image": "i" } }]
    });
    let mut pods = nothing();
    pods.changed(pod("a", spec.clone()), NOW);
    let refused = only(&pods).refused.unwrap();
    assert_eq!(refused.reason, UNSUPPORTED_FIELDS);
    assert!(refused.message.starts_with("spec.volumes[0].rbd"), "{}", refused.message);
    let mut mirror = pod("m", spec);
    mirror.metadata.annotations = Some([(CONFIG_MIRROR.to_owned(), "h".to_owned())].into());
    all(&mut pods, vec![mirror], &BTreeSet::new());
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
