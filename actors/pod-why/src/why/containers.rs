//! PURE: what a pod's containers wait for.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateWaiting, ContainerStatus};
use pod_rules::durations::GoDuration;
use pod_rules::reasons::{CONTAINER_CREATING, ERR_IMAGE_PULL, FAILED, IMAGE_PULL_BACK_OFF, POD_INITIALIZING};
use serde_json::Value;

use super::decide::{Decision, reason_and_message, waits};
use super::facts::{Facts, Step, is_about};
use super::words::{lasting, plural, quoted, said, seconds_since, signed};
use crate::parts::{Part, Role, ended_as};

/// Reasons that say that an image cannot be had, besides those of a pull.
const IMAGE_REASONS: &[&str] =
    &["ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable"];

/// Why a container waits, unless it is only its turn that has not come.
fn telling(state: Option<&ContainerState>) -> Option<(&ContainerStateWaiting, &str)> {
    let waiting = state?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| !reason.is_empty())?;
    (!matches!(reason, CONTAINER_CREATING | POD_INITIALIZING)).then_some((waiting, reason))
}

fn state<'a>((_, _, status): &Part<'a>) -> Option<&'a ContainerState> {
    status.and_then(|status| status.state.as_ref())
}

/// Whether a container of the pod runs, has run or could not be started.
pub(super) fn has_begun(facts: &Facts<'_>) -> bool {
    facts.parts().iter().any(|part| {
        let state = state(part);
        let running = state.is_some_and(|state| state.running.is_some() || state.terminated.is_some());
        running || telling(state).is_some()
    })
}

/// A container that waits for something that it names.
pub(super) fn waiting(facts: &Facts<'_>) -> Option<Decision> {
    let parts = facts.parts();
    let told = parts.iter().find_map(|part| Some((part, telling(state(part))?)));
    let ((container, _, status), (waiting, reason)) = told?;
    let name = said(&container.name);
    let next = next_try(facts, &container.name);
    let what = match reason {
        "CrashLoopBackOff" => crashes(facts, &name, *status, waiting),
        ERR_IMAGE_PULL | IMAGE_PULL_BACK_OFF => {
            let image = said(container.image.as_deref().unwrap_or_default());
            let failed = match failed_pulls(facts, &container.name) {
                0 => "failed".to_owned(),
                times => format!("failed {}", plural(times, "time")),
            };
            let message = quoted(waiting.message.as_deref().unwrap_or_default());
            format!(" waits for its image: the pull of {image} {failed}{message}{next}")
        }
        reason if IMAGE_REASONS.contains(&reason) => {
            format!(" waits for its image: {}{next}", reason_and_message(waiting))
        }
        _ => format!(" waits for container {name}: {}{next}", reason_and_message(waiting)),
    };
    Some(waits(facts, &what))
}

/// When the worker tries to start the container again.
fn next_try(facts: &Facts<'_>, container: &str) -> String {
    match facts.worker.next_tries.get(container) {
        Some(seconds) if *seconds > 0 => format!("; the next try is in {}", lasting(*seconds)),
        Some(_) => "; the next try is due".to_owned(),
        None => String::new(),
    }
}

/// How often the recorded events say that the container's image could not be pulled.
fn failed_pulls(facts: &Facts<'_>, container: &str) -> i64 {
    let failed = facts.events.iter().filter(|event| {
        event.reason == FAILED && event.message.starts_with("Failed to pull") && is_about(event, container)
    });
    failed.map(|event| i64::from(event.count.max(1))).sum()
}

fn crashes(
    facts: &Facts<'_>,
    name: &str,
    status: Option<&ContainerStatus>,
    waiting: &ContainerStateWaiting,
) -> String {
    let last = status.and_then(|status| status.last_state.as_ref());
    let last = last.and_then(|state| state.terminated.as_ref());
    let exit = last.map(|last| format!("exit code {}, ", last.exit_code)).unwrap_or_default();
    let restarts = plural(i64::from(status.map_or(0, |status| status.restart_count)), "restart");
    let finished = last.and_then(|last| last.finished_at.as_ref());
    let delay = back_off(waiting.message.as_deref().unwrap_or_default());
    let next = match finished.zip(delay) {
        Some((finished, delay)) => match delay - seconds_since(finished, facts.now) {
            left if left > 0 => format!("; it starts again in {}", lasting(left)),
            _ => "; its next start is due".to_owned(),
        },
        None => String::new(),
    };
    format!(": container {name} crashes ({exit}{restarts}){next}")
}

/// The seconds of a message such as `back-off 1m20s restarting failed container=app pod=…`.
pub(super) fn back_off(message: &str) -> Option<i64> {
    let delay = message.strip_prefix("back-off ")?.split(' ').next()?;
    let delay = SignedDuration::try_from(GoDuration::parse(delay).ok()?.as_std()).ok()?;
    Some(delay.as_secs())
}

