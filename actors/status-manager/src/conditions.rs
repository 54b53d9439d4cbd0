//! The conditions of a pod (row 8.4) without their times, which depend on the previous status.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use messages::eviction_manager::NODE_WAS_LOW;
use messages::facts::{Rejection, WorkerReport};
use messages::runtime::{ContainerState, RuntimePod};
pub(crate) use pod_rules::conditions::READY;
use pod_rules::conditions::status as state;
use pod_rules::reasons::{EVICTED, PREEMPTING};

use crate::container_state::{by_name, last_terminated, running, terminated};
use crate::in_place;
use crate::phase::{Phase, terminal_reason};
use crate::spec::{self, Kind};

pub(crate) const READY_TO_START: &str = "PodReadyToStartContainers";
pub(crate) const INITIALIZED: &str = "Initialized";
pub(crate) const CONTAINERS_READY: &str = "ContainersReady";
pub(crate) const SCHEDULED: &str = "PodScheduled";
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Understudy's own condition: a subsystem has quarantined the pod after a panic.
pub(crate) const QUARANTINED: &str = "understudy.dev/Quarantined";

/// The reasons with which the node itself disrupts a pod: preemption, shutdown.
const DISRUPTIONS: [&str; 2] = [PREEMPTING, "Terminated"];

/// The types that StatusManager rewrites each time. Conditions of other types have other writers and are kept.
pub(crate) const OWNED: [&str; 9] = [
    SCHEDULED,
    READY,
    INITIALIZED,
    CONTAINERS_READY,
    READY_TO_START,
    "PodResizeInProgress",
    "PodResizePending",
    in_place::ALL_RESTARTING,
    QUARANTINED,
];

/// The facts on which the conditions depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionsInput<'a> {
    /// The pod as desired.
    pub(crate) pod: &'a Pod,
    /// The previous conditions, of all writers.
    pub(crate) previous: &'a [PodCondition],
    /// Statuses of the init containers.
    pub(crate) init: &'a [ContainerStatus],
    /// Statuses of the regular containers.
    pub(crate) regular: &'a [ContainerStatus],
    /// The phase that follows from the facts, even while it is terminal and still held back.
    pub(crate) phase: Phase,
    /// All containers are being restarted.
    pub(crate) restarting_all: bool,
    /// The pod in the runtime, if known.
    pub(crate) observed: Option<&'a RuntimePod>,
}

/// All conditions of a pod that is not rejected.
pub(crate) fn conditions(spec: &PodSpec, input: &ConditionsInput<'_>) -> Vec<PodCondition> {
    let mut conditions = foreign(input.pod, input.previous);
    conditions.push(of(READY_TO_START, sandbox_ready(spec, input), "", ""));
    conditions.push(initialized(spec, input));
    let containers_ready = containers_ready(spec, input);
    conditions.push(ready(spec, &conditions, &containers_ready));
    conditions.push(containers_ready);
    conditions.push(of(SCHEDULED, true, "", ""));
    conditions.extend(in_place::condition(spec, input.observed, input.restarting_all, input.phase));
    conditions
}

/// Conditions of other writers, from the API server, and DisruptionTarget, which the kubelet shares and which stays
/// once told.
pub(crate) fn foreign(pod: &Pod, previous: &[PodCondition]) -> Vec<PodCondition> {
    let api = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let shared = previous.iter().filter(|c| c.type_ == DISRUPTION_TARGET);
    let mut seen = BTreeSet::new();
    let of_others = api.iter().chain(shared).filter(|condition| !OWNED.contains(&&*condition.type_));
    of_others.filter(|condition| seen.insert(&*condition.type_)).cloned().collect()
}

/// `DisruptionTarget`, told together with the terminal phase and not before.
pub(crate) fn disruption(failed: &Rejection) -> Option<PodCondition> {
    let evicted = failed.reason == EVICTED && failed.message.starts_with(NODE_WAS_LOW);
    (evicted || DISRUPTIONS.contains(&&*failed.reason))
        .then(|| of(DISRUPTION_TARGET, true, "TerminationByKubelet", &failed.message))
}

/// The condition Quarantined: it names every subsystem that has quarantined the pod, and its panic.
pub(crate) fn quarantined(panics: &BTreeMap<Arc<str>, Arc<str>>) -> Option<PodCondition> {
    let mut message = String::new();
    for (subsystem, panic) in panics {
        let separator = if message.is_empty() { "" } else { "; " };
        write!(message, "{separator}{subsystem} leaves the pod alone after repeated panics: {panic}")
            .expect("writing to a string does not fail");
    }
    (!panics.is_empty()).then(|| of(QUARANTINED, true, "RepeatedPanics", &message))
}

/// Sets or removes the condition Quarantined, and leaves the other conditions as they are.
pub(crate) fn say_quarantined(
    conditions: &mut Vec<PodCondition>,
    panics: &BTreeMap<Arc<str>, Arc<str>>,
    now: Timestamp,
) {
    let since = conditions.iter().find(|known| known.type_ == QUARANTINED);
    let since = since.and_then(|known| known.last_transition_time.clone()).unwrap_or(Time(now));
    conditions.retain(|known| known.type_ != QUARANTINED);
    let told = quarantined(panics);
    conditions.extend(told.map(|told| PodCondition { last_transition_time: Some(since), ..told }));
}

