//! Container statuses: state, lastState, ready, started, restartCount (rows 8.2, 8.3, 5.9).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ImageVolumeStatus, ResourceRequirements, VolumeMount, VolumeMountStatus, VolumeStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use messages::facts::{ContainerVerdict, WaitingReason};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};
use pod_rules::reasons;

use crate::container_state::{
    STATUS_UNKNOWN, STATUS_UNKNOWN_EXIT, by_name, last_terminated, lost, running, terminated, waiting,
};
use crate::spec::{ContainerSpec, Kind};
use crate::{effective, in_place};

const VANISHED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const REPLACED: &str = "The container could not be located.  Another instance has taken its place";
const UNREADABLE: &str = "The container could not be located when the pod was terminated";
const COMPLETED_UNSEEN: &str = "Unable to get init container status from container runtime and pod has been \
                                initialized, treat it as exited normally";

/// The facts that all containers of a pod share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// The pod in the runtime; `None` while that is unknown.
    pub(crate) observed: Option<&'a RuntimePod>,
    /// The prefix of container IDs.
    pub(crate) runtime_name: &'a str,
    /// Whether the worker has reported: without a report it is unknown whether the pod was meant to end.
    pub(crate) reported: bool,
    /// Why containers wait, as their worker reports.
    pub(crate) waiting: Option<&'a BTreeMap<String, WaitingReason>>,
    /// Probe verdicts.
    pub(crate) verdicts: Option<&'a BTreeMap<String, ContainerVerdict>>,
    /// The pod has init containers.
    pub(crate) has_init: bool,
    /// A regular container has been created: ordinary init containers must have completed.
    pub(crate) regular_created: bool,
    /// The pod has been deleted: nothing is started any more.
    pub(crate) deleted: bool,
    /// Its worker is syncing the pod: ended containers may be started again.
    pub(crate) syncing: bool,
    /// Containers that run, but count as waiting until their postStart hook has ended.
    pub(crate) starting: Option<&'a BTreeSet<String>>,
    /// Instances that have ended, or will, to make room for another instance of their container.
    pub(crate) replaced: Option<&'a BTreeMap<String, Arc<str>>>,
    /// All containers are being restarted.
    pub(crate) restarting_all: bool,
    /// The pod's restart policy.
    pub(crate) restart_policy: Option<&'a str>,
    /// The runtime makes whole mount trees of this pod read-only.
    pub(crate) recursive_read_only: bool,
    /// Stop signals are shown.
    pub(crate) stop_signals: bool,
    /// Mounts of image volumes show their images.
    pub(crate) image_volume_digests: bool,
}

impl Context<'_> {
    fn replaces(&self, instance: &RuntimeContainer) -> bool {
        self.replaced.is_some_and(|replaced| replaced.get(&*instance.name) == Some(&instance.id))
    }
}

/// The statuses of these containers, in their order. `previous` are the last known ones.
pub(crate) fn statuses<'a>(
    specs: impl Iterator<Item = ContainerSpec<'a>>,
    previous: &[ContainerStatus],
    context: &Context<'_>,
) -> Vec<ContainerStatus> {
    let previous = by_name(previous);
    specs.map(|spec| status(&spec, previous.get(spec.name).copied(), context)).collect()
}

fn status(spec: &ContainerSpec<'_>, old: Option<&ContainerStatus>, context: &Context<'_>) -> ContainerStatus {
    let mut instances = context.observed.into_iter().flat_map(|o| o.instances(spec.name));
    let newest = instances.next();
    let mut status = match newest {
        Some(container) => present(spec, container, instances.next(), old, context),
        None if context.observed.is_some() && context.reported => missing(spec, old, context),
        None => unheard(spec, old, context),
    };
    waiting_reason(&mut status, spec, newest, context);
    status.volume_mounts = volume_mounts(spec, newest, context);
    readiness(&mut status, spec, old, context);
    if newest.is_some_and(|c| c.state == ContainerState::Exited && context.replaces(c)) {
        (status.ready, status.started) = (false, Some(false));
    }
    status
}

