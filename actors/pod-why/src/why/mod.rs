//! PURE: what a pod waits for, in one sentence, and the chain of causes below it; made from the answers of `/pods`,
//! `/supervision` and `/events`.

mod containers;
mod decide;
mod facts;
mod find;
mod lines;
mod words;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use pod_rules::conditions;
use serde::Serialize;
use serde_json::Value;

use self::facts::{Facts, is_given_up, trouble};
use self::words::{said, seconds_since};
use crate::model::{Event, Supervision};
use crate::parts::{Part, Role};

pub use self::find::{Asked, FindError, Subject, subjects};
pub use self::lines::lines;
pub(crate) use self::words::{lasting, plural};

/// How many of the pod's events are told.
const EVENTS_MAX: usize = 5;
/// The fields of volumes' sources that name what a volume shows, the most telling first.
const NAMES_OF_SOURCES: [&str; 7] =
    ["claimName", "secretName", "name", "driver", "reference", "path", "server"];
/// The conditions of which a pod wants each to be true; others tell of trouble when they are true.
const WANTED: [&str; 5] =
    ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", conditions::READY];

/// Whether a pod does what it is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It runs and is Ready.
    Ready,
    /// It has ended well.
    Succeeded,
    /// It waits for something.
    Waits,
    /// It is being ended.
    Ends,
    /// It has ended badly.
    Failed,
    /// The node does not run it.
    Refused,
}

/// What is known of a pod. Texts of others are harmless on a terminal and at most 240 columns wide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// How it is with it.
    pub verdict: Verdict,
    /// What it waits for.
    pub sentence: String,
    /// The step that its worker carries out.
    pub step: Option<StepNow>,
    /// What went wrong with the worker's last step; empty if nothing did.
    pub problem: String,
    /// Its containers, init containers first.
    pub containers: Vec<ContainerNow>,
    /// Its volumes, in the order of its spec.
    pub volumes: Vec<VolumeNow>,
    /// Its conditions that are not as they should be.
    pub conditions: Vec<ConditionNow>,
    /// The subsystems that leave it alone.
    pub left_alone_by: Vec<LeftAlone>,
    /// The subsystems that have crashed too often and are not restarted for now.
    pub given_up: Vec<LeftAlone>,
    /// Its last events, newest first.
    pub events: Vec<EventNow>,
    /// Which answers of the kubelet are missing, and why.
    pub unread: Vec<String>,
}

/// A step of the pod's worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepNow {
    /// The call, and what it is for.
    pub name: String,
    /// How long it has been under way.
    pub seconds: u64,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerNow {
    /// Its name.
    pub name: String,
    /// `init`, `sidecar` or `main`.
    pub kind: &'static str,
    /// `running`, `waiting`, `terminated`, or `unknown` without a status.
    pub state: &'static str,
    /// Why it waits or has ended; empty while it runs.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// How long it has been running, or has ended ago.
    pub seconds: Option<i64>,
    /// Whether it is ready.
    pub ready: bool,
    /// Its restarts.
    pub restarts: i32,
    /// How it ended last.
    pub last_exit: Option<ExitNow>,
    /// The seconds to the next try to start it, if it could not be started.
    pub next_try_seconds: Option<i64>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeNow {
    /// Its name.
    pub name: String,
    /// Where it comes from, as the spec's field is called: `emptyDir`, `configMap` …; empty if it comes from nowhere.
    pub kind: String,
    /// The object, driver, image or path that it shows; empty for one that has none.
    pub of: String,
}

/// The end of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExitNow {
    /// Its exit code.
    pub exit_code: i32,
    /// The reason in a word.
    pub reason: String,
    /// How long ago it was.
    pub seconds: Option<i64>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionNow {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status.
    pub status: String,
    /// The reason in a word.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// How long it has been so.
    pub seconds: Option<i64>,
}

/// A subsystem that does not do its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    /// Its name.
    pub subsystem: String,
    /// Its panic, with the place.
    pub panic: String,
}

/// An event of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventNow {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The reason in a word.
    pub reason: String,
    /// The same at length.
    pub message: String,
    /// How often it was recorded.
    pub count: u32,
    /// How long ago it was recorded last.
    pub seconds: i64,
}

impl Verdict {
    /// The exit code of `understudy why`.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Ready | Self::Succeeded => 0,
            Self::Waits | Self::Ends | Self::Failed | Self::Refused => 3,
        }
    }
}

/// The verdict on the pod, and the sentence.
pub fn sentence(
    subject: &Subject<'_>,
    tree: &Supervision,
    events: &[Event],
    now: Timestamp,
) -> (Verdict, String) {
    decide::decide(&Facts::of(subject, tree, events, now))
}

