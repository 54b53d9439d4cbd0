use serde_json::json;

use super::*;

fn pod(uid: &str, version: u64, status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("{uid}-name"), "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()
        },
        "status": status
    }))
    .unwrap()
}

fn status(json: Value) -> Option<Arc<PodStatus>> {
    Some(Arc::new(serde_json::from_value(json).unwrap()))
}

fn publication(uid: &str, theirs: Value, ours: Value) -> Publication {
    Publication {
        object: Some(Arc::new(pod(uid, 1, theirs))),
        is_mirror: false,
        status: status(ours),
        is_finished: false,
    }
}

fn deleted(mut publication: Publication) -> Publication {
    let mut pod = (**publication.object.as_ref().unwrap()).clone();
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-05-01T12:00:00Z")).unwrap();
    publication.object = Some(Arc::new(pod));
    publication.is_finished = true;
    publication
}

fn patched(uid: &str, version: u64, status: Value) -> Outcome {
    Outcome::Patched(Box::new(pod(uid, version, status)))
}

fn failed() -> Outcome {
    Outcome::Failed(bridge_kube::ApiError {
        operation: "PATCH".into(),
        code: 500,
        reason: String::new(),
        message: "no".into(),
        retry_after: None,
    })
}

fn uid(text: &str) -> PodUid {
    PodUid::new(text)
}

#[test]
fn a_pod_that_has_no_room_for_its_status_goes_all_the_same() {
    let mut publisher = Publisher::default();
    let too_large = || {
        Outcome::Failed(bridge_kube::ApiError {
            operation: "PATCH".into(),
            code: 500,
            reason: String::new(),
            message: "rpc error: code = InvalidArgument desc = etcdserver: request is too large".into(),
            retry_after: None,
        })
    };
    let runs = || publication("a", json!({ "phase": "Pending" }), json!({ "phase": "Running" }));
    publisher.told(&uid("a"), runs());
    assert!(matches!(publisher.next().unwrap().what, CallKind::Patch(_)));
    assert_eq!(publisher.done(&uid("a"), too_large()), None);
    assert!(matches!(publisher.next().unwrap().what, CallKind::Patch(_)), "once more");
    assert_eq!(publisher.done(&uid("a"), too_large()), Some(RETRY));
    assert_eq!(publisher.next(), None);
    let ended = publication("a", json!({ "phase": "Pending" }), json!({ "phase": "Succeeded" }));
    publisher.told(&uid("a"), deleted(ended));
    assert_eq!(publisher.next().unwrap().what, CallKind::Delete { uid: "a".to_owned() });
    assert_eq!(publisher.done(&uid("a"), failed()), Some(RETRY), "no call follows a failure at once");
    publisher.due(&uid("a"));
    assert!(matches!(publisher.next().unwrap().what, CallKind::Delete { .. }));
}

#[test]
fn what_the_server_has_is_not_sent() {
    let mut publisher = Publisher::default();
    publisher.told(&uid("a"), publication("a", json!({ "phase": "Running" }), json!({ "phase": "Running" })));
    assert_eq!(publisher.next(), None);
}

#[test]
fn one_call_at_a_time_and_the_latest_wins() {
    let mut publisher = Publisher::default();
    let at = |phase: &str| publication("a", json!({ "phase": "Pending" }), json!({ "phase": phase }));
    publisher.told(&uid("a"), at("Running"));
    assert!(publisher.next().is_some());
    publisher.told(&uid("a"), at("Unknown"));
    publisher.told(&uid("a"), at("Succeeded"));
    assert_eq!(publisher.next(), None, "one is under way");
    assert_eq!(publisher.done(&uid("a"), patched("a", 2, json!({ "phase": "Running" }))), None);
    let CallKind::Patch(patch) = publisher.next().unwrap().what else { panic!("a patch") };
    assert_eq!(patch["status"], json!({ "phase": "Succeeded" }));
    publisher.done(&uid("a"), patched("a", 3, json!({ "phase": "Succeeded" })));
    // The watch tells of a version from before the answers.
    publisher.told(&uid("a"), at("Succeeded"));
    assert_eq!(publisher.next(), None);
}