/// The init container whose turn it is.
pub(super) fn initialising(facts: &Facts<'_>) -> Option<Decision> {
    let lacking = facts.lacks("Initialized")?;
    let parts = facts.parts();
    let current = parts.iter().filter(|(_, role, _)| *role != Role::Main).find(|part| {
        let (_, role, status) = part;
        let ended = state(part).and_then(|state| state.terminated.as_ref());
        let done = ended.is_some_and(|ended| ended.exit_code == 0);
        let runs_beside = *role == Role::Sidecar && status.is_some_and(|status| status.started == Some(true));
        !done && !runs_beside
    });
    let Some(part) = current else {
        let why = lacking.message.as_deref().unwrap_or_default();
        return Some(waits(facts, &format!(" waits for its init containers{}", quoted(why))));
    };
    let (container, role, _) = part;
    let kind = if *role == Role::Sidecar { "sidecar" } else { "init container" };
    let name = said(&container.name);
    let state = state(part);
    let running = state.and_then(|state| state.running.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let what = match (running, ended) {
        (Some(running), _) => {
            let at = running.started_at.as_ref();
            let since = at.map(|at| format!(" since {}", lasting(seconds_since(at, facts.now))));
            format!(", which runs{}", since.unwrap_or_default())
        }
        (None, Some(ended)) => {
            format!(", which ended (exit code {}, {})", ended.exit_code, ended_as(ended))
        }
        (None, None) => ", which has not been started yet".to_owned(),
    };
    Some(waits(facts, &format!(" waits for its {kind} {name}{what}")))
}

/// A container that runs and is not ready, or has ended.
pub(super) fn not_ready(facts: &Facts<'_>) -> Option<Decision> {
    let parts = facts.parts();
    let mut not_ready = parts.iter().filter_map(|part| {
        let (container, role, status) = part;
        let status = (*status).filter(|status| !status.ready && *role != Role::Init)?;
        Some((container, status, status.state.as_ref()?))
    });
    let (container, status, state) =
        not_ready.find(|(_, _, state)| state.running.is_some() || state.terminated.is_some())?;
    let name = said(&container.name);
    if let Some(ended) = &state.terminated {
        let how = format!("exit code {}, {}", ended.exit_code, ended_as(ended));
        return Some(waits(facts, &format!(" is not Ready: container {name} has ended ({how})")));
    }
    let probe = match (status.started, &container.startup_probe, &container.readiness_probe) {
        (Some(true), _, Some(_)) | (None, None, Some(_)) => "Readiness",
        (Some(true), ..) | (None, None, None) => {
            return Some(waits(facts, &format!(" is not Ready: container {name} is not ready yet")));
        }
        (_, Some(_), _) => "Startup",
        _ => return Some(waits(facts, &format!(" is not Ready: container {name} is being started"))),
    };
    let probe_name = probe.to_lowercase();
    let begins = format!("{probe} probe ");
    let failure = facts.newest_warning(|event| {
        event.reason == "Unhealthy" && event.message.starts_with(&begins) && is_about(event, &container.name)
    });
    let what = match failure {
        Some(event) => {
            let output = event.message.strip_prefix(&begins).unwrap_or(&event.message);
            let output = output.strip_prefix("failed: ").unwrap_or(output);
            format!("fails its {probe_name} probe{}", quoted(output))
        }
        None => format!("has not passed its {probe_name} probe yet"),
    };
    Some(waits(facts, &format!(" is not Ready: container {name} {what}")))
}

/// The container whose turn it is, while nothing is wrong with it.
pub(super) fn being_created(facts: &Facts<'_>) -> Option<String> {
    let parts = facts.parts();
    let waits = |part: &&Part<'_>| state(part).is_some_and(|state| state.waiting.is_some());
    let (container, ..) = parts.iter().filter(|(_, role, _)| *role == Role::Main).find(waits)?;
    Some(format!(" waits for container {}, which is being created", said(&container.name)))
}

/// What the step that waits for an image waits for. ImageManager says whether the image is being pulled.
pub(super) fn image_step(facts: &Facts<'_>, step: &Step<'_>) -> String {
    let (container, image) = step.of.split_once(' ').unwrap_or((step.of, ""));
    let image = image.rsplit_once(", at most ").map_or(image, |(image, _)| image);
    let pulls = facts.observed("ImageManager").and_then(|observed| observed.get("pulls"));
    let mut pulls = pulls.and_then(Value::as_array).into_iter().flatten();
    let pull = pulls.find(|pull| {
        let mut waiting = pull.get("waiting").and_then(Value::as_array).into_iter().flatten();
        waiting.any(|asker| {
            let text = |field: &str| asker.get(field).and_then(Value::as_str).unwrap_or_default();
            text("container") == container && text("pod").contains(&facts.subject.uid)
        })
    });
    let text = |field: &str| pull.and_then(|pull| pull.get(field)).and_then(Value::as_str);
    let seconds = pull.and_then(|pull| pull.get("pullingSeconds")).and_then(Value::as_u64);
    let (image, since) = (said(image), lasting(signed(step.seconds)));
    match (text("state"), seconds) {
        (Some("pulling"), Some(seconds)) => {
            format!(" waits for its image: {image} is being pulled since {}", lasting(signed(seconds)))
        }
        (Some("queued"), _) => {
            format!(" waits for its image: {image} waits for other pulls since {since}")
        }
        _ => format!(" waits for its image {image} since {since}"),
    }
}
