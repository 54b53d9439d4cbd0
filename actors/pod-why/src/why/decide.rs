//! PURE: the sentence. Facts are taken in this order: how the pod has ended, or that it is Ready; the node; subsystems that
//! leave the pod alone; its end; its worker's step; what its containers wait for; its conditions; its newest warning.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerStateWaiting;
use pod_rules::reasons::{EVICTED, REJECTED_PREFIX};
use pod_rules::{conditions, phases};

use super::facts::{Facts, Step, is_given_up, trouble};
use super::words::{after_colon, lasting, quoted, said, seconds_since, signed};
use super::{Verdict, containers};
use crate::parts::{Part, ended_as};

/// A step that lasts longer than this is what a pod waits for.
const LASTING_SECONDS: u64 = 5;
/// The subsystems that a pod cannot do without, whatever it does.
const NEEDED: &[&str] = &["Pleg", "StatusManager"];
/// Those that a pod needs besides to begin,
const NEEDED_TO_BEGIN: &[&str] =
    &["PodManager", "PodWorkerPool", "ImageManager", "VolumeManager", "ObjectCache", "ResourceManager"];
/// to become Ready,
const NEEDED_TO_BE_READY: &[&str] = &["ProbeManager", "PodWorkerPool"];
/// and to end.
const NEEDED_TO_END: &[&str] = &["PodManager", "PodWorkerPool", "VolumeManager", "ResourceManager"];

/// The condition of a pod that has a sandbox with a network.
const READY_TO_START: &str = "PodReadyToStartContainers";

/// What is said of a pod.
pub type Decision = (Verdict, String);

/// The verdict on a pod, and the sentence.
pub fn decide(facts: &Facts<'_>) -> Decision {
    ended(facts)
        .or_else(|| ready(facts))
        .or_else(|| node(facts))
        .or_else(|| left_alone(facts))
        .or_else(|| ending(facts))
        .or_else(|| step(facts))
        .or_else(|| containers::waiting(facts))
        .or_else(|| containers::initialising(facts))
        .or_else(|| containers::not_ready(facts))
        .or_else(|| condition(facts))
        .or_else(|| warning(facts))
        .unwrap_or_else(|| unknown(facts))
}

/// That the pod waits, in this state of affairs.
pub(super) fn waits(facts: &Facts<'_>, what: &str) -> Decision {
    (Verdict::Waits, format!("{}{what}", facts.name()))
}

fn ended(facts: &Facts<'_>) -> Option<Decision> {
    let also = if facts.is_deleted() { ", and is being deleted" } else { "" };
    match facts.phase() {
        phases::SUCCEEDED => {
            let ended = facts.parts().iter().filter_map(ended_seconds_ago(facts.now)).min();
            let since = ended.map(|seconds| format!(" {} ago", lasting(seconds))).unwrap_or_default();
            Some((Verdict::Succeeded, format!("{} has succeeded{since}{also}", facts.name())))
        }
        phases::FAILED => {
            let (verdict, how) = failed(facts);
            Some((verdict, format!("{} {how}{also}", facts.name())))
        }
        _ => None,
    }
}

fn ended_seconds_ago(now: Timestamp) -> impl Fn(&Part<'_>) -> Option<i64> {
    move |(_, _, status)| {
        let ended = status.as_ref()?.state.as_ref()?.terminated.as_ref()?;
        Some(seconds_since(ended.finished_at.as_ref()?, now))
    }
}

fn failed(facts: &Facts<'_>) -> (Verdict, String) {
    let status = facts.status();
    let reason = status.and_then(|status| status.reason.as_deref()).unwrap_or_default();
    let message = status.and_then(|status| status.message.as_deref()).unwrap_or_default();
    if let Some(why) = message.strip_prefix(REJECTED_PREFIX) {
        let reason = if reason.is_empty() { String::new() } else { format!(" ({})", said(reason)) };
        return (Verdict::Refused, format!("was refused{reason}{}", after_colon(why)));
    }
    if reason == EVICTED {
        return (Verdict::Failed, format!("was evicted{}", after_colon(message)));
    }
    if !reason.is_empty() {
        return (Verdict::Failed, format!("has failed: {}{}", said(reason), after_colon(message)));
    }
    let parts = facts.parts();
    let bad = parts.iter().find_map(|(container, _, status)| {
        let ended = status.as_ref()?.state.as_ref()?.terminated.as_ref()?;
        (ended.exit_code != 0).then(|| (said(&container.name), ended))
    });
    let Some((container, ended)) = bad else {
        return (Verdict::Failed, format!("has failed{}", after_colon(message)));
    };
    let at = ended.finished_at.as_ref();
    let since = at.map(|at| format!(" {} ago", lasting(seconds_since(at, facts.now)))).unwrap_or_default();
    let how = format!("exit code {}, {}", ended.exit_code, ended_as(ended));
    let message = quoted(ended.message.as_deref().unwrap_or_default());
    (Verdict::Failed, format!("has failed: container {container} ended{since} ({how}){message}"))
}

