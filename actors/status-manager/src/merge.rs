//! What a new status keeps of the previous one: a status only ever moves forward.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pod_rules::errors;

use crate::conditions::{CONTAINERS_READY, OWNED, READY, not_ready_in};
use crate::container_state::by_name;
use crate::containers::time;
use crate::phase::Phase;

/// All termination messages of a pod together, in bytes (row 5.21).
const MESSAGE_BYTES_MAX: usize = 12 * 1024;
/// Why containers wait, all of a pod together, in bytes: what the runtime or a volume says may repeat what the pod's author wrote, and the
/// API server keeps no status that is larger than an object may be.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// The most bytes of the pod's message, and of each condition's: what a pod's author chooses the number of is listed in them (volumes,
/// readiness gates, fields that are not supported), and a status that the API server does not keep would hold up the pod's end.
const TEXT_BYTES_MAX: usize = errors::WORDS_BYTES_MAX;

/// A phase with its reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseVerdict {
    /// The phase.
    pub phase: Phase,
    /// `status.reason`.
    pub reason: Option<String>,
    /// `status.message`.
    pub message: Option<String>,
}

impl PhaseVerdict {
    /// The phase without reason and message.
    pub fn plain(phase: Phase) -> Self {
        Self { phase, reason: None, message: None }
    }

    /// The phase of a known status; Pending where it has none.
    pub fn of(status: Option<&PodStatus>) -> Self {
        let phase = status.and_then(|s| s.phase.as_deref()).and_then(Phase::parse);
        Self {
            phase: phase.unwrap_or(Phase::Pending),
            reason: status.and_then(|s| s.reason.clone()),
            message: status.and_then(|s| s.message.clone()),
        }
    }

    /// The phase to tell, given the previous one. A terminal phase is never left, and is told only with `may_end`: the
    /// pod must not give up what it holds while a container could still run. Reason and message stay while the phase
    /// does.
    pub fn after(self, previous: &Self, may_end: bool) -> Self {
        let held_back = self.phase.is_terminal() && !may_end;
        if previous.phase.is_terminal() || held_back {
            return previous.clone();
        }
        if self.phase == previous.phase && self.reason.is_none() {
            return previous.clone();
        }
        self
    }
}