/// The status of a container that waits, with the last known end of the instance before.
fn idle(spec: &ContainerSpec<'_>, old: Option<&ContainerStatus>, context: &Context<'_>) -> ContainerStatus {
    match old {
        Some(old) => ContainerStatus { state: Some(default_waiting(context)), ..old.clone() },
        None => blank(spec, context),
    }
}

/// The status of a container of which no instance was ever seen.
fn blank(spec: &ContainerSpec<'_>, context: &Context<'_>) -> ContainerStatus {
    ContainerStatus {
        name: spec.name.to_owned(),
        image: spec.image.to_owned(),
        state: Some(default_waiting(context)),
        last_state: Some(ApiState::default()),
        ..ContainerStatus::default()
    }
}

/// Pleg has not told of the pod yet: the last known status stays, except for the waiting reason.
fn unheard(
    spec: &ContainerSpec<'_>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) -> ContainerStatus {
    match old {
        Some(old) if running(old).is_some() || terminated(old).is_some() => old.clone(),
        _ => idle(spec, old, context),
    }
}

/// The runtime holds no instance of the container.
fn missing(
    spec: &ContainerSpec<'_>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) -> ContainerStatus {
    if let Some(old) = old
        && context.restarting_all
        && spec.kind != Kind::Ephemeral
    {
        if waiting(old).is_none() {
            return in_place::taken_away(blank(spec, context), old.restart_count);
        }
        if in_place::is_taken_away(old) {
            return old.clone();
        }
    }
    if spec.kind == Kind::Init && context.regular_created {
        return completed(spec, old, context);
    }
    let mut status = match old {
        Some(old) if terminated(old).is_some() || in_place::is_taken_away(old) => return old.clone(),
        _ => idle(spec, old, context),
    };
    if let Some(old) = old.filter(|o| running(o).is_some()) {
        // The container ran, so it has ended, though its end was not seen: without a last state the pod would fall back
        // to Pending.
        status = ContainerStatus {
            restart_count: old.restart_count.saturating_add(i32::from(!context.deleted)),
            last_state: Some(lost(VANISHED)),
            ..blank(spec, context)
        };
        // A container that does not come back waits for nothing.
        let comes_back =
            spec.kind != Kind::Ephemeral && spec.should_restart(context.restart_policy, STATUS_UNKNOWN_EXIT);
        if !context.deleted && !comes_back {
            status.state = Some(lost(UNREADABLE));
        }
    }
    status
}

