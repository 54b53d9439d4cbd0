//! What the kubelet writes is what the companion reads.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use jiff::Timestamp;
use messages::event_recorder::{EventObject, EventType, RecordedEvent};
use messages::{PodRef, PodUid};
use pod_why::model::{EventList, Supervision};
use supervision::{EventKind, SupervisionEvent};

#[test]
fn events_are_read_as_the_kubelet_writes_them() {
    let pod = PodRef { uid: PodUid::new("u"), namespace: Arc::from("default"), name: Arc::from("web") };
    let recorded = RecordedEvent {
        object: EventObject::Pod { pod, field_path: Arc::from("spec.containers{server}") },
        event_type: EventType::Warning,
        reason: Arc::from("Unhealthy"),
        message: Arc::from("Readiness probe failed"),
        count: 3,
        first_seen: Timestamp::UNIX_EPOCH,
        last_seen: "2026-01-01T00:00:00Z".parse().unwrap(),
        annotations: Arc::default(),
    };
    let node = RecordedEvent { object: EventObject::Node, ..recorded.clone() };
    let path = Arc::from("/etc/kubernetes/manifests/web.yaml");
    let manifest = RecordedEvent { object: EventObject::Manifest { path }, ..recorded.clone() };
    let text = serde_json::json!({ "events": [recorded, node, manifest] }).to_string();
    let read: EventList = serde_json::from_str(&text).unwrap();
    assert_eq!(read.events[0].event_type, "Warning");
    assert_eq!(read.events[0].count, 3);
    assert_eq!(read.events[0].last_seen.to_string(), "2026-01-01T00:00:00Z");
    let objects: Vec<String> = read.events.iter().map(understudy::view::events::object).collect();
    assert_eq!(objects, ["default/web server", "node", "web.yaml"]);
}

#[test]
fn supervision_is_read_as_the_kubelet_writes_it() {
    let crash = supervision::Crash {
        incarnation: 2,
        handling: "PodTouched".to_owned(),
        pod: None,
        reason: "boom".to_owned(),
        place: Some("a.rs:1:2".to_owned()),
    };
    let event =
        SupervisionEvent { actor: "Pleg".to_owned(), at_ms: 5, what: EventKind::Crashed(crash.clone()) };
    let actor = serde_json::json!({
        "name": "Pleg", "kind": "Pleg", "vitality": "vital", "state": supervision::State::Restarting,
        "incarnation": 2, "restarts": 1, "lastCrash": crash, "mailboxDepth": 3, "mailboxBound": 1024,
        "receives": [], "handled": 1, "handlingP99Us": 256, "observed": null,
    });
    let text = serde_json::json!({ "uptimeMs": 7, "actors": [actor], "events": [event] }).to_string();
    let read: Supervision = serde_json::from_str(&text).unwrap();
    assert_eq!(read.events[0].event, "crashed");
    assert_eq!(read.events[0].particulars["handling"], "PodTouched");
    let actor = &read.actors[0];
    assert_eq!((actor.state.as_str(), actor.mailbox_depth, actor.handling_p99_us), ("restarting", 3, 256));
    assert_eq!(actor.last_crash.as_ref().unwrap().place.as_deref(), Some("a.rs:1:2"));
    assert!(!actor.is_well());
}
