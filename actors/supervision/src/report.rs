//! The state of the tree as plain data, for `/supervision` and for `understudy top`.

use std::collections::BTreeMap;

use messages::PodUid;
use serde::Serialize;
use serde_json::Value;

use crate::cell::{CountersReport, Crash, State, Vitality};
use crate::effects::EffectReport;
use crate::events::SupervisionEvent;

/// There is no actor of that name in the tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no actor {0:?} in the supervision tree")]
pub struct NoSuchActor(pub String);

/// The whole tree at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Milliseconds since the tree was made.
    pub uptime_ms: u64,
    /// Every actor, by name.
    pub actors: Vec<ActorReport>,
    /// The last events, oldest first.
    pub events: Vec<SupervisionEvent>,
}

/// One actor.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActorReport {
    /// The actor's name in the tree; that of a child is `<kind>/<key>`.
    pub name: String,
    /// The name of the actor's type.
    pub kind: &'static str,
    /// The name of the parent, for a child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How much the node needs it.
    pub vitality: Vitality,
    /// The state that supervision has the actor in.
    pub state: State,
    /// The current incarnation's number.
    pub incarnation: u64,
    /// Restarts since the process started.
    pub restarts: u64,
    /// Crashes since the process started that counted against pods.
    pub pod_crashes: u64,
    /// The last crash of any incarnation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<Crash>,
    /// Messages that wait in the mailbox.
    pub mailbox_depth: usize,
    /// The most messages that may wait in the mailbox.
    pub mailbox_bound: usize,
    /// Pods that the actor has quarantined, with the panic that led to it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quarantined: BTreeMap<PodUid, String>,
    /// The message types for which an address or a port was handed out.
    pub receives: Vec<&'static str>,
    /// Counts and latencies.
    #[serde(flatten)]
    pub counters: CountersReport,
    /// Effects that passed their deadline since the process started.
    pub effects_overdue: u64,
    /// The oldest running effects, then the last effects that were dropped at their deadline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectReport>,
    /// The actor's own observable state; null if it did not answer in time.
    pub observed: Value,
}