#[test]
fn what_the_server_writes_otherwise_is_not_sent_for_ever_but_a_drift_is_mended() {
    let mut publisher = Publisher::default();
    publisher.told(&uid("a"), publication("a", json!({}), json!({ "hostIP": "::0001" })));
    assert!(publisher.next().is_some());
    publisher.done(&uid("a"), patched("a", 2, json!({ "hostIP": "::1" })));
    assert_eq!(publisher.next(), None);
    let mut drifted = publication("a", json!({ "hostIP": "::2" }), json!({ "hostIP": "::0001" }));
    drifted.object = Some(Arc::new(pod("a", 3, json!({ "hostIP": "::2" }))));
    publisher.told(&uid("a"), drifted);
    assert!(publisher.next().is_some());
}

#[test]
fn few_calls_at_once_and_the_urgent_ones_first() {
    let mut publisher = Publisher::default();
    for index in 0..CALLS_MAX + 2 {
        let name = format!("p{index:02}");
        publisher.told(&uid(&name), publication(&name, json!({}), json!({ "message": "m" })));
    }
    for _ in 0..CALLS_MAX {
        assert!(publisher.next().is_some());
    }
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    publisher.told(&uid("z"), publication("z", json!({}), ready));
    let last = format!("p{:02}", CALLS_MAX + 1);
    let ended = deleted(publication(&last, json!({ "phase": "Failed" }), json!({ "phase": "Failed" })));
    publisher.told(&uid(&last), ended);
    assert_eq!(publisher.next(), None);
    let mut order = Vec::new();
    for index in 0..3 {
        publisher.done(&uid(&format!("p{index:02}")), Outcome::Gone);
        order.push(publisher.next().unwrap().pod.to_string());
    }
    assert_eq!(order, ["z".to_owned(), last, format!("p{CALLS_MAX:02}")]);
}

#[test]
fn namespaces_take_turns_and_what_is_urgent_leaves_some_to_the_crowd() {
    let mut publisher = Publisher::default();
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let mut told = |name: String, namespace: &str, ours: Value| {
        let mut publication = publication(&name, json!({}), ours);
        let object = Arc::make_mut(publication.object.as_mut().unwrap());
        object.metadata.namespace = Some(namespace.to_owned());
        publisher.told(&uid(&name), publication);
    };
    for index in 0..40 {
        told(format!("flaps{index:02}"), "crowd", ready.clone());
    }
    told("quiet".to_owned(), "quiet", json!({ "message": "m" }));
    told("ready".to_owned(), "quiet", ready.clone());
    let order: Vec<_> = (0..CALLS_MAX).map(|_| publisher.next().unwrap().pod.to_string()).collect();
    assert_eq!(&order[..2], ["flaps00", "ready"], "the other namespace has the second turn");
    assert_eq!(order.iter().position(|name| name == "quiet"), Some(7), "{order:?}");
}

#[test]
fn a_pod_that_is_over_is_deleted_once_its_end_is_known_outside() {
    let mut publisher = Publisher::default();
    let ended = json!({ "phase": "Failed" });
    publisher.told(&uid("a"), deleted(publication("a", json!({ "phase": "Running" }), ended.clone())));
    assert!(matches!(publisher.next().unwrap().what, CallKind::Patch(_)));
    let mut answer =
        (**deleted(publication("a", ended.clone(), ended.clone())).object.as_ref().unwrap()).clone();
    answer.metadata.resource_version = Some("2".into());
    publisher.done(&uid("a"), Outcome::Patched(Box::new(answer)));
    assert_eq!(publisher.next().unwrap().what, CallKind::Delete { uid: "a".into() });
    publisher.done(&uid("a"), Outcome::Deleted);
    publisher.told(&uid("a"), deleted(publication("a", ended.clone(), json!({ "phase": "Succeeded" }))));
    assert_eq!(publisher.next(), None, "there is nothing left to tell of");
}

#[test]
fn a_mirror_and_a_pod_that_is_not_finished_are_not_deleted() {
    let mut publisher = Publisher::default();
    let ended = json!({ "phase": "Failed" });
    let mirror = Publication { is_mirror: true, ..deleted(publication("a", ended.clone(), ended.clone())) };
    let working =
        Publication { is_finished: false, ..deleted(publication("b", ended.clone(), ended.clone())) };
    publisher.told(&uid("a"), mirror);
    publisher.told(&uid("b"), working);
    assert_eq!(publisher.next(), None);
}

