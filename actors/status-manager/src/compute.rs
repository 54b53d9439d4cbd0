//! A pod's status from its facts: the one pure function behind the actor.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodSpec, PodStatus};
use messages::facts::{DesiredPod, Rejection, Source, UNSUPPORTED_FIELDS, WorkerState};
use messages::runtime::RuntimePod;
use pod_rules::reasons::REJECTED_PREFIX;
use pod_spec::resources::QosClass;

use crate::conditions::{self, CONTAINERS_READY, ConditionsInput, READY};
use crate::containers::{self, Context};
use crate::facts::{NodeFacts, PodFacts};
use crate::merge::{PhaseVerdict, settle};
use crate::phase::{Phase, PhaseInput, phase};
use crate::{addresses, container_state, effective, finish, in_place, spec};

/// The status of a pod, given the last known one; `None` while its spec is unknown.
///
/// The same facts give the same status whatever `now` is. Each fact may be missing: then the last known status stays in
/// that respect, and nothing final is concluded from the absence.
pub fn compute(
    facts: &PodFacts,
    node: &NodeFacts,
    previous: Option<&PodStatus>,
    now: Timestamp,
) -> Option<PodStatus> {
    let desired = facts.desired.as_deref()?;
    let spec = desired.pod.spec.as_ref()?;
    // Before the first status of our own, the API server's is the previous one.
    let previous = previous.or_else(|| from_api(desired));
    let supported = desired.rejected.is_none().then(|| once_unsupported(previous)).flatten();
    let previous = supported.as_ref().or(previous);
    let status = match &desired.rejected {
        Some(why) if !why.is_final() => Computation { facts, node, previous, desired, spec }.unsupported(why),
        Some(rejection) => rejected(desired, rejection, previous),
        None => Computation { facts, node, previous, desired, spec }.run(),
    };
    let mut status = inherit(desired, status, previous);
    if desired.rejected.is_none() {
        effective::of_pod(spec, &mut status);
    }
    status.conditions.get_or_insert_default().extend(conditions::quarantined(&facts.quarantine));
    let known = previous.and_then(|p| p.conditions.as_deref()).unwrap_or_default().iter();
    // Of several of one type the first that tells a generation counts.
    let observed: BTreeMap<&str, i64> =
        known.rev().filter_map(|known| Some((&*known.type_, known.observed_generation?))).collect();
    for condition in status.conditions.iter_mut().flatten() {
        let observed = observed.get(&*condition.type_).copied();
        condition.observed_generation = generation(desired).max(observed);
    }
    if status.conditions.as_ref().is_some_and(Vec::is_empty) {
        status.conditions = None;
    }
    let containers = spec::init(spec).count() + spec::regular(spec).count() + spec::ephemeral(spec).count();
    let mut status = settle(previous, status, containers, now);
    if desired.rejected.as_ref().is_some_and(|why| !why.is_final()) {
        // The pod's worker has not begun with it.
        status.start_time = previous.and_then(|p| p.start_time.clone());
    }
    Some(status)
}

/// The previous status without the reason UnsupportedFields, of a pod that had to wait because of it.
fn once_unsupported(previous: Option<&PodStatus>) -> Option<PodStatus> {
    let waited = previous.filter(|p| p.reason.as_deref() == Some(UNSUPPORTED_FIELDS))?;
    Some(PodStatus { reason: None, message: None, ..waited.clone() })
}

/// The status that the API server gave with the pod. One in a manifest is its author's invention, not a fact.
fn from_api(desired: &DesiredPod) -> Option<&PodStatus> {
    desired.pod.status.as_ref().filter(|_| desired.source == Source::Api)
}

fn generation(desired: &DesiredPod) -> Option<i64> {
    desired.pod.metadata.generation.filter(|g| *g != 0)
}