/// The status of an init container without an instance: a later container has been created, so it must have completed.
fn completed(
    spec: &ContainerSpec<'_>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) -> ContainerStatus {
    if let Some(old) = old.filter(|o| terminated(o).is_some_and(|t| t.exit_code == 0)) {
        return old.clone();
    }
    let end = ContainerStateTerminated {
        reason: Some(reasons::COMPLETED.to_owned()),
        message: Some(COMPLETED_UNSEEN.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        state: Some(ApiState { terminated: Some(end), ..ApiState::default() }),
        ..idle(spec, old, context)
    }
}

/// The runtime holds an instance of the container.
fn present(
    spec: &ContainerSpec<'_>,
    newest: &RuntimeContainer,
    before: Option<&RuntimeContainer>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) -> ContainerStatus {
    let id = full_id(context, newest);
    let starting = context.starting.is_some_and(|starting| starting.contains(spec.name));
    let state = match newest.state {
        ContainerState::Running if starting => default_waiting(context),
        ContainerState::Running => ApiState {
            running: Some(ContainerStateRunning { started_at: newest.started_at.map(time) }),
            ..ApiState::default()
        },
        ContainerState::Created => default_waiting(context),
        // The restart policy may forbid the container to come back: then the API server refuses a status in which it
        // does.
        ContainerState::Exited if context.replaces(newest) => going(&id, old, context),
        ContainerState::Exited => ended(newest, &id),
        ContainerState::Unknown => unreadable(&id, old, context),
    };
    let allocated = spec.resources.cloned().unwrap_or_default();
    let effective = newest.effective.as_deref();
    ContainerStatus {
        name: spec.name.to_owned(),
        image: newest.image.to_string(),
        image_id: newest.image_ref.to_string(),
        restart_count: restart_count(newest, &id, &state, old),
        last_state: Some(last_state(&id, before, old, context)),
        allocated_resources: allocated.requests.clone().filter(|r| !r.is_empty()),
        resources: (spec.kind != Kind::Ephemeral || allocated != ResourceRequirements::default())
            .then(|| effective::resources(allocated, effective.filter(|_| state.running.is_some()))),
        user: effective.and_then(effective::user),
        stop_signal: effective
            .filter(|_| context.stop_signals)
            .and_then(|effective| effective.stop_signal.as_deref().map(str::to_owned)),
        container_id: Some(id),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

/// The instance's attempt, but never less than the last known count, and one more for every new instance and for every
/// end that was concluded and not seen.
fn restart_count(newest: &RuntimeContainer, id: &str, now: &ApiState, old: Option<&ContainerStatus>) -> i32 {
    let attempt = i32::try_from(newest.attempt).unwrap_or(i32::MAX);
    let Some(old) = old else { return attempt };
    let guessed = |end: Option<&ContainerStateTerminated>| {
        end.is_some_and(|t| t.reason.as_deref() == Some(STATUS_UNKNOWN))
    };
    if guessed(now.terminated.as_ref()) {
        return attempt.max(old.restart_count.saturating_add(i32::from(running(old).is_some())));
    }
    // A concluded end was counted when it was first told.
    if guessed(terminated(old)) {
        return attempt.max(old.restart_count);
    }
    // Attempts start over when the runtime has forgotten the earlier instances.
    let known = old.container_id.as_deref();
    let before = last_terminated(old).and_then(|t| t.container_id.as_deref());
    let known_ran = running(old).is_some() || terminated(old).is_some() || before == known;
    let is_new = known.is_some() && known != Some(id) && known_ran && before != Some(id);
    attempt.max(old.restart_count.saturating_add(i32::from(is_new)))
}

/// How the instance before ended: from the runtime, else as last known.
fn last_state(
    id: &str,
    before: Option<&RuntimeContainer>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) -> ApiState {
    if let Some(before) = before.filter(|b| b.state == ContainerState::Exited) {
        return ended(before, &full_id(context, before));
    }
    let Some(old) = old else { return ApiState::default() };
    if old.container_id.as_deref() != Some(id) {
        if let Some(ended) = terminated(old) {
            return ApiState { terminated: Some(ended.clone()), ..ApiState::default() };
        }
        if running(old).is_some() {
            return lost(REPLACED);
        }
    }
    old.last_state.clone().unwrap_or_default()
}

fn ended(container: &RuntimeContainer, id: &str) -> ApiState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code: container.exit_code,
            reason: text(&container.reason),
            message: text(&container.message),
            // An instance that never started has the epoch as its start.
            started_at: Some(time(container.started_at.unwrap_or(Timestamp::UNIX_EPOCH))),
            finished_at: container.finished_at.map(time),
            container_id: Some(id.to_owned()),
            signal: None,
        }),
        ..ApiState::default()
    }
}

/// The state of an instance that makes room for another: until the new one is there, the last known state stays.
fn going(id: &str, old: Option<&ContainerStatus>, context: &Context<'_>) -> ApiState {
    let ran = old.filter(|o| o.container_id.as_deref() == Some(id) && running(o).is_some());
    ran.and_then(|o| o.state.clone()).unwrap_or_else(|| default_waiting(context))
}

/// The state of an instance that the runtime cannot tell: if it ran, it is taken to have ended.
fn unreadable(id: &str, old: Option<&ContainerStatus>, context: &Context<'_>) -> ApiState {
    let ran = old.is_some_and(|o| {
        let guessed = terminated(o).is_some_and(|t| t.reason.as_deref() == Some(STATUS_UNKNOWN));
        o.container_id.as_deref() == Some(id) && (running(o).is_some() || guessed)
    });
    if ran { lost(UNREADABLE) } else { default_waiting(context) }
}

