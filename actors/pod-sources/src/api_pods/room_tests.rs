//! What becomes of pods for which there is no room, where a namespace may have 250 kB, and twice that of what is known.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_rules::reasons::OUT_OF_KUBELET_ROOM;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const KB: usize = 1000;

/// A pod that takes about so much, and some few kB.
fn pod(namespace: &str, uid: &str, bytes: usize) -> Pod {
    let json = json!({
        "metadata": { "name": uid, "namespace": namespace, "uid": uid, "labels": { "app": "web" } },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i".repeat(bytes) }] },
        "status": { "phase": "Pending", "qosClass": "BestEffort" }
    });
    serde_json::from_value(json).unwrap()
}

fn nothing() -> ApiPods {
    ApiPods::of(1, RestartRules::default(), 500_000)
}

/// The same, after a list without pods.
fn heard() -> ApiPods {
    let mut pods = nothing();
    pods.all_listed(NOW);
    assert!(pods.has_heard());
    pods
}

fn told(pods: &ApiPods, uid: &str) -> Option<SourcePod> {
    pods.journal.get(&PodUid::new(uid)).cloned()
}

/// How long the pod's image is, as it is told.
fn image(pods: &ApiPods, uid: &str) -> Option<usize> {
    let told = told(pods, uid)?;
    told.pod.spec.as_ref()?.containers.first()?.image.as_ref().map(String::len)
}

fn is_unread(pods: &ApiPods, uid: &str) -> bool {
    pods.journal.unread_uids().any(|unread| unread.as_str() == uid)
}

#[test]
fn a_new_pod_beyond_the_share_of_its_namespace_is_refused_and_little_of_it_is_kept() {
    let mut pods = heard();
    for uid in ["a", "b", "c"] {
        assert!(pods.changed(pod("crowd", uid, 100 * KB), NOW).is_some());
    }
    pods.changed(pod("quiet", "d", 100 * KB), NOW);
    assert_eq!(
        ["a", "b", "c", "d"].map(|uid| image(&pods, uid)),
        [Some(100 * KB), Some(100 * KB), None, Some(100 * KB)]
    );
    let stub = told(&pods, "c").unwrap();
    let why = stub.refused.clone().unwrap();
    assert_eq!((&*why.reason, why.is_final()), (OUT_OF_KUBELET_ROOM, true));
    assert!(why.message.contains("256 MiB"), "{}", why.message);
    assert_eq!((stub.pod.metadata.name.as_deref(), stub.pod.metadata.labels.as_ref()), (Some("c"), None));
    assert_eq!(stub.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()), Some("n"));
    assert_eq!(stub.pod.status.as_ref().and_then(|status| status.qos_class.as_deref()), Some("BestEffort"));
    assert!(weight(&*stub.pod) < 8 * 1024, "{}", weight(&*stub.pod));
    assert!(pods.changed(pod("crowd", "c", 100 * KB), NOW).is_none(), "no news");

    pods.gone(&pod("crowd", "a", 0));
    let mut deleted = pod("crowd", "c", 100 * KB);
    deleted.metadata.deletion_timestamp = Some(Time(NOW));
    assert!(pods.changed(deleted, NOW).is_some());
    assert_eq!(image(&pods, "c"), None, "room that appears later brings no refused pod back");
    let stub = told(&pods, "c").unwrap();
    assert_eq!((stub.refused, stub.pod.metadata.deletion_timestamp.clone()), (Some(why), Some(Time(NOW))));
    pods.changed(pod("crowd", "e", 100 * KB), NOW);
    assert_eq!(image(&pods, "e"), Some(100 * KB), "a new one has it");
}

#[test]
fn a_pod_that_is_known_grows_and_beyond_that_goes_on_as_it_was() {
    let mut pods = heard();
    pods.changed(pod("crowd", "a", 100 * KB), NOW);
    assert!(pods.changed(pod("crowd", "a", 400 * KB), NOW).is_some());
    assert!(pods.changed(pod("crowd", "a", 600 * KB), NOW).is_none());
    assert_eq!(image(&pods, "a"), Some(400 * KB));
    let mut deleted = pod("crowd", "a", 600 * KB);
    deleted.metadata.deletion_timestamp = Some(Time(NOW));
    assert!(pods.changed(deleted.clone(), NOW).is_some());
    let goes = told(&pods, "a").unwrap();
    assert_eq!((goes.refused, image(&pods, "a")), (None, Some(400 * KB)));
    assert_eq!(goes.pod.metadata.deletion_timestamp, Some(Time(NOW)));
    assert!(pods.changed(deleted, NOW).is_none(), "no news");
    pods.gone(&pod("crowd", "a", 0));
    pods.changed(pod("crowd", "b", 200 * KB), NOW);
    assert_eq!(image(&pods, "b"), Some(200 * KB), "what is gone takes nothing");
}