/// The fields that do not depend on containers, and those that other writers own.
fn inherit(desired: &DesiredPod, mut status: PodStatus, previous: Option<&PodStatus>) -> PodStatus {
    // Of a pod that is refused for good there may be no spec any more. The class never changes.
    let refused = from_api(desired).filter(|_| desired.rejected.as_ref().is_some_and(Rejection::is_final));
    let known = refused.and_then(|theirs| theirs.qos_class.clone());
    status.qos_class = known.or_else(|| Some(QosClass::of(&desired.pod).to_string()));
    status.observed_generation = generation(desired);
    if let Some(theirs) = from_api(desired).or(previous) {
        status.resource_claim_statuses.clone_from(&theirs.resource_claim_statuses);
        status.extended_resource_claim_status.clone_from(&theirs.extended_resource_claim_status);
        status
            .node_allocatable_resource_claim_statuses
            .clone_from(&theirs.node_allocatable_resource_claim_statuses);
        status.nominated_node_name.clone_from(&theirs.nominated_node_name);
    }
    status
}

/// A pod that the node refuses has no containers; those of an earlier time are kept as they were.
fn rejected(desired: &DesiredPod, rejection: &Rejection, previous: Option<&PodStatus>) -> PodStatus {
    let verdict = PhaseVerdict {
        phase: Phase::Failed,
        reason: Some(rejection.reason.clone()),
        message: Some(format!("{REJECTED_PREFIX}{}", rejection.message)),
    };
    let verdict = verdict.after(&PhaseVerdict::of(previous), true);
    let known = previous.and_then(|p| p.conditions.clone()).unwrap_or_default();
    let mut kept = conditions::foreign(&desired.pod, &known);
    let ours = |c: &PodCondition| c.type_ == READY || c.type_ == CONTAINERS_READY;
    kept.extend(known.into_iter().filter(ours));
    told(
        verdict,
        PodStatus {
            conditions: Some(kept),
            start_time: previous.and_then(|p| p.start_time.clone()),
            host_ip: previous.and_then(|p| p.host_ip.clone()),
            host_ips: previous.and_then(|p| p.host_ips.clone()),
            pod_ip: previous.and_then(|p| p.pod_ip.clone()),
            pod_ips: previous.and_then(|p| p.pod_ips.clone()),
            container_statuses: previous.and_then(|p| p.container_statuses.clone()),
            init_container_statuses: previous.and_then(|p| p.init_container_statuses.clone()),
            ephemeral_container_statuses: previous.and_then(|p| p.ephemeral_container_statuses.clone()),
            ..PodStatus::default()
        },
    )
}

fn told(verdict: PhaseVerdict, status: PodStatus) -> PodStatus {
    PodStatus {
        phase: Some(verdict.phase.as_str().to_owned()),
        reason: verdict.reason,
        message: verdict.message,
        ..status
    }
}

#[derive(Clone, Copy)]
struct Computation<'a> {
    facts: &'a PodFacts,
    node: &'a NodeFacts,
    previous: Option<&'a PodStatus>,
    desired: &'a DesiredPod,
    spec: &'a PodSpec,
}

struct Containers {
    init: Vec<ContainerStatus>,
    regular: Vec<ContainerStatus>,
    ephemeral: Vec<ContainerStatus>,
}

