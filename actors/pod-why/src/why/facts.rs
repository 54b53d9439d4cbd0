//! PURE: what the kubelet's answers say of one pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodCondition, PodStatus};
use pod_rules::{conditions, phases};
use serde::Deserialize;
use serde_json::Value;

use super::find::{Subject, WORKER_PREFIX};
use super::words::said;
use crate::model::{Actor, Event, Supervision};
use crate::parts::{Part, parts};

/// What a pod's worker shows of itself in `/supervision`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Worker {
    /// `Syncing`, `Terminating` or `Terminated`.
    pub state: Option<String>,
    /// The grace period of a pod that ends.
    pub grace_seconds: Option<i64>,
    /// The oldest step that is under way.
    pub step: Option<String>,
    /// How long it has been.
    pub step_seconds: Option<u64>,
    /// What went wrong with the last step.
    pub problem: Option<String>,
    /// The time to the next try.
    pub retry_seconds: Option<i64>,
    /// The time to the next try of containers that could not be started, by name.
    pub next_tries: BTreeMap<String, i64>,
}

/// A step of the worker: a call, and what it is for.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The call.
    pub call: &'a str,
    /// A container, with whatever else the worker says; empty for the pod as a whole.
    pub of: &'a str,
    /// How long it has been under way.
    pub seconds: u64,
}

/// Everything that is known of one pod.
pub struct Facts<'a> {
    /// The pod.
    pub subject: &'a Subject<'a>,
    /// The actors.
    pub tree: &'a Supervision,
    /// The pod's events, oldest first.
    pub events: Vec<&'a Event>,
    /// What its worker shows.
    pub worker: Worker,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Facts<'a> {
    /// Those of this pod.
    pub fn of(subject: &'a Subject<'a>, tree: &'a Supervision, events: &'a [Event], now: Timestamp) -> Self {
        let of_pod = |event: &&Event| event.pod_uid() == Some(subject.uid.as_str());
        let mut events: Vec<&Event> = events.iter().filter(of_pod).collect();
        events.sort_by_key(|event| event.last_seen);
        let mut facts = Self { subject, tree, events, worker: Worker::default(), now };
        if let Some(actor) = facts.worker_actor() {
            facts.worker = Worker::deserialize(&actor.observed).unwrap_or_default();
        }
        facts
    }

    /// The pod's worker in the tree.
    pub fn worker_actor(&self) -> Option<&'a Actor> {
        let uid = self.subject.uid.as_str();
        self.tree.actors.iter().find(|actor| actor.name.strip_prefix(WORKER_PREFIX) == Some(uid))
    }

    /// `namespace/name`.
    pub fn name(&self) -> String {
        said(&self.subject.full_name())
    }

    /// The pod's status.
    pub fn status(&self) -> Option<&'a PodStatus> {
        self.subject.pod.and_then(|pod| pod.status.as_ref())
    }

    /// The pod's phase; empty if it has none.
    pub fn phase(&self) -> &'a str {
        self.status().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    /// The pod's containers; init containers first.
    pub fn parts(&self) -> Vec<Part<'a>> {
        self.subject.pod.map(parts).unwrap_or_default()
    }

    /// All conditions.
    pub fn conditions(&self) -> &'a [PodCondition] {
        self.status().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
    }

    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&'a PodCondition> {
        self.conditions().iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type is there and not true.
    pub fn lacks(&self, type_: &str) -> Option<&'a PodCondition> {
        self.condition(type_).filter(|condition| condition.status != "True")
    }

    /// Whether the pod was deleted, or its manifest removed.
    pub fn is_deleted(&self) -> bool {
        self.subject.pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
    }

    /// Whether the pod ends, by its deletion or by the node's decision.
    pub fn is_ending(&self) -> bool {
        self.is_deleted() || matches!(self.worker.state.as_deref(), Some("Terminating" | "Terminated"))
    }

    /// The condition Ready, if it is true and the pod does not end.
    pub fn ready(&self) -> Option<&'a PodCondition> {
        let ready = self.condition(conditions::READY).filter(|condition| condition.status == "True");
        ready.filter(|_| !self.is_ending() && self.phase() == phases::RUNNING)
    }

    /// The worker's step.
    pub fn step(&self) -> Option<Step<'_>> {
        let step = self.worker.step.as_deref().filter(|step| !step.is_empty())?;
        let (call, of) = step.split_once(' ').unwrap_or((step, ""));
        Some(Step { call, of, seconds: self.worker.step_seconds.unwrap_or_default() })
    }

    /// What the actor of this name shows.
    pub fn observed(&self, actor: &str) -> Option<&'a Value> {
        self.tree.actors.iter().find(|known| known.name == actor).map(|known| &known.observed)
    }

    /// The pod's newest warning that passes the filter.
    pub fn newest_warning(&self, which: impl Fn(&Event) -> bool) -> Option<&'a Event> {
        self.events.iter().rev().copied().find(|event| event.event_type == "Warning" && which(event))
    }

    /// The subsystems that leave the pod alone, and the panic of each; its own worker if that has crashed too often.
    pub fn left_alone_by(&self) -> Vec<(&'a str, String)> {
        let uid = self.subject.uid.as_str();
        let quarantines = self.tree.actors.iter().filter_map(|actor| {
            let panic = actor.quarantined.get(uid)?;
            Some((actor.name.as_str(), said(panic)))
        });
        let worker = self.worker_actor().filter(|worker| is_given_up(worker));
        quarantines.chain(worker.map(|worker| (worker.kind.as_str(), trouble(worker)))).collect()
    }
}

/// Whether supervision does not restart the actor for now.
pub fn is_given_up(actor: &Actor) -> bool {
    matches!(actor.state.as_str(), "dormant" | "failed")
}

/// The actor's last crash in one line; empty if there was none.
pub fn trouble(actor: &Actor) -> String {
    actor.last_crash.as_ref().map(|last| said(&last.line())).unwrap_or_default()
}

/// Whether an event is about this container.
pub fn is_about(event: &Event, container: &str) -> bool {
    let path = event.object.get("pod").and_then(|object| object.get("fieldPath")).and_then(Value::as_str);
    let named = path.and_then(|path| path.split_once('{')).and_then(|(_, rest)| rest.strip_suffix('}'));
    named == Some(container)
}
