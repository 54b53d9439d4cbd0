//! The tree as others see it: plain data for `/supervision` and for `understudy top`.

use std::collections::BTreeMap;

use messages::PodUid;
use serde::Serialize;
use serde_json::Value;

use crate::cell::{CountersReport, Crash, State, Vitality};
use crate::effects::EffectReport;
use crate::events::SupervisionEvent;

/// No actor of that name is in the tree.
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
    /// Its name; children are `<kind>/<key>`.
    pub name: String,
    /// Its type's name.
    pub kind: &'static str,
    /// The actor it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How much the node needs it.
    pub vitality: Vitality,
    /// Where it is in its life.
    pub state: State,
    /// The current incarnation's number.
    pub incarnation: u64,
    /// Restarts since the process started.
    pub restarts: u64,
    /// Crashes since the process started that were put down to pods.
    pub pod_crashes: u64,
    /// Its last crash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_crash: Option<Crash>,
    /// Messages waiting.
    pub mailbox_depth: usize,
    /// Messages that may wait.
    pub mailbox_bound: usize,
    /// Pods it leaves alone, with the panic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quarantined: BTreeMap<PodUid, String>,
    /// The message types that somebody can send it.
    pub receives: Vec<&'static str>,
    /// Counts and latencies.
    #[serde(flatten)]
    pub counters: CountersReport,
    /// Effects that passed their deadline since the process started.
    pub effects_overdue: u64,
    /// The oldest of the effects that run, then the last of those that were let go at their deadline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectReport>,
    /// Its own observable state; null if it did not answer in time.
    pub observed: Value,
}
