//! Pods all of whose containers are restarted in place after a container's exit demanded it (rows 5.11 and 8.4).

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, PodCondition, PodSpec,
    PodStatus,
};
use messages::runtime::{self, RuntimePod};
use pod_rules::conditions;
use pod_rules::restart::{could_restart_all, restarts_all};

use crate::container_state::{RESTARTING_ALL, STATUS_UNKNOWN_EXIT, by_name, terminated, waiting};
use crate::phase::{Phase, terminal_reason};
use crate::spec::{self, ContainerSpec};

/// The type of the condition AllContainersRestarting.
pub(crate) const ALL_RESTARTING: &str = "AllContainersRestarting";

const STARTED: &str = "RestartAllContainersStarted";
const STARTED_MESSAGE: &str = "container exited with restart policy rule";
const REMOVED: &str = "The container is removed because RestartAllContainers in place";

/// Whether all containers are to be restarted: the last status says so already, or a container has ended with an exit
/// that demands it, as the runtime or the last status shows.
pub(crate) fn is_restarting(
    spec: &PodSpec,
    observed: Option<&RuntimePod>,
    previous: Option<&PodStatus>,
) -> bool {
    if !could_restart_all(spec) {
        return false;
    }
    let told = previous.and_then(|p| p.conditions.as_deref()).unwrap_or_default();
    if told.iter().any(|c| c.type_ == ALL_RESTARTING && c.status == conditions::status(true)) {
        return true;
    }
    let known = previous.into_iter().flat_map(|p| [&p.init_container_statuses, &p.container_statuses]);
    let known = by_name(known.flatten().flatten());
    let ended = |container: &ContainerSpec<'_>| {
        let exited = |i: &&runtime::RuntimeContainer| i.state == runtime::ContainerState::Exited;
        let newest = observed.map(|o| o.latest(container.name));
        if newest.is_some_and(|i| i.is_none_or(|i| !exited(&i))) {
            return false;
        }
        let now = newest.flatten().map(|i| i.exit_code);
        let before = known.get(container.name).and_then(|s| terminated(s));
        [now, before.map(|end| end.exit_code)]
            .into_iter()
            .flatten()
            .any(|code| restarts_all(container.rules, code))
    };
    spec::init(spec).chain(spec::regular(spec)).any(|c| ended(&c))
}

/// The condition AllContainersRestarting, for a pod that has such a rule.
pub(crate) fn condition(
    spec: &PodSpec,
    observed: Option<&RuntimePod>,
    restarting: bool,
    phase: Phase,
) -> Option<PodCondition> {
    if !could_restart_all(spec) {
        return None;
    }
    let left = observed
        .is_none_or(|o| spec::init(spec).chain(spec::regular(spec)).any(|c| o.latest(c.name).is_some()));
    let (status, reason, message) = match phase {
        Phase::Succeeded | Phase::Failed => (false, Some(terminal_reason(phase)), None),
        _ if restarting && left => (true, Some(STARTED), Some(STARTED_MESSAGE)),
        _ => (false, None, None),
    };
    Some(PodCondition {
        type_: ALL_RESTARTING.to_owned(),
        status: conditions::status(status).to_owned(),
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        ..PodCondition::default()
    })
}

/// Whether the container waits because it was removed to be restarted.
pub(crate) fn is_taken_away(status: &ContainerStatus) -> bool {
    waiting(status).is_some_and(|waiting| waiting.reason.as_deref() == Some(RESTARTING_ALL))
}

/// The status of a container that has been removed to be restarted.
pub(crate) fn taken_away(blank: ContainerStatus, restarts: i32) -> ContainerStatus {
    let waiting =
        ContainerStateWaiting { reason: Some(RESTARTING_ALL.to_owned()), message: Some(REMOVED.to_owned()) };
    let end = ContainerStateTerminated {
        reason: Some(RESTARTING_ALL.to_owned()),
        message: Some(REMOVED.to_owned()),
        exit_code: STATUS_UNKNOWN_EXIT,
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        state: Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() }),
        last_state: Some(ContainerState { terminated: Some(end), ..ContainerState::default() }),
        restart_count: restarts.saturating_add(1),
        ..blank
    }
}
