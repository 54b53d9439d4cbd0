//! The server's answers, as far as they are shown. Decoding is lenient: absent and unknown fields are accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde_json::{Map, Value};

/// The answer of `/pods`: a v1 PodList.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodList {
    /// `None` (`null`) on a node without pods, as Go encodes an empty list.
    #[serde(default)]
    pub items: Option<Vec<Pod>>,
}

/// The answer of `/events`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct EventList {
    /// The events, oldest first.
    #[serde(default)]
    pub events: Vec<Event>,
}

/// A recorded event.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// The object of the event: `"node"`, or an object with the key `pod` or `manifest`.
    pub object: Value,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// CamelCase reason.
    pub reason: String,
    /// The message, for people.
    pub message: String,
    /// How often the event was recorded.
    pub count: u32,
    /// When it was recorded last.
    pub last_seen: Timestamp,
}

/// The answer of `/supervision`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Supervision {
    /// Milliseconds since the kubelet's tree was made.
    pub uptime_ms: u64,
    /// All actors, sorted by name.
    pub actors: Vec<Actor>,
    /// What happened to actors, oldest first.
    pub events: Vec<ActorEvent>,
}

/// One actor.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Actor {
    /// The actor's name; a child's is `<kind>/<key>`.
    pub name: String,
    /// Its type's name.
    pub kind: String,
    /// The name of the actor that it is a child of.
    pub parent: Option<String>,
    /// `starting`, `running`, `restarting`, `dormant`, `failed` or `stopped`.
    pub state: String,
    /// The current incarnation's number.
    pub incarnation: u64,
    /// Restarts since the process started.
    pub restarts: u64,
    /// The actor's last crash.
    pub last_crash: Option<Crash>,
    /// The number of waiting messages.
    pub mailbox_depth: u64,
    /// The most messages that may wait.
    pub mailbox_bound: u64,
    /// The quarantined pods by UID, with the panic of each.
    pub quarantined: BTreeMap<String, String>,
    /// 99th percentile of handling time, microseconds.
    pub handling_p99_us: u64,
    /// What the actor shows of its own state; null if it did not answer.
    pub observed: Value,
}

impl Actor {
    /// Whether the actor runs, starts or has been stopped, and has no pod in quarantine.
    pub fn is_well(&self) -> bool {
        matches!(self.state.as_str(), "starting" | "running" | "stopped") && self.quarantined.is_empty()
    }
}

/// A crash of an incarnation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Crash {
    /// The type of the message being handled.
    pub handling: String,
    /// The reason: a panic, a stall or an order to kill.
    pub reason: String,
    /// The place of a panic: `file:line:column`.
    pub place: Option<String>,
}

/// An event in an actor's life.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActorEvent {
    /// The actor's name.
    pub actor: String,
    /// Milliseconds since the tree was made.
    pub at_ms: u64,
    /// The kind of event: `crashed`, `restarted`, `dormant` …
    pub event: String,
    /// Further fields, which depend on the kind of event.
    #[serde(flatten)]
    pub particulars: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use messages::event_recorder::{EventObject, EventType, RecordedEvent};
    use messages::{PodRef, PodUid};
    use supervision::{EventKind, SupervisionEvent};

    use super::*;

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
        let objects: Vec<String> = read.events.iter().map(crate::view::events::object).collect();
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
        assert_eq!(
            (actor.state.as_str(), actor.mailbox_depth, actor.handling_p99_us),
            ("restarting", 3, 256)
        );
        assert_eq!(actor.last_crash.as_ref().unwrap().place.as_deref(), Some("a.rs:1:2"));
        assert!(!actor.is_well());
    }
}