impl<'a> Computation<'a> {
    fn run(self) -> PodStatus {
        let mut containers = self.containers();
        let failure = conditions::failure(self.facts.report.as_deref());
        // The end needs both the worker's and the runtime's word.
        let may_end = self.facts.is_stopped()
            && self.observed().is_some()
            && self.facts.has_last_look()
            && !self.facts.has_live_container();
        let over = may_end && self.facts.is_released();
        if over {
            finish::finish(self.spec, &mut containers.init, &mut containers.regular);
        }

        let known = self.known();
        let coming = self.coming(&containers, may_end, over, known.phase);
        let verdict = if coming.phase.is_terminal() && !may_end {
            PhaseVerdict::plain(meanwhile(&containers))
        } else {
            coming.clone()
        };
        let verdict = verdict.after(&known, may_end);
        // Conditions show a terminal phase already while the phase itself is still held back.
        let speak_of = if known.phase.is_terminal() { known.phase } else { coming.phase };
        let mut conditions = self.conditions(&containers, speak_of);
        if self.node.no_ready_to_start {
            conditions.retain(|condition| condition.type_ != conditions::READY_TO_START);
        }
        if verdict.phase == Phase::Failed
            && let Some(failure) = failure.filter(|f| verdict.reason.as_ref() == Some(&f.reason))
            && let Some(condition) = conditions::disruption(failure)
            && !conditions.iter().any(|c| c.type_ == condition.type_)
        {
            // Its place is among the kept conditions, which stand before PodReadyToStartContainers: it is one of them
            // from now on.
            let ours = conditions.iter().position(|c| c.type_ == conditions::READY_TO_START);
            conditions.insert(ours.unwrap_or(0), condition);
        }

        let mut status = told(
            verdict,
            PodStatus {
                conditions: Some(conditions),
                container_statuses: Some(containers.regular),
                init_container_statuses: Some(containers.init),
                ephemeral_container_statuses: Some(containers.ephemeral),
                ..PodStatus::default()
            },
        );
        let host_network = self.spec.host_network.unwrap_or(false);
        addresses::fill(&mut status, self.previous, self.observed(), &self.node.host_ips, host_network);
        status
    }

    /// The status of a pod with fields that Understudy does not support: it waits without a worker, as if all its
    /// containers were about to be created. Once deleted, it has ended.
    fn unsupported(self, why: &Rejection) -> PodStatus {
        let containers = self.containers();
        let phase = match self.desired.pod.metadata.deletion_timestamp {
            None => Phase::Pending,
            Some(_) => Phase::Failed,
        };
        let (reason, message) = (Some(why.reason.clone()), Some(why.message.clone()));
        let verdict = PhaseVerdict { phase, reason, message }.after(&PhaseVerdict::of(self.previous), true);
        let conditions = self.conditions(&containers, phase);
        told(
            verdict,
            PodStatus {
                conditions: Some(conditions),
                container_statuses: Some(containers.regular),
                init_container_statuses: Some(containers.init),
                ephemeral_container_statuses: Some(containers.ephemeral),
                ..PodStatus::default()
            },
        )
    }

