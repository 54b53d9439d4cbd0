//! Objects: made, read, listed, replaced, changed and deleted.

use bridge_kube::{Delete, Followed, Patch, Select};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod};
use serde_json::{Value, json};

use crate::subject::{Case, Subject, json as value, object};

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const ALL: &[(&str, Case)] = &[$((stringify!($name), |subject| Box::pin($name(subject)))),*];
    };
}
pub(crate) use cases;

cases![
    a_new_object_has_what_the_server_gives,
    names_are_generated_checked_and_taken_once,
    what_is_not_there_is_not_found,
    a_replacement_needs_the_current_version,
    a_lease_is_created_by_its_replacement,
    an_unchanged_object_keeps_its_version,
    fields_select,
    a_list_that_is_too_long_for_one_answer_is_read_in_pages,
    a_merge_patch_changes_and_removes,
    conditions_and_addresses_are_merged_by_type,
    the_ips_of_a_pod_are_merged,
    status_and_spec_are_apart,
    a_node_registers_with_its_status,
    a_patch_for_another_uid_is_invalid,
    a_pod_has_a_generation,
    a_bound_pod_is_deleted_with_grace,
    a_deletion_can_require_a_uid,
    unbound_and_ended_pods_go_at_once,
    finalizers_hold_what_is_deleted,
    contents_are_checked,
    events_are_kept,
];

fn config_map(subject: &Subject, name: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name, "namespace": subject.namespace}, "data": {"a": "1"}}))
}

fn version<K: bridge_kube::Object>(object: &K) -> String {
    object.meta().resource_version.clone().expect("a version")
}

async fn a_new_object_has_what_the_server_gives(subject: &Subject) {
    let made = subject.api.create(&config_map(subject, "c")).await.expect("made");
    let meta = &made.metadata;
    assert_eq!(meta.uid.as_deref().unwrap_or_default().len(), 36, "{meta:?}");
    assert!(meta.creation_timestamp.is_some() && meta.resource_version.is_some(), "{meta:?}");
    assert_eq!(meta.namespace.as_deref(), subject.ns());
    let read: ConfigMap = subject.api.get(subject.ns(), "c").await.expect("there");
    assert_eq!(read, made);
    assert_eq!(read.data.expect("data")["a"], "1");
}