/// A container that will be started (again) shows why it has not been yet.
fn waiting_reason(
    status: &mut ContainerStatus,
    spec: &ContainerSpec<'_>,
    newest: Option<&RuntimeContainer>,
    context: &Context<'_>,
) {
    let Some(reason) = context.waiting.and_then(|w| w.get(spec.name)) else { return };
    let starts = match newest.map(|c| c.state) {
        _ if context.deleted => false,
        Some(ContainerState::Running) => false,
        Some(ContainerState::Created) => true,
        Some(ContainerState::Unknown) => terminated(status).is_none(),
        None => match terminated(status) {
            Some(end) => context.syncing && !(spec.kind == Kind::Init && end.exit_code == 0),
            None => true,
        },
        Some(ContainerState::Exited) => {
            let exit_code = newest.map_or(0, |c| c.exit_code);
            let done = spec.kind == Kind::Init && exit_code == 0;
            context.syncing
                && !done
                && spec.kind != Kind::Ephemeral
                && spec.should_restart(context.restart_policy, exit_code)
        }
    };
    if !starts || (context.observed.is_none() && waiting(status).is_none()) {
        return;
    }
    if terminated(status).is_some() {
        status.last_state = status.state.take();
    }
    status.state = Some(ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.reason.clone()),
            message: (!reason.message.is_empty()).then(|| reason.message.clone()),
        }),
        ..ApiState::default()
    });
}

/// Rows 7.2, 7.11: a verdict counts for the instance that it is about. Without a verdict, the last known values of the
/// same instance stay, so that Ready does not flap while ProbeManager restarts.
fn readiness(
    status: &mut ContainerStatus,
    spec: &ContainerSpec<'_>,
    old: Option<&ContainerStatus>,
    context: &Context<'_>,
) {
    if spec.kind == Kind::Ephemeral {
        return;
    }
    let Some(running_id) = running(status).and(status.container_id.as_deref()) else {
        status.started = Some(false);
        status.ready = spec.kind == Kind::Init && terminated(status).is_some_and(|t| t.exit_code == 0);
        return;
    };
    let bare = running_id.rsplit("://").next().unwrap_or(running_id);
    let verdict = context.verdicts.and_then(|v| v.get(spec.name)).filter(|v| &*v.container_id == bare);
    let same = old.filter(|o| o.container_id.as_deref() == Some(running_id));

    let started = !spec.has_startup_probe
        || verdict.and_then(|v| v.startup).unwrap_or_else(|| same.is_some_and(|o| o.started == Some(true)));
    let ready = started
        && spec.kind != Kind::Init
        && (!spec.has_readiness_probe
            || verdict.and_then(|v| v.readiness).unwrap_or_else(|| same.is_some_and(|o| o.ready)));
    status.started = Some(started);
    status.ready = ready;
}

/// The mounts of the status, with the result of `recursiveReadOnly`, and of an image volume with its image; a container that
/// demands the one or the other without the runtime's support does not start.
fn volume_mounts(
    spec: &ContainerSpec<'_>,
    newest: Option<&RuntimeContainer>,
    context: &Context<'_>,
) -> Option<Vec<VolumeMountStatus>> {
    let images = newest.filter(|_| context.image_volume_digests).and_then(|newest| newest.effective.as_ref());
    let image = |mount: &VolumeMount| {
        let slash = if mount.mount_path.starts_with('/') { "" } else { "/" };
        let image = images?.mounted_images.get(format!("{slash}{}", mount.mount_path).as_str())?;
        Some(VolumeStatus { image: Some(ImageVolumeStatus { image_ref: image.to_string() }) })
    };
    let recursive = |mount: &VolumeMount| {
        let asked = matches!(mount.recursive_read_only.as_deref(), Some("IfPossible" | "Enabled"));
        if asked && context.recursive_read_only { "Enabled" } else { "Disabled" }
    };
    let mounts: Vec<_> = spec
        .volume_mounts
        .iter()
        .map(|mount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: (mount.read_only == Some(true)).then(|| recursive(mount).to_owned()),
            volume_status: image(mount),
        })
        .collect();
    (!mounts.is_empty()).then_some(mounts)
}

fn default_waiting(context: &Context<'_>) -> ApiState {
    let reason = if context.has_init { reasons::POD_INITIALIZING } else { reasons::CONTAINER_CREATING };
    ApiState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message: None }),
        ..ApiState::default()
    }
}

fn full_id(context: &Context<'_>, container: &RuntimeContainer) -> String {
    format!("{}://{}", context.runtime_name, container.id)
}

/// The API server keeps whole seconds only; finer times would differ from those that it returns.
pub(crate) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}