fn ready(facts: &Facts<'_>) -> Option<Decision> {
    let since = facts.ready()?.last_transition_time.as_ref();
    let since =
        since.map(|at| format!(" since {}", lasting(seconds_since(at, facts.now)))).unwrap_or_default();
    let alone = facts.left_alone_by().into_iter().next();
    let alone =
        alone.map(|(actor, panic)| format!(", but {} leaves it alone{}", said(actor), quoted(&panic)));
    let sentence = format!("{} runs and is Ready{since}{}", facts.name(), alone.unwrap_or_default());
    Some((Verdict::Ready, sentence))
}

/// What of the node keeps the pod from going on.
fn node(facts: &Facts<'_>) -> Option<Decision> {
    let what = runtime(facts).or_else(|| subsystem(facts))?;
    let (verdict, waits) = match facts.is_ending() {
        true => (Verdict::Ends, "is ending and waits for it"),
        false => (Verdict::Waits, "waits for it"),
    };
    Some((verdict, format!("node: {what}; {} {waits}", facts.name())))
}

fn runtime(facts: &Facts<'_>) -> Option<String> {
    let runtime = facts.observed("Pleg")?.get("runtime")?;
    let is = |field: &str| runtime.get(field).and_then(serde_json::Value::as_bool);
    let text = |field: &str| runtime.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
    if is("answered") == Some(false) {
        return Some(format!("the runtime does not answer{}", quoted(text("problem"))));
    }
    if is("ready") == Some(false) {
        return Some(format!("the runtime is not ready{}", quoted(text("runtime_problem"))));
    }
    let spec = facts.subject.pod.and_then(|pod| pod.spec.as_ref());
    let needs_network = !facts.is_ending()
        && spec.is_none_or(|spec| spec.host_network != Some(true))
        && facts.condition(READY_TO_START).is_none_or(|condition| condition.status != "True");
    (needs_network && is("network_ready") == Some(false))
        .then(|| format!("the runtime's network is not ready{}", quoted(text("network_problem"))))
}

/// A subsystem that the pod needs now, and that supervision does not restart for a while.
fn subsystem(facts: &Facts<'_>) -> Option<String> {
    let needed = if facts.is_ending() {
        NEEDED_TO_END
    } else if containers::has_begun(facts) {
        NEEDED_TO_BE_READY
    } else {
        NEEDED_TO_BEGIN
    };
    let is_needed = |name: &str| NEEDED.contains(&name) || needed.contains(&name);
    let mut given_up = facts.tree.actors.iter().filter(|actor| actor.parent.is_none() && is_given_up(actor));
    let actor = given_up.find(|actor| is_needed(&actor.name))?;
    Some(format!(
        "{} is {} after too many crashes{}",
        said(&actor.name),
        said(&actor.state),
        quoted(&trouble(actor))
    ))
}

fn left_alone(facts: &Facts<'_>) -> Option<Decision> {
    let (actor, panic) = facts.left_alone_by().into_iter().next()?;
    let ending = if facts.is_ending() { " is ending and" } else { "" };
    let verdict = if facts.is_ending() { Verdict::Ends } else { Verdict::Waits };
    let why = format!("{}, which leaves it alone after repeated panics{}", said(actor), quoted(&panic));
    Some((verdict, format!("{}{ending} waits for {why}", facts.name())))
}

fn ending(facts: &Facts<'_>) -> Option<Decision> {
    if !facts.is_ending() {
        return None;
    }
    let since = ending_seconds(facts).map(|seconds| format!(" for {}", lasting(seconds)));
    let stopped = facts.worker.state.as_deref() == Some("Terminated");
    let what = match (facts.step(), &facts.worker.problem) {
        (Some(step), _) => format!(": waits for {}{}", named(&step), grace_left(facts, &step)),
        (None, Some(problem)) => format!(": the last step failed{}{}", quoted(problem), retry(facts)),
        (None, None) if stopped => ": nothing of it runs any more".to_owned(),
        (None, None) => String::new(),
    };
    Some((Verdict::Ends, format!("{} is ending{}{what}", facts.name(), since.unwrap_or_default())))
}

/// How long ago the pod was deleted. The time of its deletion is the one at which its grace period ends.
fn ending_seconds(facts: &Facts<'_>) -> Option<i64> {
    let metadata = &facts.subject.pod?.metadata;
    let left = seconds_left(facts)?;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
    Some(grace.saturating_sub(left).max(0))
}

/// The time to the end of the grace period that the API server has granted; negative once that is over.
fn seconds_left(facts: &Facts<'_>) -> Option<i64> {
    let deletion = facts.subject.pod?.metadata.deletion_timestamp.as_ref()?;
    Some(deletion.0.duration_since(facts.now).as_secs())
}