/// Settles `status` against the previous one: start and transition times, counts, order, precision. The same facts at a
/// later time give the same status. `containers` are the names in the spec, of all kinds: each container has an equal
/// share of [`MESSAGE_BYTES_MAX`].
pub(crate) fn settle(
    previous: Option<&PodStatus>,
    mut status: PodStatus,
    containers: usize,
    now: Timestamp,
) -> PodStatus {
    status.start_time = previous
        .and_then(|p| p.start_time.clone())
        .or(status.start_time)
        .map_or_else(|| Some(time(now)), |start| Some(time(start.0)));
    status.observed_generation =
        status.observed_generation.max(previous.and_then(|p| p.observed_generation)).filter(|g| *g != 0);

    if let Some(phase) = status.phase.as_deref().and_then(Phase::parse).filter(|p| p.is_terminal()) {
        unready(&mut status, phase);
    }
    let own = status.conditions.iter_mut().flatten().filter(|condition| OWNED.contains(&&*condition.type_));
    own.filter_map(|condition| condition.message.as_mut()).chain(&mut status.message).for_each(cut);
    transition_times(previous, &mut status, now);
    let shares = Shares::of(containers);

    let old = |list: fn(&PodStatus) -> &Option<Vec<ContainerStatus>>| {
        previous.and_then(|p| list(p).as_deref()).unwrap_or_default()
    };
    settle_containers(&mut status.container_statuses, old(|p| &p.container_statuses), shares);
    settle_containers(&mut status.init_container_statuses, old(|p| &p.init_container_statuses), shares);
    settle_containers(
        &mut status.ephemeral_container_statuses,
        old(|p| &p.ephemeral_container_statuses),
        shares,
    );
    // Init containers keep the order of the spec, which is the order in which they run.
    for list in
        [&mut status.container_statuses, &mut status.ephemeral_container_statuses].into_iter().flatten()
    {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    status
}

/// A pod that has ended is not ready, whatever the containers' states still say.
fn unready(status: &mut PodStatus, phase: Phase) {
    for condition in status.conditions.iter_mut().flatten() {
        if matches!(&*condition.type_, READY | CONTAINERS_READY) {
            let generation = condition.observed_generation;
            *condition = PodCondition {
                observed_generation: generation,
                last_transition_time: condition.last_transition_time.take(),
                ..not_ready_in(phase, &condition.type_)
            };
        }
    }
}

fn cut(text: &mut String) {
    errors::cut(text, TEXT_BYTES_MAX);
}

fn transition_times(previous: Option<&PodStatus>, status: &mut PodStatus, now: Timestamp) {
    let known = previous.and_then(|p| p.conditions.as_deref()).unwrap_or_default();
    // Of several of one type and status the first counts.
    let known: BTreeMap<(&str, &str), &PodCondition> =
        known.iter().rev().map(|known| ((&*known.type_, &*known.status), known)).collect();
    for condition in status.conditions.iter_mut().flatten() {
        let same = known.get(&(&*condition.type_, &*condition.status));
        condition.last_transition_time = same
            .and_then(|c| c.last_transition_time.clone())
            .or_else(|| condition.last_transition_time.take())
            .map_or_else(|| Some(time(now)), |at| Some(time(at.0)));
    }
}

/// The most bytes of a container's messages.
#[derive(Clone, Copy)]
struct Shares {
    terminated: usize,
    waiting: usize,
}

impl Shares {
    /// Each of the pod's containers has an equal share.
    fn of(containers: usize) -> Self {
        let containers = containers.max(1);
        Self { terminated: MESSAGE_BYTES_MAX / containers, waiting: WAITING_BYTES_MAX / containers }
    }
}

fn settle_containers(
    statuses: &mut Option<Vec<ContainerStatus>>,
    previous: &[ContainerStatus],
    shares: Shares,
) {
    let previous = by_name(previous);
    for status in statuses.iter_mut().flatten() {
        if let Some(old) = previous.get(&*status.name) {
            status.restart_count = status.restart_count.max(old.restart_count);
        }
        for state in [&mut status.state, &mut status.last_state].into_iter().flatten() {
            settle_state(state, shares);
        }
    }
    // An absent list and an empty one are the same to the API.
    if statuses.as_ref().is_some_and(Vec::is_empty) {
        *statuses = None;
    }
}

fn settle_state(state: &mut ContainerState, shares: Shares) {
    let seconds = |at: &mut Option<Time>| {
        if let Some(at) = at {
            *at = time(at.0);
        }
    };
    if let Some(running) = &mut state.running {
        seconds(&mut running.started_at);
    }
    if let Some(terminated) = &mut state.terminated {
        seconds(&mut terminated.started_at);
        seconds(&mut terminated.finished_at);
        if let Some(message) = &mut terminated.message {
            message.truncate(message.floor_char_boundary(shares.terminated));
        }
    }
    if let Some(message) = state.waiting.as_mut().and_then(|waiting| waiting.message.as_mut()) {
        message.truncate(message.floor_char_boundary(shares.waiting));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStateWaiting};
    use proptest::prelude::*;

    use super::*;

    fn phases() -> impl Strategy<Value = Phase> {
        prop::sample::select(vec![Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed])
    }

    fn verdicts() -> impl Strategy<Value = PhaseVerdict> {
        (phases(), prop::option::of("[AB]"), prop::option::of("[ab]"))
            .prop_map(|(phase, reason, message)| PhaseVerdict { phase, reason, message })
    }

    proptest! {
        #[test]
        fn a_terminal_phase_is_never_left(steps in prop::collection::vec((verdicts(), any::<bool>()), 1..20)) {
            let mut known = PhaseVerdict::plain(Phase::Pending);
            for (verdict, may_end) in steps {
                let next = verdict.clone().after(&known, may_end);
                if known.phase.is_terminal() {
                    prop_assert_eq!(&next, &known);
                } else if !may_end {
                    prop_assert!(!next.phase.is_terminal());
                } else {
                    prop_assert_eq!(next.phase, verdict.phase);
                }
                known = next;
            }
        }

        #[test]
        fn reason_and_message_stay_while_the_phase_does(phase in phases(), reason in "[A-Z]{1,5}") {
            let known = PhaseVerdict { phase, reason: Some(reason), message: Some("m".into()) };
            prop_assert_eq!(PhaseVerdict::plain(phase).after(&known, true), known);
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ready(status: &str) -> PodStatus {
        PodStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![PodCondition {
                type_: READY.into(),
                status: status.into(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        }
    }

    fn transition(status: &PodStatus) -> Timestamp {
        status.conditions.as_ref().unwrap()[0].last_transition_time.as_ref().unwrap().0
    }

    #[test]
    fn start_time_is_set_once_and_transition_times_only_change_with_the_status() {
        let first = settle(None, ready("False"), 1, at("2026-05-01T12:00:00.75Z"));
        assert_eq!(first.start_time.as_ref().unwrap().0, at("2026-05-01T12:00:00Z"));
        assert_eq!(transition(&first), at("2026-05-01T12:00:00Z"));

        let second = settle(Some(&first), ready("False"), 1, at("2026-05-01T12:01:00Z"));
        assert_eq!(second, first);

        let third = settle(Some(&second), ready("True"), 1, at("2026-05-01T12:02:00Z"));
        assert_eq!(transition(&third), at("2026-05-01T12:02:00Z"));
        assert_eq!(third.start_time, first.start_time);
    }

    #[test]
    fn a_pod_that_ended_is_not_ready() {
        let mut status = ready("True");
        status.phase = Some("Failed".into());
        let settled = settle(None, status, 1, at("2026-05-01T12:00:00Z"));
        let condition = &settled.conditions.as_ref().unwrap()[0];
        assert_eq!((&*condition.status, condition.reason.as_deref()), ("False", Some("PodFailed")));
    }

    #[test]
    fn a_long_message_is_cut_to_its_containers_share_and_keeps_whole_characters() {
        let long = |text: &str| {
            let end = ContainerStateTerminated { message: Some(text.to_owned()), ..Default::default() };
            let state = ContainerState { terminated: Some(end), ..ContainerState::default() };
            let main =
                ContainerStatus { name: "main".into(), state: Some(state), ..ContainerStatus::default() };
            PodStatus { container_statuses: Some(vec![main]), ..PodStatus::default() }
        };
        let told = |text: &str, containers: usize| {
            let settled = settle(None, long(text), containers, at("2026-05-01T12:00:00Z"));
            let state = settled.container_statuses.unwrap().remove(0).state.unwrap();
            state.terminated.unwrap().message.unwrap()
        };
        assert_eq!(told(&"x".repeat(20_000), 3).len(), 4096);
        assert_eq!(told(&"x".repeat(20_000), 1).len(), MESSAGE_BYTES_MAX);
        assert_eq!(told(&"é".repeat(20_000), 5).len(), 2456, "not 2457");
        assert_eq!(told("short", 100), "short");
    }

    #[test]
    fn what_containers_wait_for_has_a_bound_for_all_of_a_pod_together() {
        let waiting = ContainerStateWaiting { message: Some("é".repeat(1 << 20)), reason: None };
        let state = ContainerState { waiting: Some(waiting), ..ContainerState::default() };
        let one = ContainerStatus { state: Some(state), ..ContainerStatus::default() };
        let status = PodStatus { container_statuses: Some(vec![one; 100]), ..PodStatus::default() };
        let settled = settle(None, status, 100, at("2026-05-01T12:00:00Z"));
        let told = settled
            .container_statuses
            .unwrap()
            .into_iter()
            .map(|container| container.state.unwrap().waiting.unwrap().message.unwrap().len());
        assert_eq!(told.collect::<Vec<_>>(), [2620; 100]);
    }

    #[test]
    fn texts_of_the_pod_have_a_bound_and_those_of_other_writers_are_theirs() {
        let condition = |type_: &str| PodCondition {
            type_: type_.to_owned(),
            message: Some("é".repeat(1 << 20)),
            ..PodCondition::default()
        };
        let status = PodStatus {
            message: Some("é".repeat(1 << 20)),
            conditions: Some(vec![condition(READY), condition("example.org/ours")]),
            ..PodStatus::default()
        };
        let settled = settle(None, status, 1, at("2026-05-01T12:00:00Z"));
        let conditions = settled.conditions.unwrap();
        let bytes = |condition: &PodCondition| condition.message.as_ref().map(String::len);
        assert_eq!(settled.message.map(|text| text.len()), Some(TEXT_BYTES_MAX + 3));
        assert_eq!(
            conditions.iter().map(bytes).collect::<Vec<_>>(),
            [Some(TEXT_BYTES_MAX + 3), Some(2 << 20)]
        );
    }

    #[test]
    fn the_observed_generation_does_not_go_back() {
        let known = PodStatus { observed_generation: Some(4), ..PodStatus::default() };
        let settled = settle(
            Some(&known),
            PodStatus { observed_generation: Some(3), ..PodStatus::default() },
            1,
            at("2026-05-01T12:00:00Z"),
        );
        assert_eq!(settled.observed_generation, Some(4));
    }
}