#[test]
fn a_failed_call_is_made_again_in_time_or_with_news() {
    let mut publisher = Publisher::default();
    publisher.told(&uid("a"), publication("a", json!({}), json!({ "phase": "Running" })));
    assert!(publisher.next().is_some());
    assert_eq!(publisher.done(&uid("a"), failed()), Some(RETRY));
    assert_eq!(publisher.next(), None);
    assert_eq!(publisher.counts(), (0, 1));
    publisher.due(&uid("a"));
    assert!(publisher.next().is_some());
    publisher.done(&uid("a"), failed());
    publisher.told(&uid("a"), publication("a", json!({}), json!({ "phase": "Failed" })));
    assert!(publisher.next().is_some());
}

#[test]
fn another_uid_ends_it_until_there_is_another_pod() {
    let mut publisher = Publisher::default();
    publisher.told(&uid("s"), publication("m1", json!({}), json!({ "phase": "Running" })));
    assert!(publisher.next().is_some());
    publisher.done(&uid("s"), Outcome::Gone);
    publisher.told(&uid("s"), publication("m1", json!({}), json!({ "phase": "Failed" })));
    assert_eq!(publisher.next(), None);
    publisher.told(&uid("s"), publication("m2", json!({}), json!({ "phase": "Failed" })));
    assert!(publisher.next().is_some());
}

#[test]
fn nothing_is_kept_of_a_pod_that_is_forgotten() {
    let mut publisher = Publisher::default();
    publisher.told(&uid("a"), publication("a", json!({}), json!({ "phase": "Running" })));
    publisher.told(&uid("b"), publication("b", json!({}), json!({ "phase": "Running" })));
    assert_eq!(publisher.next().unwrap().pod, uid("a"));
    publisher.forget(&uid("a"));
    publisher.forget(&uid("b"));
    publisher.done(&uid("a"), Outcome::Deleted);
    assert!(
        publisher.pods.is_empty() && publisher.lines.urgent.is_empty() && publisher.lines.crowd.is_empty()
    );
    assert_eq!(publisher.counts(), (0, 0));
}

#[test]
fn a_server_put_back_to_an_earlier_time_is_told_again() {
    let mut publisher = Publisher::default();
    let at = |version: u64, theirs: &str| Publication {
        object: Some(Arc::new(pod("a", version, json!({ "phase": theirs })))),
        ..publication("a", json!({}), json!({ "phase": "Running" }))
    };
    publisher.told(&uid("a"), at(7, "Pending"));
    assert!(publisher.next().is_some());
    publisher.done(&uid("a"), patched("a", 90, json!({ "phase": "Running" })));
    // Late news from before the answer change nothing, and neither do news of the answer itself.
    publisher.told(&uid("a"), at(8, "Pending"));
    assert_eq!(publisher.next(), None);
    publisher.told(&uid("a"), at(90, "Running"));
    assert_eq!(publisher.next(), None);
    // The watch had never gone back to an older version before.
    publisher.told(&uid("a"), at(7, "Pending"));
    assert!(publisher.next().is_some(), "what the answer said is lost");
    publisher.done(&uid("a"), patched("a", 9, json!({ "phase": "Running" })));
    assert_eq!(publisher.next(), None);
}

#[test]
fn a_pod_that_was_deleted_and_is_there_again_is_deleted_again() {
    let mut publisher = Publisher::default();
    let failed = json!({ "phase": "Failed" });
    let gone = deleted(publication("a", failed.clone(), failed));
    let at = |version: u64| {
        let mut pod = (**gone.object.as_ref().unwrap()).clone();
        pod.metadata.resource_version = Some(version.to_string());
        Publication { object: Some(Arc::new(pod)), ..gone.clone() }
    };
    publisher.told(&uid("a"), at(20));
    assert!(matches!(publisher.next(), Some(Call { what: CallKind::Delete { .. }, .. })));
    publisher.done(&uid("a"), Outcome::Deleted);
    publisher.told(&uid("a"), at(21));
    assert_eq!(publisher.next(), None, "the news that it is gone are on their way");
    publisher.told(&uid("a"), at(10));
    assert!(matches!(publisher.next(), Some(Call { what: CallKind::Delete { .. }, .. })));
}
