//! The server's answers, as far as they are shown. Decoding is lenient: absent and unknown fields are accepted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

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

impl Event {
    /// The UID of the pod that the event is about.
    pub fn pod_uid(&self) -> Option<&str> {
        let pod = self.object.get("pod").and_then(|object| object.get("pod"))?;
        pod.get("uid").and_then(Value::as_str)
    }
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

impl Crash {
    /// The crash in one line.
    pub fn line(&self) -> String {
        let place = self.place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default();
        format!("{}: {}{place}", self.handling, self.reason)
    }
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
