//! The fake's own tests: scripted faults, on a paused clock. Its behaviour in common with a real server is tested in
//! `api_contract`.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;

use super::*;
use crate::{ClaimStatuses, CsiNodes, Delete, Followed, Select, Traffic, VolumeObjects};
use bridge_io::clock::FakeClock;

fn fake() -> (FakeApi, ApiClient) {
    let start = "2026-01-02T03:04:05Z".parse().unwrap();
    let fake = FakeApi::new(Arc::new(FakeClock::new(1, start)));
    let api = fake.client(&Io::current());
    (fake, api)
}

fn node(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node
}

#[tokio::test(start_paused = true)]
async fn faults_are_scripted_and_calls_are_counted() {
    let (fake, api) = fake();
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::code(500));
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::too_many(7));
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::Unreachable);
    fake.fault(On::call(Verb::Create, "nodes"), 1, Fault::LostReply);
    let error = api.create(&node("n")).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (500, "InternalError"));
    // The client repeats the call when the server asks for it.
    let begun = tokio::time::Instant::now();
    let error = api.create(&node("n")).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_secs(7), "{:?}", begun.elapsed());
    assert!(error.is_unanswered() && error.message.contains("Connection refused"), "{error}");
    assert!(fake.get::<Node>(None, "n").is_none());
    let error = api.create(&node("n")).await.unwrap_err();
    assert!(error.is_unanswered() && error.message.contains("reset"), "{error}");
    assert!(fake.get::<Node>(None, "n").is_some(), "the reply was lost, not the call");
    assert!(api.create(&node("n")).await.unwrap_err().is_already_exists());
    assert_eq!(fake.count(Verb::Create, "nodes"), 5);
    assert_eq!(fake.log().len(), 5);
    assert_eq!(fake.log()[4].name.as_deref(), Some("n"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_meets_its_deadline_and_a_pause_ends() {
    let (fake, api) = fake();
    let begun = tokio::time::Instant::now();
    fake.fault(On::all(), 1, Fault::Hang);
    let error = api.get::<Node>(None, "n").await.unwrap_err();
    assert!(error.message.contains("no answer within 30 s"), "{error}");
    assert_eq!(begun.elapsed().as_secs(), 30);
    fake.fault(On::all(), 1, Fault::Latency(Duration::from_secs(3)));
    let begun = tokio::time::Instant::now();
    assert!(api.get::<Node>(None, "n").await.unwrap_err().is_not_found());
    assert_eq!(begun.elapsed().as_secs(), 3);
    fake.set_paused(true);
    let (outcome, ()) = tokio::join!(api.create(&node("n")), async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(fake.get::<Node>(None, "n").is_none());
        fake.set_paused(false);
    });
    assert_eq!(outcome.unwrap().metadata.creation_timestamp.unwrap().0.to_string(), "2026-01-02T03:04:43Z");
}

#[tokio::test(start_paused = true)]
async fn a_call_has_the_deadline_that_holds_when_it_begins() {
    let (fake, api) = fake();
    let seconds = Arc::new(AtomicU64::new(10));
    let now = seconds.clone();
    let api = api.with_deadline_by(move || Duration::from_secs(now.load(Ordering::Relaxed)));
    for within in [10, 3] {
        seconds.store(within, Ordering::Relaxed);
        fake.fault(On::call(Verb::Get, "nodes"), 1, Fault::Hang);
        let begun = tokio::time::Instant::now();
        let error = api.get::<Node>(None, "n").await.unwrap_err();
        assert!(error.message.contains(&format!("no answer within {within} s")), "{error}");
        assert_eq!(begun.elapsed().as_secs(), within);
    }
}

#[tokio::test(start_paused = true)]
async fn put_keeps_the_status_and_the_uid_that_a_test_gives() {
    let (fake, _) = fake();
    let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "web", "uid": "u-1"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}, "status": {"phase": "Running"}});
    let mut pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
    pod = fake.put(&pod);
    assert_eq!(pod.metadata.uid.as_deref(), Some("u-1"));
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(pod.spec.as_ref().unwrap().termination_grace_period_seconds, Some(30));
    pod.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    fake.put(&pod);
    let kept: k8s_openapi::api::core::v1::Pod = fake.get(Some("web"), "p").unwrap();
    assert_eq!(kept.metadata.labels, pod.metadata.labels);
    assert_eq!(kept.metadata.uid.as_deref(), Some("u-1"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_had_a_place_casts_no_doubt_on_the_server() {
    let (fake, api) = fake();
    let lane = api.lane(1);
    fake.fault(On::all(), 1, Fault::Hang);
    let begun = tokio::time::Instant::now();
    let waiting = async {
        while fake.attempts().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let error = lane.with_deadline(Duration::from_secs(5)).get::<Node>(None, "n").await.unwrap_err();
        assert!(error.message.contains("would exceed context deadline"), "{error}");
        assert_eq!((begun.elapsed().as_secs(), fake.redials()), (5, 0));
        assert_eq!(fake.attempts().values().sum::<u64>(), 1, "nor is the server asked how it is");
    };
    let (hung, ()) = tokio::join!(lane.get::<Node>(None, "n"), waiting);
    assert!(hung.unwrap_err().message.contains("no answer within 30 s"));
    assert!(fake.redials() > 0, "the server had that one");
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_thousands_of_objects_holds_up_no_status_and_no_other_namespace() {
    let (fake, _) = fake();
    fake.put(&node("n"));
    let limit = RateLimit { per_second: 50.0, burst: 100 };
    let api = fake.limited_client(&Io::current(), limit, Duration::from_secs(30));
    let objects = api.carrying(Traffic::Objects);
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..6000 {
        let objects = objects.clone();
        crowd.spawn(async move { objects.get::<Secret>(Some("crowd"), &number.to_string()).await.is_ok() });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let begun = tokio::time::Instant::now();
    for number in 0..5 {
        let (status, object, node) = tokio::join!(
            api.carrying(Traffic::Statuses).get::<Pod>(Some("crowd"), &number.to_string()),
            objects.get::<Secret>(Some("quiet"), &number.to_string()),
            api.get::<Node>(None, "n"),
        );
        assert_eq!((status.unwrap_err().code, object.unwrap_err().code), (404, 404));
        node.unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

fn of<K: Object>(mut object: Value, name: &str) -> K {
    object["metadata"]["name"] = name.into();
    typed(&object)
}

#[tokio::test(start_paused = true)]
async fn a_claim_its_volume_and_what_its_driver_needs_are_read() {
    let (fake, api) = fake();
    let claim = json!({"metadata": {"namespace": "web"}, "spec": {"volumeName": "v"}});
    fake.put::<PersistentVolumeClaim>(&of(claim, "c"));
    let source = json!({"csi": {"driver": "d", "volumeHandle": "h"}});
    fake.put::<PersistentVolume>(&of(json!({"spec": source, "status": {"phase": "Bound"}}), "v"));
    fake.put::<CSIDriver>(&of(json!({"spec": {"attachRequired": true}}), "d"));
    let attachment = json!({
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "status": {"attached": true, "attachmentMetadata": {"lun": "7"}},
    });
    fake.put::<VolumeAttachment>(&of(attachment, "a"));
    fake.put::<Secret>(&of(json!({"metadata": {"namespace": "web"}}), "s"));

    let objects: &dyn VolumeObjects = &api;
    let claim = objects.claim("web", "c").await.unwrap();
    assert_eq!(claim.spec.unwrap().volume_name.as_deref(), Some("v"));
    let volume = objects.volume("v").await.unwrap();
    assert_eq!(volume.spec.unwrap().csi.unwrap().volume_handle, "h");
    assert_eq!(volume.status.unwrap().phase.as_deref(), Some("Bound"));
    assert_eq!(objects.csi_driver("d").await.unwrap().spec.attach_required, Some(true));
    let status = objects.attachment("a").await.unwrap().status.unwrap();
    assert_eq!((status.attached, &*status.attachment_metadata.unwrap()["lun"]), (true, "7"));
    assert!(objects.secret("web", "s").await.is_ok());
    for (namespace, name) in [("web", "v"), ("default", "c")] {
        let missing = objects.claim(namespace, name).await.unwrap_err();
        assert!(missing.is_not_found(), "{missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_claim_is_changed_and_its_spec_is_not() {
    let (fake, api) = fake();
    let claim = json!({
        "metadata": {"name": "c", "namespace": "web"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
        "status": {"capacity": {"storage": "1Gi"}, "conditions": [{"type": "Resizing", "status": "True"}]},
    });
    fake.put::<PersistentVolumeClaim>(&typed(&claim));
    let statuses: &dyn ClaimStatuses = &api;
    let change = json!({
        "spec": {"resources": {"requests": {"storage": "9Gi"}}},
        "status": {"conditions": [{"type": "NodeResizeError", "status": "True"}]},
    });
    let changed = statuses.patch_status("web", "c", &Patch::Strategic(change)).await.unwrap();
    let types = |claim: PersistentVolumeClaim| {
        let conditions = claim.status.and_then(|status| status.conditions).unwrap_or_default();
        conditions.into_iter().map(|condition| condition.type_).collect::<Vec<_>>()
    };
    assert_eq!(changed.spec.clone().unwrap().resources.unwrap().requests.unwrap()["storage"].0, "2Gi");
    assert_eq!(types(changed), ["Resizing", "NodeResizeError"]);
    let finished = json!({"status": {"capacity": {"storage": "2Gi"}, "conditions": []}});
    let changed = statuses.patch_status("web", "c", &Patch::Merge(finished)).await.unwrap();
    assert_eq!(changed.status.clone().unwrap().capacity.unwrap()["storage"].0, "2Gi");
    assert_eq!(types(changed), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_csi_node_is_replaced_only_as_it_is_now() {
    let (fake, api) = fake();
    let nodes: &dyn CsiNodes = &api;
    let with = |before: &CSINode, driver: &str| {
        let mut csi_node = serde_json::to_value(before).unwrap();
        csi_node["metadata"]["name"] = "n".into();
        csi_node["spec"] = json!({"drivers": [{"name": driver, "nodeID": "i"}]});
        typed::<CSINode>(&csi_node)
    };
    assert!(nodes.get("n").await.unwrap_err().is_not_found());
    let first = nodes.create(&with(&CSINode::default(), "a")).await.unwrap();
    assert!(nodes.create(&with(&CSINode::default(), "a")).await.unwrap_err().is_already_exists());
    nodes.replace(&with(&first, "b")).await.unwrap();
    let late = nodes.replace(&with(&first, "c")).await.unwrap_err();
    assert!(late.is_conflict(), "{late}");
    assert_eq!(nodes.get("n").await.unwrap().spec.drivers[0].name, "b");
    let other = Delete { uid: Some("other".to_owned()), ..Delete::default() };
    assert!(nodes.delete("n", &other).await.is_err());
    let own = Delete { uid: first.metadata.uid, ..Delete::default() };
    nodes.delete("n", &own).await.unwrap();
    assert!(fake.get::<CSINode>(None, "n").is_none());
}

#[tokio::test(start_paused = true)]
async fn no_answer_tells_which_manager_has_set_which_field() {
    let (fake, api) = fake();
    let managed = |name: &str| {
        let mut node = node(name);
        node.metadata.managed_fields =
            Some(vec![ManagedFieldsEntry { manager: Some("m".to_owned()), ..ManagedFieldsEntry::default() }]);
        node
    };
    fake.put(&managed("n"));
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let ready = Patch::Merge(json!({"status": {"phase": "Running"}}));
    let answers = [
        api.get::<Node>(None, "n").await.unwrap(),
        api.patch::<Node>(None, "n", &labelled).await.unwrap(),
        api.patch_status::<Node>(None, "n", &ready).await.unwrap(),
        api.create(&managed("other")).await.unwrap(),
    ];
    assert!(answers.iter().all(|node| node.metadata.managed_fields.is_none()));
    for name in ["n", "other"] {
        let there = fake.get::<Node>(None, name).unwrap();
        assert!(there.metadata.managed_fields.is_some(), "{name}: the server has them");
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_object_lasts_for_half_an_hour_and_one_of_many_for_minutes() {
    let (fake, api) = fake();
    for (select, quiet, renewed) in [(Select::named(None, "n"), 29_u32, 62), (Select::default(), 4, 11)] {
        let (watches, lists) = (fake.count(Verb::Watch, "nodes"), fake.count(Verb::List, "nodes"));
        let mut followed = api.follow::<Node>(select);
        assert!(matches!(followed.next().await, Some(Followed::All(_))));
        for (minutes, is_renewed) in [(quiet, false), (renewed - quiet, true)] {
            let nothing = tokio::time::timeout(minutes * MINUTE, followed.next()).await;
            assert!(nothing.is_err(), "nothing has changed: {nothing:?}");
            let opened = fake.count(Verb::Watch, "nodes") - watches;
            assert_eq!(opened > 1, is_renewed, "{opened}");
        }
        assert_eq!(fake.count(Verb::List, "nodes"), lists + 1, "each watch goes on where the last one ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_object_that_is_silent_for_minutes_is_dead() {
    let (fake, api) = fake();
    let mut followed = api.follow::<Node>(Select::named(None, "n"));
    assert!(matches!(followed.next().await, Some(Followed::All(_))));
    assert!(tokio::time::timeout(3 * MINUTE, followed.next()).await.is_err());
    fake.mute_watches();
    fake.put(&node("n"));
    let begun = tokio::time::Instant::now();
    let news = followed.next().await;
    assert!(matches!(&news, Some(Followed::All(nodes)) if nodes.len() == 1), "{news:?}");
    assert!(begun.elapsed() > 3 * MINUTE && begun.elapsed() < 11 * MINUTE, "{:?}", begun.elapsed());
}