async fn names_are_generated_checked_and_taken_once(subject: &Subject) {
    subject.api.create(&config_map(subject, "c")).await.expect("made");
    let error = subject.api.create(&config_map(subject, "c")).await.expect_err("it is there");
    assert!(error.is_already_exists() && !error.is_conflict(), "{error:?}");
    assert!(error.message.contains(r#"configmaps "c" already exists"#), "{error}");
    let generated =
        object::<ConfigMap>(json!({"metadata": {"generateName": "made-", "namespace": subject.namespace}}));
    let first = subject.api.create(&generated).await.expect("made").metadata.name.expect("a name");
    let second = subject.api.create(&generated).await.expect("made").metadata.name.expect("a name");
    assert!(first.starts_with("made-") && first.len() == 10 && first != second, "{first} {second}");
    for name in ["", "Upper", "-dash"] {
        let error = subject.api.create(&config_map(subject, name)).await.expect_err("no name");
        assert!(error.is_invalid() && error.reason == "Invalid", "{error:?}");
    }
    let mut elsewhere = config_map(subject, "x");
    elsewhere.metadata.namespace = Some("no-such-namespace".to_owned());
    let error = subject.api.create(&elsewhere).await.expect_err("no namespace");
    assert!(error.is_not_found() && error.message.contains("no-such-namespace"), "{error:?}");
}

async fn what_is_not_there_is_not_found(subject: &Subject) {
    let error = subject.api.get::<ConfigMap>(subject.ns(), "no").await.expect_err("nothing there");
    assert!(error.is_not_found() && error.reason == "NotFound", "{error:?}");
    assert!(error.message.contains(r#"configmaps "no" not found"#), "{error}");
    assert!(error.operation.starts_with("GET /api/v1/namespaces/"), "{error}");
    let patch = Patch::Merge(json!({"data": {}}));
    let error = subject.api.patch::<ConfigMap>(subject.ns(), "no", &patch).await.expect_err("nothing there");
    assert!(error.is_not_found(), "{error:?}");
    let error =
        subject.api.delete::<ConfigMap>(subject.ns(), "no", &Delete::default()).await.expect_err("nothing");
    assert!(error.is_not_found(), "{error:?}");
    let error = subject.api.replace(&config_map(subject, "no")).await.expect_err("nothing there");
    assert!(error.is_not_found(), "{error:?}");
}

async fn a_replacement_needs_the_current_version(subject: &Subject) {
    let first = subject.api.create(&config_map(subject, "c")).await.expect("made");
    let mut next = first.clone();
    next.data = Some([("a".to_owned(), "2".to_owned())].into());
    let second = subject.api.replace(&next).await.expect("replaced");
    assert_ne!(version(&first), version(&second));
    assert_eq!(first.metadata.uid, second.metadata.uid);
    let error = subject.api.replace(&next).await.expect_err("an old version");
    assert!(error.is_conflict() && error.reason == "Conflict", "{error:?}");
    assert!(error.message.contains("the object has been modified"), "{error}");
    next.metadata.resource_version = None;
    subject.api.replace(&next).await.expect("of a config map, any version will do");
    let mut other = next.clone();
    other.metadata.uid = Some("11111111-2222-3333-4444-555555555555".to_owned());
    let error = subject.api.replace(&other).await.expect_err("another UID");
    assert!(error.is_conflict(), "{error:?}");
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": version(&first)}, "data": {"a": "3"}}));
    let error = subject.api.patch::<ConfigMap>(subject.ns(), "c", &stale).await.expect_err("an old version");
    assert!(error.is_conflict(), "{error:?}");
}

fn lease(subject: &Subject) -> Lease {
    object(json!({"metadata": {"name": "l", "namespace": subject.namespace},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2026-01-02T03:04:05.000006Z"}}))
}

async fn a_lease_is_created_by_its_replacement(subject: &Subject) {
    let made = subject.api.replace(&lease(subject)).await.expect("made");
    assert!(made.metadata.uid.is_some());
    let renewed = subject.api.replace(&made).await.expect("renewed");
    assert_eq!(renewed.metadata.uid, made.metadata.uid);
    let error = subject.api.replace(&lease(subject)).await.expect_err("no version");
    assert!(error.is_invalid() && error.message.contains("resourceVersion"), "{error:?}");
    let mut wrong = renewed.clone();
    wrong.spec.as_mut().expect("a spec").lease_duration_seconds = Some(0);
    let error = subject.api.replace(&wrong).await.expect_err("no duration");
    assert!(error.is_invalid() && error.message.contains("spec.leaseDurationSeconds"), "{error:?}");
}

async fn an_unchanged_object_keeps_its_version(subject: &Subject) {
    let made = subject.api.create(&config_map(subject, "c")).await.expect("made");
    let same = subject.api.replace(&made).await.expect("replaced");
    assert_eq!(version(&made), version(&same));
    let patch = Patch::Merge(json!({"data": {"a": "1"}}));
    let same: ConfigMap = subject.api.patch(subject.ns(), "c", &patch).await.expect("patched");
    assert_eq!(version(&made), version(&same));
}

async fn fields_select(subject: &Subject) {
    for name in ["a", "b"] {
        subject.api.create(&config_map(subject, name)).await.expect("made");
    }
    subject.created("bound").await;
    let mut other = subject.pod("other");
    other.spec.as_mut().expect("a spec").node_name = None;
    subject.api.create(&other).await.expect("made");
    let names = |pods: Vec<Pod>| pods.into_iter().filter_map(|pod| pod.metadata.name).collect::<Vec<_>>();
    let bound = subject.api.list::<Pod>(&Select::pods_of(&subject.namespace)).await.expect("a list");
    assert_eq!(names(bound), ["bound"]);
    let all = subject.api.list::<Pod>(&subject.all()).await.expect("a list");
    assert_eq!(names(all), ["bound", "other"]);
    let one = subject.api.list::<ConfigMap>(&Select::named(subject.ns(), "b")).await.expect("a list");
    assert_eq!(one.len(), 1);
    let unknown = Select { fields: Some("spec.colour=red".to_owned()), ..subject.all() };
    let error = subject.api.list::<Pod>(&unknown).await.expect_err("no such field");
    assert_eq!((error.code, error.reason.as_str()), (400, "BadRequest"), "{error}");
}

async fn a_list_that_is_too_long_for_one_answer_is_read_in_pages(subject: &Subject) {
    for name in ["a", "b", "c"] {
        let mut large = config_map(subject, name);
        large.data = Some([("text".to_owned(), "x".repeat(30_000))].into());
        subject.api.create(&large).await.expect("made");
    }
    let names = |all: Vec<ConfigMap>| {
        let names = all.into_iter().filter_map(|one| one.metadata.name);
        names.filter(|name| name.len() == 1).collect::<Vec<_>>()
    };
    // One fits in, two do not.
    let api = subject.api.clone().taking(50_000);
    let all = api.list::<ConfigMap>(&subject.all()).await.expect("a list");
    assert_eq!(names(all), ["a", "b", "c"]);
    let Some(Followed::All(all)) = api.follow::<ConfigMap>(subject.all()).next().await else {
        panic!("there is a list")
    };
    assert_eq!(names(all), ["a", "b", "c"]);
    let error =
        subject.api.clone().taking(20_000).list::<ConfigMap>(&subject.all()).await.expect_err("too long");
    assert!(error.message.contains("longer than 20000 bytes"), "{error}");
}

async fn a_merge_patch_changes_and_removes(subject: &Subject) {
    subject.api.create(&config_map(subject, "c")).await.expect("made");
    let patch = Patch::Merge(json!({"data": {"a": null, "b": "2"}, "metadata": {"labels": {"x": "y"}}}));
    let changed: ConfigMap = subject.api.patch(subject.ns(), "c", &patch).await.expect("patched");
    assert_eq!(changed.data, Some([("b".to_owned(), "2".to_owned())].into()));
    assert_eq!(changed.metadata.labels, Some([("x".to_owned(), "y".to_owned())].into()));
}

fn node(subject: &Subject) -> Node {
    object(json!({"metadata": {"name": subject.namespace, "labels": {"a": "b"}},
        "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "KubeletReady"},
            {"type": "DiskPressure", "status": "False"}],
          "addresses": [{"type": "Hostname", "address": "h"}]}}))
}

/// The `field`s of the items of a list, sorted.
fn each(object: &Value, list: &str, field: &str) -> Vec<String> {
    let items = object.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let mut found: Vec<String> =
        items.map(|item| item[field].as_str().unwrap_or_default().to_owned()).collect();
    found.sort();
    found
}

async fn conditions_and_addresses_are_merged_by_type(subject: &Subject) {
    let made = subject.api.create(&node(subject)).await.expect("made");
    assert_eq!(made.metadata.generation, None);
    let patch = Patch::Strategic(json!({"status": {
        "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PIDPressure"}],
        "conditions": [{"type": "Ready", "status": "False", "reason": null}, {"$patch": "delete", "type": "DiskPressure"},
            {"type": "PIDPressure", "status": "False"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"cpu": "2"}}}));
    let patched: Node = subject.api.patch_status(None, &subject.namespace, &patch).await.expect("patched");
    let patched = value(&patched);
    assert_eq!(each(&patched, "/status/conditions", "type"), ["PIDPressure", "Ready"]);
    let ready = &patched["status"]["conditions"].as_array().expect("conditions")[..];
    let ready = ready.iter().find(|condition| condition["type"] == "Ready").expect("Ready");
    assert_eq!((&ready["status"], ready.get("reason")), (&json!("False"), None));
    assert_eq!(each(&patched, "/status/addresses", "type"), ["Hostname", "InternalIP"]);
    let patch = Patch::Strategic(json!({"status": {
        "addresses": [{"type": "Hostname", "address": "x"}, {"$patch": "replace"}]}}));
    let patched: Node = subject.api.patch_status(None, &subject.namespace, &patch).await.expect("patched");
    assert_eq!(each(&value(&patched), "/status/addresses", "address"), ["x"]);
    subject.api.delete::<Node>(None, &subject.namespace, &Delete::default()).await.expect("deleted");
}

async fn the_ips_of_a_pod_are_merged(subject: &Subject) {
    subject.created("p").await;
    let patch = |status: Value| Patch::Strategic(json!({ "status": status }));
    let first = patch(json!({"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "1.1.1.1", "hostIPs": [{"ip": "1.1.1.1"}],
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{"name": "a", "ready": false, "restartCount": 0, "image": "i", "imageID": ""}]}));
    let pod: Pod = subject.api.patch_status(subject.ns(), "p", &first).await.expect("patched");
    assert_eq!(each(&value(&pod), "/status/podIPs", "ip"), ["10.0.0.1"]);
    let next = patch(json!({"podIP": "10.0.0.2",
        "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
        "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "b", "ready": true, "restartCount": 1, "image": "j", "imageID": ""}]}));
    let pod: Pod = subject.api.patch_status(subject.ns(), "p", &next).await.expect("patched");
    let pod = value(&pod);
    assert_eq!(each(&pod, "/status/podIPs", "ip"), ["10.0.0.2"]);
    assert_eq!(each(&pod, "/status/conditions", "type"), ["PodScheduled", "Ready"]);
    assert_eq!(each(&pod, "/status/containerStatuses", "name"), ["b"], "the whole list is replaced");
    assert_eq!(pod["status"]["phase"], "Running");
}

async fn status_and_spec_are_apart(subject: &Subject) {
    let made = subject.created("p").await;
    let both = Patch::Strategic(json!({"metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "a", "image": "changed"}]}, "status": {"phase": "Running"}}));
    let by_status: Pod = subject.api.patch_status(subject.ns(), "p", &both).await.expect("patched");
    assert_eq!(by_status.spec, made.spec);
    assert_eq!(by_status.status.as_ref().expect("a status").phase.as_deref(), Some("Running"));
    let both = Patch::Strategic(json!({
        "spec": {"containers": [{"name": "a", "image": "changed"}]}, "status": {"phase": "Failed"}}));
    let by_spec: Pod = subject.api.patch(subject.ns(), "p", &both).await.expect("patched");
    let containers = by_spec.spec.expect("a spec").containers;
    assert_eq!(containers[0].image.as_deref(), Some("changed"));
    assert_eq!(containers.len(), 2, "containers are merged by name");
    assert_eq!(by_spec.status.expect("a status").phase.as_deref(), Some("Running"));
}

async fn a_node_registers_with_its_status(subject: &Subject) {
    let made = subject.api.create(&node(subject)).await.expect("made");
    assert_eq!(made.status.expect("a status").conditions.expect("conditions").len(), 2);
    let patch = Patch::Strategic(
        json!({"metadata": {"labels": {"a": null, "c": "d"}}, "spec": {"unschedulable": true}}),
    );
    let changed: Node = subject.api.patch(None, &subject.namespace, &patch).await.expect("patched");
    assert_eq!(changed.metadata.labels, Some([("c".to_owned(), "d".to_owned())].into()));
    assert_eq!(changed.spec.expect("a spec").unschedulable, Some(true));
    assert_eq!(changed.status.expect("a status").conditions.expect("conditions").len(), 2);
    subject.api.delete::<Node>(None, &subject.namespace, &Delete::default()).await.expect("deleted");
}

async fn a_patch_for_another_uid_is_invalid(subject: &Subject) {
    subject.created("p").await;
    let patch = Patch::Strategic(json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"},
        "status": {"phase": "Running"}}));
    let error = subject.api.patch_status::<Pod>(subject.ns(), "p", &patch).await.expect_err("another pod");
    assert!(error.is_invalid() && error.message.contains("field is immutable"), "{error:?}");
}

async fn a_pod_has_a_generation(subject: &Subject) {
    let made = subject.created("p").await;
    assert_eq!(made.metadata.generation, Some(1));
    assert_eq!(made.status.expect("a status").phase.as_deref(), Some("Pending"));
    let spec = made.spec.expect("a spec");
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    let policies: Vec<_> = spec.containers.iter().filter_map(|c| c.image_pull_policy.as_deref()).collect();
    assert_eq!(policies, ["Always", "IfNotPresent"]);
    let image = Patch::Strategic(json!({"spec": {"containers": [{"name": "a", "image": "k"}]}}));
    let changed: Pod = subject.api.patch(subject.ns(), "p", &image).await.expect("patched");
    assert_eq!(changed.metadata.generation, Some(2));
    let label = Patch::Merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let changed: Pod = subject.api.patch(subject.ns(), "p", &label).await.expect("patched");
    assert_eq!(changed.metadata.generation, Some(2));
    let host = Patch::Merge(json!({"spec": {"hostname": "h"}}));
    let error = subject.api.patch::<Pod>(subject.ns(), "p", &host).await.expect_err("forbidden");
    assert!(error.is_invalid() && error.message.contains("pod updates may not change fields"), "{error}");
}

async fn a_bound_pod_is_deleted_with_grace(subject: &Subject) {
    let made = subject.created("p").await;
    let grace = |seconds| Delete { grace_seconds: seconds, uid: None };
    subject.api.delete::<Pod>(subject.ns(), "p", &grace(None)).await.expect("deleted");
    let leaving: Pod = subject.api.get(subject.ns(), "p").await.expect("still there");
    assert!(leaving.metadata.deletion_timestamp.is_some());
    assert_eq!(leaving.metadata.deletion_grace_period_seconds, Some(30));
    assert_eq!(leaving.metadata.generation, Some(2));
    subject.api.delete::<Pod>(subject.ns(), "p", &grace(Some(60))).await.expect("deleted again");
    let longer: Pod = subject.api.get(subject.ns(), "p").await.expect("still there");
    assert_eq!(longer.metadata.deletion_grace_period_seconds, Some(30), "grace never grows");
    subject.api.delete::<Pod>(subject.ns(), "p", &grace(Some(5))).await.expect("deleted sooner");
    let sooner: Pod = subject.api.get(subject.ns(), "p").await.expect("still there");
    assert_eq!(sooner.metadata.deletion_grace_period_seconds, Some(5));
    assert!(sooner.metadata.deletion_timestamp < leaving.metadata.deletion_timestamp);
    subject.api.delete::<Pod>(subject.ns(), "p", &grace(Some(0))).await.expect("deleted at last");
    let error = subject.api.get::<Pod>(subject.ns(), "p").await.expect_err("gone");
    assert!(error.is_not_found(), "{error:?}");
    let again = subject.created("p").await;
    assert_ne!(again.metadata.uid, made.metadata.uid);
}

async fn a_deletion_can_require_a_uid(subject: &Subject) {
    let made = subject.created("p").await;
    let other =
        Delete { grace_seconds: Some(0), uid: Some("11111111-2222-3333-4444-555555555555".to_owned()) };
    let error = subject.api.delete::<Pod>(subject.ns(), "p", &other).await.expect_err("another pod");
    assert!(error.is_conflict(), "{error:?}");
    assert!(error.message.contains("the UID in the precondition (11111111"), "{error}");
    let this = Delete { grace_seconds: Some(0), uid: made.metadata.uid };
    subject.api.delete::<Pod>(subject.ns(), "p", &this).await.expect("deleted");
}

async fn unbound_and_ended_pods_go_at_once(subject: &Subject) {
    subject.created("ended").await;
    let ended = Patch::Strategic(json!({"status": {"phase": "Failed"}}));
    subject.api.patch_status::<Pod>(subject.ns(), "ended", &ended).await.expect("patched");
    let mut unbound = subject.pod("unbound");
    unbound.spec.as_mut().expect("a spec").node_name = None;
    subject.api.create(&unbound).await.expect("made");
    for name in ["ended", "unbound"] {
        subject.api.delete::<Pod>(subject.ns(), name, &Delete::default()).await.expect("deleted");
        assert!(subject.api.get::<Pod>(subject.ns(), name).await.expect_err("gone").is_not_found());
    }
}

async fn finalizers_hold_what_is_deleted(subject: &Subject) {
    let mut held = config_map(subject, "c");
    held.metadata.finalizers = Some(vec!["understudy.dev/held".to_owned()]);
    subject.api.create(&held).await.expect("made");
    subject.api.delete::<ConfigMap>(subject.ns(), "c", &Delete::default()).await.expect("deleted");
    let there: ConfigMap = subject.api.get(subject.ns(), "c").await.expect("held");
    assert!(there.metadata.deletion_timestamp.is_some());
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    subject.api.patch::<ConfigMap>(subject.ns(), "c", &free).await.expect("freed");
    assert!(subject.api.get::<ConfigMap>(subject.ns(), "c").await.expect_err("gone").is_not_found());
}

async fn contents_are_checked(subject: &Subject) {
    let mut empty = subject.pod("p");
    empty.spec.as_mut().expect("a spec").containers.clear();
    let error = subject.api.create(&empty).await.expect_err("no containers");
    assert!(error.is_invalid() || error.is_forbidden(), "{error:?}");
    subject.created("q").await;
    let keyless = Patch::Strategic(json!({"status": {"conditions": [{"status": "True"}]}}));
    let error = subject.api.patch_status::<Pod>(subject.ns(), "q", &keyless).await.expect_err("no key");
    assert!(matches!(error.code, 400 | 422 | 500), "{error:?}");
}

async fn events_are_kept(subject: &Subject) {
    let event: Event = object(json!({
        "metadata": {"name": "p.17a", "namespace": subject.namespace},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": subject.namespace},
        "reason": "Started", "message": "m", "type": "Normal", "count": 1,
        "source": {"component": "kubelet", "host": "n"}}));
    subject.api.create(&event).await.expect("made");
    let patch = Patch::Strategic(json!({"count": 2, "message": "again"}));
    let event: Event = subject.api.patch(subject.ns(), "p.17a", &patch).await.expect("patched");
    assert_eq!((event.count, event.message.as_deref()), (Some(2), Some("again")));
    let about = Select { fields: Some("involvedObject.name=p,reason=Started".to_owned()), ..subject.all() };
    assert_eq!(subject.api.list::<Event>(&about).await.expect("a list").len(), 1);
}
