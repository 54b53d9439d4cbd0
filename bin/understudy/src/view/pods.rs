//! PURE: the rows of pods and their containers.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use pod_rules::{phases, reasons};
use pod_why::parts::{Part, Role, ended_as, parts};

use super::text::{neutralised, span};

/// The columns of a pod's row, and the rows of its containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRow {
    /// `namespace/name`.
    pub name: String,
    /// The phase, or a more telling waiting reason.
    pub status: String,
    /// The number of ready containers and sidecars, and of all of them.
    pub ready: (usize, usize),
    /// The restarts of all containers.
    pub restarts: i64,
    /// The pod's IP; empty while it has none.
    pub ip: String,
    /// The time since its start.
    pub age: String,
    /// Whether the pod needs no attention.
    pub well: bool,
    /// The containers' rows; init containers first, in the order in which they run.
    pub containers: Vec<ContainerRow>,
}

/// The columns of a container's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRow {
    /// The container's name, with its kind unless it is an ordinary container.
    pub name: String,
    /// Running, or the reason why it does not run.
    pub status: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Its restarts.
    pub restarts: i32,
    /// The time since its start or its end.
    pub age: String,
    /// How it ended last time.
    pub last_exit: String,
    /// Whether it needs no attention.
    pub well: bool,
}

/// The rows of a pod at the time `now`.
pub fn pod_row(pod: &Pod, now: Timestamp) -> PodRow {
    let meta = &pod.metadata;
    let text = |field: &Option<String>| neutralised(field.as_deref().unwrap_or_default());
    let status = pod.status.as_ref();
    let parts = parts(pod);
    let counted: Vec<_> = parts.iter().filter(|(_, role, _)| *role != Role::Init).collect();
    let ready = counted.iter().filter(|(_, _, status)| status.is_some_and(|status| status.ready)).count();
    let restarts = parts.iter().filter_map(|(_, _, status)| Some(i64::from(status.as_ref()?.restart_count)));
    let since = status.and_then(|status| status.start_time.as_ref()).or(meta.creation_timestamp.as_ref());
    let containers: Vec<_> =
        parts.iter().map(|(container, role, status)| container_row(container, *role, *status, now)).collect();
    let shown = pod_status(pod, &parts);
    let done = shown == reasons::COMPLETED || shown == phases::SUCCEEDED;
    PodRow {
        name: format!("{}/{}", text(&meta.namespace), text(&meta.name)),
        well: done || (shown == phases::RUNNING && ready == counted.len()),
        status: shown,
        ready: (ready, counted.len()),
        restarts: restarts.sum(),
        ip: status.map(|status| text(&status.pod_ip)).unwrap_or_default(),
        age: since.map(|since| ago(since.0, now)).unwrap_or_default(),
        containers,
    }
}

fn ago(then: Timestamp, now: Timestamp) -> String {
    span(now.duration_since(then).as_secs())
}

/// The pod's status in one word, as `kubectl get pods` prints it: the most telling reason.
fn pod_status(pod: &Pod, parts: &[Part<'_>]) -> String {
    let status = pod.status.as_ref();
    let given = |field: Option<&String>| field.filter(|text| !text.is_empty()).map(|text| neutralised(text));
    let reason = given(status.and_then(|status| status.reason.as_ref()));
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    if let Some(reason) = reason {
        return reason;
    }
    let phase =
        given(status.and_then(|status| status.phase.as_ref())).unwrap_or_else(|| "Unknown".to_owned());
    if phase == phases::SUCCEEDED {
        return reasons::COMPLETED.to_owned();
    }
    if phase != phases::FAILED
        && let Some(initialising) = init_status(parts)
    {
        return initialising;
    }
    let mains = || parts.iter().filter(|(_, role, _)| *role == Role::Main);
    let troubles = mains().filter_map(|(_, _, status)| trouble(status.as_ref()?.state.as_ref()?));
    match troubles.max_by_key(|(weight, _)| *weight) {
        // A container's reason tells more than "Pending".
        Some((_, reason)) => reason,
        None => phase,
    }
}

/// The status while init containers run; `None` afterwards.
fn init_status(parts: &[Part<'_>]) -> Option<String> {
    let inits: Vec<_> = parts.iter().filter(|(_, role, _)| *role != Role::Main).collect();
    let done = |(_, role, status): &&&Part<'_>| {
        let Some(status) = status else { return false };
        match role {
            Role::Sidecar => status.started == Some(true),
            _ => {
                let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
                ended.is_some_and(|ended| ended.exit_code == 0)
            }
        }
    };
    let finished = inits.iter().take_while(done).count();
    let (_, _, current) = inits.get(finished)?;
    let state = current.and_then(|status| status.state.as_ref());
    match state.and_then(trouble) {
        Some((_, reason)) if reason != reasons::POD_INITIALIZING => Some(format!("Init:{reason}")),
        _ => Some(format!("Init:{finished}/{}", inits.len())),
    }
}

/// Why a container does not run, and how telling that reason is.
fn trouble(state: &ContainerState) -> Option<(u8, String)> {
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().filter(|reason| !reason.is_empty());
        let reason = neutralised(reason.unwrap_or("Waiting"));
        let ordinary =
            matches!(reason.as_str(), reasons::CONTAINER_CREATING | reasons::POD_INITIALIZING | "Waiting");
        return Some((if ordinary { 1 } else { 3 }, reason));
    }
    let ended = state.terminated.as_ref()?;
    (ended.exit_code != 0).then(|| (2, ended_as(ended)))
}

fn container_row(
    container: &Container,
    role: Role,
    status: Option<&ContainerStatus>,
    now: Timestamp,
) -> ContainerRow {
    let kind = match role {
        Role::Init => " (init)",
        Role::Sidecar => " (sidecar)",
        Role::Main => "",
    };
    let state = status.and_then(|status| status.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let running = state.and_then(|state| state.running.as_ref());
    let last =
        status.and_then(|status| status.last_state.as_ref()).and_then(|state| state.terminated.as_ref());
    let (shown, since) = match (running, ended, state.and_then(trouble)) {
        (Some(running), ..) => (phases::RUNNING.to_owned(), running.started_at.as_ref()),
        (_, Some(ended), _) => (ended_as(ended), ended.finished_at.as_ref()),
        (_, _, Some((_, reason))) => (reason, None),
        _ => ("-".to_owned(), None),
    };
    let exit = |ended: &ContainerStateTerminated| {
        let when =
            ended.finished_at.as_ref().map(|at| format!(", {} ago", ago(at.0, now))).unwrap_or_default();
        format!("{} {}{when}", ended_as(ended), ended.exit_code)
    };
    let ready = status.is_some_and(|status| status.ready);
    ContainerRow {
        name: neutralised(&container.name) + kind,
        ready,
        restarts: status.map_or(0, |status| status.restart_count),
        age: since.map(|since| ago(since.0, now)).unwrap_or_default(),
        last_exit: ended.or(last).map(exit).unwrap_or_default(),
        well: match (running, ended) {
            (Some(_), _) => ready || role == Role::Init,
            (_, Some(ended)) => ended.exit_code == 0,
            _ => false,
        },
        status: shown,
    }
}