/// Ready and ContainersReady of a pod that has ended.
pub(crate) fn not_ready_in(phase: Phase, type_: &str) -> PodCondition {
    of(type_, false, terminal_reason(phase), "")
}

/// Whether the pod has a sandbox, with a network, to start containers in.
fn sandbox_ready(spec: &PodSpec, input: &ConditionsInput<'_>) -> bool {
    let Some(observed) = input.observed else {
        return input.previous.iter().any(|c| c.type_ == READY_TO_START && c.status == state(true));
    };
    let Some(sandbox) = observed.ready_sandbox() else { return false };
    let host_network = spec.host_network.unwrap_or(false);
    observed.sandboxes.iter().filter(|s| s.ready).count() == 1
        && sandbox.host_network == host_network
        && (host_network || !sandbox.ips.is_empty())
}

fn initialized(spec: &PodSpec, input: &ConditionsInput<'_>) -> PodCondition {
    let mut unknown = Vec::new();
    let mut incomplete = Vec::new();
    let statuses = by_name(input.init);
    for container in spec::init(spec) {
        match statuses.get(container.name) {
            None => unknown.push(container.name),
            Some(status) => {
                let done = match container.kind {
                    Kind::Sidecar => status.started == Some(true),
                    _ => status.ready,
                };
                if !done {
                    incomplete.push(container.name);
                }
            }
        }
    }
    if input.phase == Phase::Succeeded && unknown.is_empty() {
        return of(INITIALIZED, true, terminal_reason(input.phase), "");
    }
    // Once a regular container has started, the pod is initialized for good, even while sidecars start again; and so it
    // is once the condition has been true, even while init containers run again.
    let regular_started = input
        .regular
        .iter()
        .any(|s| running(s).is_some() || terminated(s).is_some() || last_terminated(s).is_some())
        // A container whose postStart hook has not ended counts as waiting, and has started nevertheless.
        || input.observed.is_some_and(|observed| {
            let lives = |name: &str| observed.latest(name).is_some_and(|c| c.state == ContainerState::Running);
            spec::regular(spec).any(|container| lives(container.name))
        });
    let was_initialized = input.previous.iter().any(|c| c.type_ == INITIALIZED && c.status == state(true));
    if regular_started || was_initialized {
        return of(INITIALIZED, true, "", "");
    }
    match complaint(&unknown, "incomplete", &incomplete) {
        None => of(INITIALIZED, true, "", ""),
        Some(message) => of(INITIALIZED, false, "ContainersNotInitialized", &message),
    }
}

fn containers_ready(spec: &PodSpec, input: &ConditionsInput<'_>) -> PodCondition {
    let mut unknown = Vec::new();
    let mut unready = Vec::new();
    let sidecars = spec::init(spec).filter(|c| c.kind == Kind::Sidecar);
    let statuses = by_name(input.init.iter().chain(input.regular));
    for container in sidecars.chain(spec::regular(spec)) {
        match statuses.get(container.name) {
            None => unknown.push(container.name),
            Some(status) if !status.ready => unready.push(container.name),
            Some(_) => {}
        }
    }
    if input.phase == Phase::Failed || (input.phase == Phase::Succeeded && unknown.is_empty()) {
        return not_ready_in(input.phase, CONTAINERS_READY);
    }
    match complaint(&unknown, "unready", &unready) {
        None => of(CONTAINERS_READY, true, "", ""),
        Some(message) => of(CONTAINERS_READY, false, "ContainersNotReady", &message),
    }
}

/// ContainersReady and every readiness gate (row 8.10).
fn ready(spec: &PodSpec, known: &[PodCondition], containers_ready: &PodCondition) -> PodCondition {
    if containers_ready.status != state(true) {
        return PodCondition { type_: READY.to_owned(), ..containers_ready.clone() };
    }
    // Of several of one type the first counts.
    let known: BTreeMap<&str, &PodCondition> =
        known.iter().rev().map(|condition| (&*condition.type_, condition)).collect();
    let mut closed = Vec::new();
    for gate in spec.readiness_gates.iter().flatten() {
        let type_ = &gate.condition_type;
        match known.get(&**type_) {
            None => closed
                .push(format!("corresponding condition of pod readiness gate \"{type_}\" does not exist.")),
            Some(condition) if condition.status != state(true) => closed.push(format!(
                "the status of pod readiness gate \"{type_}\" is not \"True\", but {}",
                condition.status
            )),
            Some(_) => {}
        }
    }
    if closed.is_empty() {
        of(READY, true, "", "")
    } else {
        of(READY, false, "ReadinessGatesNotReady", &closed.join(", "))
    }
}

fn complaint(unknown: &[&str], what: &str, wrong: &[&str]) -> Option<String> {
    let mut parts = Vec::new();
    if !unknown.is_empty() {
        parts.push(format!("containers with unknown status: [{}]", unknown.join(" ")));
    }
    if !wrong.is_empty() {
        parts.push(format!("containers with {what} status: [{}]", wrong.join(" ")));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn of(type_: &str, status: bool, reason: &str, message: &str) -> PodCondition {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodCondition {
        type_: type_.to_owned(),
        status: state(status).to_owned(),
        reason: text(reason),
        message: text(message),
        ..PodCondition::default()
    }
}

/// The node's decision that ended the pod, if there was one.
pub(crate) fn failure(report: Option<&WorkerReport>) -> Option<&Rejection> {
    report.and_then(|r| r.failed.as_ref())
}