/// What is known of the pod. `unread` names the answers that are missing.
pub fn why(
    subject: &Subject<'_>,
    tree: &Supervision,
    events: &[Event],
    unread: &[String],
    now: Timestamp,
) -> Answer {
    let facts = Facts::of(subject, tree, events, now);
    let (verdict, sentence) = decide::decide(&facts);
    let step = facts.step().map(|step| StepNow { name: decide::named(&step), seconds: step.seconds });
    let alone = facts.left_alone_by().into_iter();
    let given_up = tree.actors.iter().filter(|actor| actor.parent.is_none() && is_given_up(actor));
    Answer {
        namespace: said(&subject.namespace),
        name: said(&subject.name),
        uid: said(&subject.uid),
        verdict,
        sentence,
        step,
        problem: said(facts.worker.problem.as_deref().unwrap_or_default()),
        containers: facts.parts().iter().map(|part| container(part, &facts)).collect(),
        volumes: volumes(subject.pod),
        conditions: troubles(&facts),
        left_alone_by: alone.map(|(actor, panic)| LeftAlone { subsystem: said(actor), panic }).collect(),
        given_up: given_up
            .map(|actor| LeftAlone { subsystem: said(&actor.name), panic: trouble(actor) })
            .collect(),
        events: facts.events.iter().rev().take(EVENTS_MAX).map(|event| told(event, now)).collect(),
        unread: unread.iter().map(|why| said(why)).collect(),
    }
}

fn container((spec, role, status): &Part<'_>, facts: &Facts<'_>) -> ContainerNow {
    let text = |field: &Option<String>| said(field.as_deref().unwrap_or_default());
    let state = status.and_then(|status| status.state.as_ref());
    let running = state.and_then(|state| state.running.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let last = status.and_then(|status| status.last_state.as_ref());
    let last = ended.or(last.and_then(|state| state.terminated.as_ref()));
    let since = running.and_then(|running| running.started_at.as_ref());
    let since = since.or(ended.and_then(|ended| ended.finished_at.as_ref()));
    let (state, reason, message) = match (running, waiting, ended) {
        (Some(_), ..) => ("running", String::new(), String::new()),
        (_, Some(waiting), _) => ("waiting", text(&waiting.reason), text(&waiting.message)),
        (_, _, Some(ended)) => ("terminated", text(&ended.reason), text(&ended.message)),
        _ => ("unknown", String::new(), String::new()),
    };
    ContainerNow {
        name: said(&spec.name),
        kind: match role {
            Role::Init => "init",
            Role::Sidecar => "sidecar",
            Role::Main => "main",
        },
        state,
        reason,
        message,
        seconds: since.map(|since| seconds_since(since, facts.now)),
        ready: status.is_some_and(|status| status.ready),
        restarts: status.map_or(0, |status| status.restart_count),
        last_exit: last.map(|last| ExitNow {
            exit_code: last.exit_code,
            reason: crate::parts::ended_as(last),
            seconds: last.finished_at.as_ref().map(|at| seconds_since(at, facts.now)),
        }),
        next_try_seconds: facts.worker.next_tries.get(&spec.name).copied(),
    }
}

fn volumes(pod: Option<&Pod>) -> Vec<VolumeNow> {
    let spec = pod.and_then(|pod| pod.spec.as_ref());
    spec.and_then(|spec| spec.volumes.as_deref()).unwrap_or_default().iter().map(volume).collect()
}

fn volume(volume: &Volume) -> VolumeNow {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let source = fields.as_object().into_iter().flatten().find(|(field, _)| field.as_str() != "name");
    let (kind, source) = source.map(|(kind, source)| (kind.as_str(), source)).unzip();
    let named = |field: &&str| source.and_then(|source| source.get(*field)).and_then(Value::as_str);
    VolumeNow {
        name: said(&volume.name),
        kind: said(kind.unwrap_or_default()),
        of: said(NAMES_OF_SOURCES.iter().find_map(named).unwrap_or_default()),
    }
}

fn troubles(facts: &Facts<'_>) -> Vec<ConditionNow> {
    let spec = facts.subject.pod.and_then(|pod| pod.spec.as_ref());
    let gates = spec.and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let gates: BTreeSet<&str> = gates.iter().map(|gate| &*gate.condition_type).collect();
    let is_wanted = |type_: &str| WANTED.contains(&type_) || gates.contains(type_);
    let text = |field: &Option<String>| said(field.as_deref().unwrap_or_default());
    let wrong = facts.conditions().iter().filter(|one| (one.status == "True") != is_wanted(&one.type_));
    wrong
        .map(|one| ConditionNow {
            type_: said(&one.type_),
            status: said(&one.status),
            reason: text(&one.reason),
            message: text(&one.message),
            seconds: one.last_transition_time.as_ref().map(|at| seconds_since(at, facts.now)),
        })
        .collect()
}

fn told(event: &Event, now: Timestamp) -> EventNow {
    EventNow {
        event_type: said(&event.event_type),
        reason: said(&event.reason),
        message: said(&event.message),
        count: event.count,
        seconds: now.duration_since(event.last_seen).as_secs().max(0),
    }
}