#[test]
fn pods_of_the_first_list_may_run_already_and_none_of_them_is_refused() {
    let mut pods = nothing();
    for uid in ["a", "b", "c", "d", "e"] {
        pods.note_listed(PodUid::new(uid));
        pods.changed(pod("crowd", uid, 100 * KB), NOW);
    }
    assert!(pods.all_listed(NOW).is_some());
    for uid in ["a", "b", "c", "d"] {
        assert_eq!((image(&pods, uid), told(&pods, uid).unwrap().refused), (Some(100 * KB), None), "{uid}");
    }
    assert!(told(&pods, "e").is_none() && is_unread(&pods, "e"), "its absence means nothing");
    assert!(pods.changed(pod("crowd", "e", 100 * KB), NOW).is_none() && is_unread(&pods, "e"));
    pods.gone(&pod("crowd", "d", 0));
    pods.changed(pod("crowd", "e", 100 * KB), NOW);
    assert_eq!((image(&pods, "e"), is_unread(&pods, "e")), (Some(100 * KB), false));
}

fn critical(namespace: &str, uid: &str, bytes: usize) -> Pod {
    let mut pod = pod(namespace, uid, bytes);
    pod.spec.as_mut().unwrap().priority_class_name = Some("system-node-critical".to_owned());
    pod
}

/// Two namespaces take all that they can, with what is known and has grown.
fn crowded() -> ApiPods {
    let mut pods = heard();
    for uid in ["a", "b"] {
        pods.changed(pod(uid, uid, 200 * KB), NOW);
        for bytes in (210..480).step_by(10) {
            pods.changed(pod(uid, uid, bytes * KB), NOW);
        }
    }
    pods
}

#[test]
fn namespaces_that_take_all_they_can_leave_room_to_small_ones_and_to_critical_pods() {
    let mut pods = crowded();
    pods.changed(pod("quiet", "small", 4 * KB), NOW);
    pods.changed(pod("third", "large", 100 * KB), NOW);
    pods.changed(critical("system", "critical", 100 * KB), NOW);
    assert_eq!(
        ["small", "large", "critical"].map(|uid| image(&pods, uid)),
        [Some(4 * KB), None, Some(100 * KB)]
    );
    assert!(told(&pods, "large").unwrap().refused.is_some());
}

#[test]
fn all_pods_are_asked_for_again_when_there_is_room_for_one_that_was_left_out() {
    let mut pods = heard();
    pods.changed(pod("crowd", "a", 100 * KB), NOW);
    pods.changed(pod("crowd", "b", 100 * KB), NOW);
    pods.changed(pod("crowd", "a", 380 * KB), NOW);
    assert!(pods.changed(pod("crowd", "b", 200 * KB), NOW).is_none(), "it goes on as it was");
    assert!(!pods.wants_list(), "nothing has become free");
    pods.changed(pod("crowd", "a", 370 * KB), NOW);
    assert!(!pods.wants_list(), "that is too little");
    pods.gone(&pod("crowd", "a", 0));
    assert!(pods.wants_list() && !pods.wants_list(), "once");
    pods.changed(pod("crowd", "b", 200 * KB), NOW);
    pods.gone(&pod("crowd", "b", 0));
    assert!(!pods.wants_list(), "none is left out");
}

#[test]
fn a_pod_of_the_first_list_beyond_its_bound_is_asked_for_again_when_there_is_room() {
    let mut pods = nothing();
    pods.changed(pod("crowd", "a", 400 * KB), NOW);
    pods.note_listed(PodUid::new("a"));
    pods.unreadable(room::unreadable(&pod("crowd", "b", 200 * KB), 210_000));
    pods.all_listed(NOW);
    assert!(is_unread(&pods, "b") && !pods.wants_list());
    pods.gone(&pod("crowd", "a", 0));
    assert!(pods.wants_list());
    pods.list_begins();
    assert!(!pods.wants_list());
}

#[test]
fn a_new_pod_without_room_even_for_little_of_it_is_still_new_with_its_next_version() {
    let mut pods = heard();
    pods.changed(pod("crowd", "a", 200 * KB), NOW);
    pods.changed(pod("crowd", "a", 490 * KB), NOW);
    for _ in 0..2 {
        pods.changed(pod("crowd", "b", 300 * KB), NOW);
        assert!(told(&pods, "b").is_none() && is_unread(&pods, "b"));
    }
    pods.gone(&pod("crowd", "a", 0));
    assert!(pods.wants_list());
    // As much as what is known may have.
    pods.changed(pod("crowd", "b", 300 * KB), NOW);
    assert!(told(&pods, "b").is_some_and(|told| told.refused.is_some()));
}

#[test]
fn the_deletion_of_a_pod_that_cannot_be_read_is_told_once_and_judges_nothing_anew() {
    let mut pods = heard();
    // Judged anew, it would not be refused.
    pods.leave_alone(pod("ns", "a", KB), NOW);
    let before = not_judged();
    let mut deleted = pod("ns", "a", KB);
    deleted.metadata.deletion_timestamp = Some(Time(NOW));
    let one = room::unreadable(&deleted, 0);
    assert!(pods.unread(&one, NOW).is_some());
    let told = |pods: &ApiPods| told(pods, "a").unwrap();
    let first = told(&pods);
    assert_eq!((first.refused, &first.pod.metadata.deletion_timestamp), (Some(before), &Some(Time(NOW))));
    assert!(pods.unread(&one, NOW).is_none() && Arc::ptr_eq(&first.pod, &told(&pods).pod), "no news");
}