    /// What the runtime holds. Unknown also while the runtime's name is unknown, since no container has an ID without
    /// it.
    fn observed(&self) -> Option<&'a RuntimePod> {
        self.node.runtime_name.as_ref().and(self.facts.observed.as_deref())
    }

    /// The phase before this one. A terminal phase at the API server counts if the pod's worker found the pod ended at
    /// the kubelet's start. While the worker still runs the pod, such a phase is another writer's and is taken back.
    fn known(&self) -> PhaseVerdict {
        let ours = PhaseVerdict::of(self.previous);
        let ends = self.facts.report.as_ref().is_some_and(|r| r.state != WorkerState::Syncing);
        let shown = from_api(self.desired).filter(|_| ends).map(|status| PhaseVerdict::of(Some(status)));
        match shown.filter(|shown| shown.phase.is_terminal()) {
            Some(theirs) if theirs.phase == ours.phase => PhaseVerdict {
                phase: ours.phase,
                reason: ours.reason.or(theirs.reason),
                message: ours.message.or(theirs.message),
            },
            Some(theirs) => theirs,
            None => ours,
        }
    }

    fn restarting_all(&self) -> bool {
        // A pod that ends is not restarted.
        let ends = self.desired.pod.metadata.deletion_timestamp.is_some()
            || self.facts.report.as_ref().is_some_and(|r| r.state != WorkerState::Syncing);
        !ends && in_place::is_restarting(self.spec, self.observed(), self.previous)
    }

    /// Whether the runtime's handler of the pod can make whole mount trees read-only.
    fn makes_recursive_read_only(&self) -> bool {
        let sandbox = self.facts.observed.as_deref().and_then(|observed| observed.sandboxes.first());
        let handler = match (sandbox, self.spec.runtime_class_name.as_deref()) {
            (Some(sandbox), _) => &*sandbox.runtime_handler,
            (None, None | Some("")) => "",
            (None, Some(_)) => return false,
        };
        self.node.recursive_read_only.contains(handler)
    }

    fn containers(&self) -> Containers {
        let report = self.facts.report.as_deref();
        let observed = self.observed();
        let created = |c: &spec::ContainerSpec<'_>| observed.is_some_and(|o| o.latest(c.name).is_some());
        let context = Context {
            observed,
            runtime_name: self.node.runtime_name.as_deref().unwrap_or_default(),
            waiting: report.map(|r| &*r.waiting),
            verdicts: self.facts.verdicts.as_deref(),
            has_init: spec::init(self.spec).next().is_some(),
            reported: report.is_some(),
            regular_created: spec::regular(self.spec).any(|c| created(&c)),
            deleted: self.desired.pod.metadata.deletion_timestamp.is_some()
                || report.is_some_and(|r| r.deleted),
            syncing: report.is_some_and(|r| r.state == WorkerState::Syncing),
            starting: report.map(|r| &*r.starting),
            replaced: report.map(|r| &*r.replaced),
            restarting_all: self.restarting_all(),
            restart_policy: self.spec.restart_policy.as_deref(),
            recursive_read_only: self.makes_recursive_read_only(),
            stop_signals: self.node.stop_signals,
            image_volume_digests: self.node.image_volume_digests,
        };
        let old = |list: Option<&'a Vec<ContainerStatus>>| list.map(Vec::as_slice).unwrap_or_default();
        let previous = self.previous;
        Containers {
            init: containers::statuses(
                spec::init(self.spec),
                old(previous.and_then(|p| p.init_container_statuses.as_ref())),
                &context,
            ),
            regular: containers::statuses(
                spec::regular(self.spec),
                old(previous.and_then(|p| p.container_statuses.as_ref())),
                &context,
            ),
            ephemeral: containers::statuses(
                spec::ephemeral(self.spec),
                old(previous.and_then(|p| p.ephemeral_container_statuses.as_ref())),
                &context,
            ),
        }
    }

    /// The phase that follows from the facts, even while the end is still held back.
    fn coming(&self, containers: &Containers, stopped: bool, over: bool, known: Phase) -> PhaseVerdict {
        if let Some(failure) = conditions::failure(self.facts.report.as_deref()) {
            return PhaseVerdict {
                phase: Phase::Failed,
                reason: Some(failure.reason.clone()),
                message: Some(failure.message.clone()),
            };
        }
        let is_static = self.desired.source != Source::Api;
        let has_initialized = match self.observed() {
            Some(observed) => {
                let sandbox = observed.ready_sandbox().map(|s| &s.id);
                let active = |c: &spec::ContainerSpec<'_>| {
                    observed.instances(c.name).any(|i| Some(&i.sandbox_id) == sandbox)
                };
                spec::regular(self.spec).any(|c| active(&c))
            }
            None => known != Phase::Pending,
        };
        let computed = phase(
            self.spec,
            &PhaseInput {
                init: &containers.init,
                regular: &containers.regular,
                ended: stopped && !is_static,
                has_initialized,
            },
        );
        // At the very end no container is waited for any more.
        let is_late = over && !is_static && !computed.is_terminal();
        PhaseVerdict::plain(if is_late { Phase::Failed } else { computed })
    }

    fn conditions(&self, containers: &Containers, phase: Phase) -> Vec<PodCondition> {
        let input = ConditionsInput {
            pod: &self.desired.pod,
            previous: self.previous.and_then(|p| p.conditions.as_deref()).unwrap_or_default(),
            init: &containers.init,
            regular: &containers.regular,
            phase,
            restarting_all: self.restarting_all(),
            observed: self.observed(),
        };
        conditions::conditions(self.spec, &input)
    }
}

/// The phase told of a pod that has ended while the terminal phase is held back.
fn meanwhile(containers: &Containers) -> Phase {
    let has_run = |s: &ContainerStatus| {
        container_state::waiting(s).is_none() || container_state::last_terminated(s).is_some()
    };
    if containers.regular.iter().any(has_run) { Phase::Running } else { Phase::Pending }
}

#[cfg(test)]
mod tests;