fn grace_left(facts: &Facts<'_>, step: &Step<'_>) -> String {
    if !matches!(step.call, "StopContainer" | "PreStop") {
        return format!(" since {}", lasting(signed(step.seconds)));
    }
    let of_step = facts.worker.grace_seconds.map(|grace| grace.saturating_sub(signed(step.seconds)));
    match seconds_left(facts).or(of_step) {
        Some(left) if left > 0 => format!(", which has {} left", lasting(left)),
        Some(left) if left < 0 => format!(", whose grace period is over since {}", lasting(-left)),
        _ => format!(" since {}", lasting(signed(step.seconds))),
    }
}

/// The step's name in a sentence: `StopContainer of app`.
pub(super) fn named(step: &Step<'_>) -> String {
    match step.of {
        "" => said(step.call),
        of => format!("{} of {}", said(step.call), said(of)),
    }
}

/// When the pod's step is tried again.
fn retry(facts: &Facts<'_>) -> String {
    match facts.worker.retry_seconds {
        Some(seconds) if seconds > 0 => format!("; the next try is in {}", lasting(seconds)),
        _ => String::new(),
    }
}

fn step(facts: &Facts<'_>) -> Option<Decision> {
    let step = facts.step().filter(|step| step.seconds >= LASTING_SECONDS)?;
    let since = lasting(signed(step.seconds));
    let what = match step.call {
        "EnsureImage" => containers::image_step(facts, &step),
        "MountVolumes" => {
            format!(" waits for its volumes since {since}{}", quoted(&volume_trouble(facts)))
        }
        "RunPodSandbox" => format!(" waits for its sandbox since {since}"),
        _ => format!(" waits for {} since {since}", named(&step)),
    };
    Some(waits(facts, &what))
}

/// The newest warning about volumes.
fn volume_trouble(facts: &Facts<'_>) -> String {
    facts.newest_warning(|event| is_about_volumes(&event.reason)).map_or_else(String::new, message)
}

fn message(event: &crate::model::Event) -> String {
    said(&event.message)
}

fn is_about_volumes(reason: &str) -> bool {
    reason.contains("Mount") || reason.contains("Attach") || reason.contains("Volume")
}

/// A condition that is not true, and no container tells why.
fn condition(facts: &Facts<'_>) -> Option<Decision> {
    let told = |type_: &str| {
        let lacking = facts.lacks(type_)?;
        let reason = lacking.reason.as_deref().unwrap_or_default();
        let message = lacking.message.as_deref().unwrap_or_default();
        Some(if message.is_empty() { after_colon(reason) } else { after_colon(message) })
    };
    if let Some(why) = told("PodScheduled") {
        return Some(waits(facts, &format!(" waits to be scheduled{why}")));
    }
    if facts.lacks(READY_TO_START).is_some() {
        return Some(waits(facts, &before_sandbox(facts)));
    }
    if let Some(why) = containers::being_created(facts) {
        return Some(waits(facts, &why));
    }
    let why = told(conditions::READY)?;
    Some(waits(facts, &format!(" is not Ready{why}")))
}

/// What keeps the pod from having a sandbox.
fn before_sandbox(facts: &Facts<'_>) -> String {
    let warning = facts.newest_warning(|_| true);
    let volumes = warning.filter(|event| is_about_volumes(&event.reason));
    match (volumes, &facts.worker.problem, warning) {
        (Some(event), ..) => format!(" waits for volume data{}{}", after_colon(&event.message), retry(facts)),
        (None, Some(problem), _) => {
            format!(" waits for its sandbox{}{}", after_colon(problem), retry(facts))
        }
        (None, None, Some(event)) => format!(" waits for its sandbox{}", after_colon(&event.message)),
        (None, None, None) => " waits for its sandbox".to_owned(),
    }
}

fn warning(facts: &Facts<'_>) -> Option<Decision> {
    let event = facts.newest_warning(|_| true)?;
    let since = lasting(facts.now.duration_since(event.last_seen).as_secs());
    let what = format!(
        " waits; its last warning, {since} ago, is {}{}",
        said(&event.reason),
        after_colon(&event.message)
    );
    Some(waits(facts, &what))
}

fn unknown(facts: &Facts<'_>) -> Decision {
    let phase = match facts.phase() {
        "" => "it has no status yet".to_owned(),
        phase => format!("its phase is {}", said(phase)),
    };
    waits(facts, &format!(" waits: {phase}, and no condition or event says for what"))
}

/// The waiting reason's message behind the reason.
pub(super) fn reason_and_message(waiting: &ContainerStateWaiting) -> String {
    let reason = said(waiting.reason.as_deref().unwrap_or_default());
    format!("{reason}{}", quoted(waiting.message.as_deref().unwrap_or_default()))
}
