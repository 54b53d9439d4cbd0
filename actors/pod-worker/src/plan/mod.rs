//! PURE: the plan of one sync, which holds the steps that make a pod run as desired.
//!
//! The order of the steps is the order of the fields of [`PodPlan`] (row 5.3). The worker looks at the
//! runtime again before it makes the next plan, so no step is planned twice for one observation.

mod init;
mod lost;
mod prune;
mod regular;
mod reset;
mod sandbox;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use messages::facts::{ContainerVerdict, WaitingReason};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};

use crate::backoff::{CrashBackoff, StartDecision};
use crate::ephemeral::as_container;
use crate::hash::container_hash;
use crate::past::Past;
use crate::spec::{ContainerKind, Listed, PodView};
use crate::texts;

/// The inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// The pod's sandboxes and containers at the runtime.
    pub runtime: &'a RuntimePod,
    /// Settled probe verdicts by container name.
    pub verdicts: &'a BTreeMap<String, ContainerVerdict>,
    /// The restart delays.
    pub backoff: &'a CrashBackoff,
    /// The results of earlier attempts.
    pub known: &'a AttemptHistory,
    /// Which containers have run, also those of which the runtime has nothing any more.
    pub past: &'a Past,
    /// Whether the runtime's network is ready; otherwise only pods on the node's network are synced (row
    /// 3.8).
    pub network_ready: bool,
    /// How many dead instances of each container are kept.
    pub dead_kept: usize,
    /// `runtime` is the state at this moment or later.
    pub seen_at: Timestamp,
    /// The wall time at which the plan is made.
    pub now: Timestamp,
}

/// How long after a kill from outside of the kubelet a restart waits for a look at the sandbox: the end of
/// the sandbox may have killed the container, and the runtime reports the container's end first.
const SANDBOX_SETTLES: SignedDuration = SignedDuration::from_secs(1);
/// The exit code of a process that was killed by SIGKILL.
const KILLED: i32 = 137;

/// The worker's memory of its last attempts. Losing it costs one early retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptHistory {
    /// The containers that could not be started, by name.
    pub failures: BTreeMap<String, Failure>,
    /// When the sandbox, or its volumes, directories or cgroup, may be tried again after a failure.
    pub pod_retry_at: Option<Timestamp>,
    /// When the removal of dead instances may be tried again after a failure.
    pub prune_retry_at: Option<Timestamp>,
    /// The containers whose image is being waited for, by name: none of them is started meanwhile.
    pub pulling: BTreeSet<String>,
    /// The instances whose postStart hook has not ended (container name to the runtime's ID): containers
    /// after them in the pod wait, and their probes kill nothing.
    pub hooking: BTreeMap<String, Arc<str>>,
    /// The instances whose postStart hook has failed (container name to the runtime's ID): they are killed.
    pub hook_failed: BTreeMap<String, Arc<str>>,
    /// The instances that were killed to be replaced: the next one is started whatever the restart policy
    /// says, until that has failed.
    pub replaced: Arc<BTreeMap<String, Arc<str>>>,
}

impl AttemptHistory {
    fn is_hooking(&self, instance: &RuntimeContainer) -> bool {
        self.hooking.get(&*instance.name) == Some(&instance.id)
    }

    fn is_replaced(&self, instance: &RuntimeContainer) -> bool {
        self.replaced.get(&*instance.name) == Some(&instance.id)
    }

    fn has_failed_hook(&self, instance: &RuntimeContainer) -> bool {
        self.hook_failed.get(&*instance.name) == Some(&instance.id)
    }
}

/// A container that could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason and message of the container's waiting state.
    pub waiting: WaitingReason,
    /// When the start may be tried again.
    pub retry_at: Timestamp,
    /// The hash of the spec that failed; another spec is tried at once.
    pub hash: u64,
}

/// The plan of one sync: the steps in the order of the fields, and what the worker reports or waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlan {
    /// Stop all live containers, then all sandboxes.
    pub kill_pod: bool,
    /// Ready sandboxes without live containers, left behind by a lost answer: stop and remove them.
    pub discard_sandboxes: Vec<Arc<str>>,
    /// Single containers to stop, one after another.
    pub kill: Vec<KillContainer>,
    /// An exit restarts all containers: these instances are killed if they run, and removed, one after
    /// another.
    pub reset: Vec<Reset>,
    /// Instances to remove before any container starts.
    pub purge: Vec<Prune>,
    /// A sandbox to create.
    pub create_sandbox: Option<NewSandbox>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Dead instances to remove at leisure: no start waits for them.
    pub prune: Vec<Prune>,
    /// The reason and message of each container that waits, by name.
    pub waiting: BTreeMap<String, WaitingReason>,
    /// Containers that wait for a restart delay: one event BackOff each.
    pub backing_off: Vec<BackingOff>,
    /// The next moment at which the same inputs would give another plan.
    pub look_again: Option<Timestamp>,
    /// A start waits until a look that began at this moment or later has shown the sandbox to be ready.
    pub look_after: Option<Timestamp>,
    /// Whether something would be started or killed if the network were ready.
    pub needs_network: bool,
    /// Why the pod has nothing more to run, if it has not.
    pub finished: Option<Finished>,
}

impl PodPlan {
    /// Whether the plan has no step.
    pub fn is_idle(&self) -> bool {
        !self.kill_pod
            && self.discard_sandboxes.is_empty()
            && self.kill.is_empty()
            && self.reset.is_empty()
            && self.purge.is_empty()
            && self.create_sandbox.is_none()
            && self.start.is_empty()
            && self.prune.is_empty()
    }

    /// The instances that the plan kills to start another one of the same container, by the container's name.
    pub fn replaced(&self) -> BTreeMap<String, Arc<str>> {
        let starts: BTreeSet<&str> = self.start.iter().map(|start| &*start.name).collect();
        let comes_back = |kill: &&KillContainer| starts.contains(&*kill.name);
        self.kill.iter().filter(comes_back).map(|kill| (kill.name.clone(), kill.id.clone())).collect()
    }

    /// Notes that a step waits until this moment.
    fn not_before(&mut self, moment: Timestamp) {
        self.look_again = Some(self.look_again.map_or(moment, |earlier| earlier.min(moment)));
    }
}

/// A container that waits for its restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingOff {
    /// The container's kind, for the event's field path.
    pub kind: ContainerKind,
    /// The container's name.
    pub name: String,
    /// The end of the restart delay.
    pub until: Timestamp,
}

/// A sandbox to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSandbox {
    /// `metadata.attempt`.
    pub attempt: u32,
    /// Whether it replaces another sandbox: event SandboxChanged.
    pub replaces: bool,
}

/// Why a container is killed, which decides its grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// The startup probe has failed for good.
    StartupProbe,
    /// The liveness probe has failed for good.
    LivenessProbe,
    /// The container's postStart hook has failed.
    PostStartHook,
    /// Any other reason.
    Other,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillContainer {
    /// The runtime's ID of the instance.
    pub id: Arc<str>,
    /// The container's name in the spec.
    pub name: String,
    /// The container's kind, for the event's field path.
    pub kind: ContainerKind,
    /// The message of the event Killing.
    pub message: String,
    /// The reason of the kill.
    pub reason: KillReason,
}

/// An instance to remove because all containers of the pod are restarted (row 5.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The runtime's ID of the instance.
    pub id: Arc<str>,
    /// The container's name in the spec.
    pub name: String,
    /// The container's kind, for the event's field path.
    pub kind: ContainerKind,
    /// Whether it has not exited, so that it is killed first, without a grace period.
    pub kill: bool,
    /// The restart count, which is in the name of its log.
    pub attempt: u32,
    /// Whether it is the container's newest instance: restarts are counted by its log.
    pub newest: bool,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartContainer {
    /// Index in `spec.initContainers`, `spec.containers` or `spec.ephemeralContainers`.
    pub index: usize,
    /// The container's kind, which names that list.
    pub kind: ContainerKind,
    /// The container's name.
    pub name: String,
    /// The restart count; absent if the runtime has no instance: then the log files on disk decide (row
    /// 5.16).
    pub attempt: Option<u32>,
    /// The reason of the start.
    pub why: StartReason,
}

/// Why a container is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartReason {
    /// The container has no instance.
    New,
    /// Its newest instance was created and never ran.
    NeverRan,
    /// Its newest instance has exited.
    Exited,
    /// This plan kills its instance, and a new one replaces that.
    Killed,
    /// The pod gets a new sandbox.
    NewSandbox,
}

impl StartReason {
    /// Whether the container comes back in a pod that goes on: then it waits for none of the containers before it.
    pub fn is_restart(self) -> bool {
        matches!(self, Self::Exited | Self::Killed)
    }
}

/// An instance to remove from the runtime, with its log and the link to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// The runtime's ID of the instance.
    pub id: Arc<str>,
    /// The container's name, as the runtime has it.
    pub name: Arc<str>,
    /// The restart count, which is in the name of its log.
    pub attempt: u32,
}

/// Why a pod has nothing more to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// No container runs or will be restarted.
    Done,
    /// An init container has failed and may not be restarted.
    InitFailed,
    /// The sandbox is gone, and the restart policy forbids another.
    SandboxGone,
}

/// Makes the plan of one sync.
pub fn plan(inputs: &Inputs<'_>) -> PodPlan {
    let mut plan = PodPlan::default();
    let view = PodView::of(inputs.pod);
    let unsynced = !inputs.network_ready && !view.host_network();
    plan.reset = reset::all_containers(view, inputs.runtime);
    if !plan.reset.is_empty() && unsynced {
        return PodPlan { needs_network: true, ..PodPlan::default() };
    }
    if !plan.reset.is_empty() {
        if let StartDecision::Wait { until, delay } = inputs.backoff.verdict_on_all(inputs.now) {
            return reset::waits(view, inputs.runtime, until, delay);
        }
        // The pod begins anew when no instance is left.
        return plan;
    }
    let nothing = Past::default();
    let inputs = &Inputs { past: lost::relevant(inputs, view, &nothing), ..*inputs };
    if let Some(finished) = lost::finished(inputs, view) {
        return PodPlan { finished: Some(finished), ..plan };
    }
    match sandbox::verdict(view, inputs.runtime) {
        sandbox::SandboxDecision::Keep { discard } => {
            plan.discard_sandboxes = discard;
            keep_sandbox(inputs, view, &mut plan);
        }
        sandbox::SandboxDecision::Replace(new) => sandbox::replace(inputs, view, new, &mut plan),
    }
    if plan.finished.is_some() {
        // The worker then terminates the pod, which stops the rest in the right order.
        return PodPlan { finished: plan.finished, ..PodPlan::default() };
    }
    hold_back(inputs, view, &mut plan);
    if unsynced { without_network(plan) } else { plan }
}

/// The plan while the network is not ready. As upstream, a pod that needs the network is not synced: no
/// container is started, and none is killed, even after a failed probe (row 3.8).
fn without_network(plan: PodPlan) -> PodPlan {
    let needs_network = !PodPlan { prune: Vec::new(), ..plan.clone() }.is_idle();
    PodPlan { needs_network, prune: plan.prune, waiting: plan.waiting, ..PodPlan::default() }
}

fn keep_sandbox(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    plan.purge = prune::init_before_start(view, inputs.runtime);
    let purged: BTreeSet<&str> = plan.purge.iter().map(|purge| &*purge.id).collect();
    plan.prune = prune::dead(view, inputs.runtime, inputs.dead_kept);
    plan.prune.retain(|prune| !purged.contains(&*prune.id));
    ephemeral(inputs, view, plan);
    match init::progress(inputs, view, plan) {
        init::Progress::Failed => plan.finished = Some(Finished::InitFailed),
        init::Progress::Running => {}
        init::Progress::Initialized => regular::decide(inputs, view, plan),
    }
}

/// Starts ephemeral containers, before all others, also while the pod is not initialized. None is started a
/// second time.
fn ephemeral(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    for (index, container) in view.ephemeral().iter().enumerate() {
        let is_new = inputs.past.lost(inputs.runtime, &container.name).is_none();
        if is_new && inputs.runtime.latest(&container.name).is_none() {
            plan.start.push(StartContainer {
                index,
                kind: ContainerKind::Ephemeral,
                name: container.name.clone(),
                attempt: None,
                why: StartReason::New,
            });
        }
    }
}

/// Takes out the starts that have to wait, for a restart delay or for the retry of a failure. An init
/// container that waits holds up all after it.
fn hold_back(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    let ephemeral = view.ephemeral().iter().map(|container| Cow::Owned(as_container(container)));
    let lasting = view.containers().map(|(_, container)| Cow::Borrowed(container));
    for container in lasting.chain(ephemeral) {
        if let Some(failure) = still_failing(inputs, &container) {
            plan.waiting.insert(container.name.clone(), failure.waiting.clone());
        }
    }
    if inputs.known.prune_retry_at.is_some_and(|at| at > inputs.now) {
        plan.prune.clear();
    }
    if let Some(retry_at) = inputs.known.pod_retry_at.filter(|at| *at > inputs.now) {
        if hold_pod(inputs, plan) {
            plan.not_before(retry_at);
        }
        return;
    }
    let named = view.by_name();
    let first_busy = first_busy(inputs, view);
    let mut ready = Vec::new();
    let mut blocked = false;
    for start in std::mem::take(&mut plan.start) {
        let Some(listed) = named.get(&start.name) else { continue };
        if blocked {
            continue;
        }
        if inputs.known.pulling.contains(&start.name) {
            blocked = start.kind == ContainerKind::Init;
            continue;
        }
        if held_by_one_before(inputs, &start, listed, first_busy) {
            blocked = start.kind == ContainerKind::Init;
            continue;
        }
        match wait_of(inputs, &listed.container()) {
            None => match settles_at(inputs, &start) {
                None => ready.push(start),
                Some(moment) => {
                    blocked = start.kind == ContainerKind::Init;
                    plan.look_after = plan.look_after.max(Some(moment));
                }
            },
            Some(wait) => {
                blocked = start.kind == ContainerKind::Init;
                plan.not_before(wait.until);
                plan.waiting.insert(start.name.clone(), wait.reason);
                if wait.crash_loop {
                    plan.backing_off.push(BackingOff {
                        kind: start.kind,
                        name: start.name,
                        until: wait.until,
                    });
                }
            }
        }
    }
    plan.start = ready;
}

/// The place of the first container that has its postStart hook or its image under way.
fn first_busy(inputs: &Inputs<'_>, view: PodView<'_>) -> Option<usize> {
    let AttemptHistory { hooking, pulling, .. } = inputs.known;
    view.containers()
        .position(|(_, container)| hooking.contains_key(&container.name) || pulling.contains(&container.name))
}

/// Whether a start waits for the postStart hook of its own earlier instance or, unless it is a restart or an ephemeral
/// container's, for the hook or the image of a container before it.
fn held_by_one_before(
    inputs: &Inputs<'_>,
    start: &StartContainer,
    listed: Listed<'_>,
    first_busy: Option<usize>,
) -> bool {
    if inputs.known.hooking.contains_key(&start.name) {
        return true;
    }
    let in_order = !start.why.is_restart() && listed.kind != ContainerKind::Ephemeral;
    in_order && first_busy.is_some_and(|busy| busy < listed.place)
}

/// The moment after which a look at the sandbox has to begin before this start, if none has yet.
fn settles_at(inputs: &Inputs<'_>, start: &StartContainer) -> Option<Timestamp> {
    let instance = inputs.runtime.latest(&start.name).filter(|_| start.why == StartReason::Exited)?;
    let killed = instance.exit_code == KILLED && &*instance.reason != "OOMKilled";
    let finished = instance.finished_at.filter(|at| killed && *at <= inputs.now)?;
    let settled = finished.saturating_add(SANDBOX_SETTLES).unwrap_or(Timestamp::MAX);
    (inputs.seen_at < settled).then_some(settled)
}

/// Holds back all starts while the sandbox, or something the whole pod needs, waits for its retry, so that
/// dead containers are not killed again and again. True if anything was held back.
fn hold_pod(inputs: &Inputs<'_>, plan: &mut PodPlan) -> bool {
    if plan.create_sandbox.is_none() && plan.start.is_empty() {
        return false;
    }
    plan.create_sandbox = None;
    plan.start.clear();
    plan.purge.clear();
    plan.look_after = None;
    plan.kill_pod &= inputs.runtime.live().next().is_some();
    true
}

struct Wait {
    until: Timestamp,
    reason: WaitingReason,
    crash_loop: bool,
}

fn wait_of(inputs: &Inputs<'_>, container: &Container) -> Option<Wait> {
    let hash = container_hash(container);
    let name = &container.name;
    if let StartDecision::Wait { until, delay } =
        inputs.backoff.verdict(inputs.runtime, name, hash, inputs.now)
    {
        let reason = WaitingReason {
            reason: texts::CRASH_LOOP_BACK_OFF.to_owned(),
            message: texts::back_off_message(delay, name, &inputs.runtime.pod),
        };
        return Some(Wait { until, reason, crash_loop: true });
    }
    let failure = inputs.known.failures.get(name).filter(|failure| failure.hash == hash)?;
    (failure.retry_at > inputs.now).then(|| Wait {
        until: failure.retry_at,
        reason: failure.waiting.clone(),
        crash_loop: false,
    })
}

/// The failure of a container, until an instance has been started after it.
fn still_failing<'a>(inputs: &Inputs<'a>, container: &Container) -> Option<&'a Failure> {
    let failure = inputs.known.failures.get(&container.name)?;
    let running = inputs.runtime.latest(&container.name).is_some_and(|c| c.state == ContainerState::Running);
    (!running && failure.hash == container_hash(container)).then_some(failure)
}

/// The verdict about this instance; a verdict about an earlier instance does not count.
fn verdict_of<'a>(inputs: &Inputs<'a>, instance: &RuntimeContainer) -> Option<&'a ContainerVerdict> {
    inputs.verdicts.get(&*instance.name).filter(|verdict| verdict.container_id == instance.id)
}

/// Whether the instance was made from another image than the spec has, or from an unknown one.
fn changed(container: &Container, instance: &RuntimeContainer) -> bool {
    instance.hash != Some(container_hash(container))
}

/// The kill of a container whose postStart hook has failed, with upstream's message.
fn failed_hook(container: &Container, kind: ContainerKind, instance: &RuntimeContainer) -> KillContainer {
    KillContainer {
        id: instance.id.clone(),
        name: container.name.clone(),
        kind,
        message: texts::FAILED_POST_START_HOOK.to_owned(),
        reason: KillReason::PostStartHook,
    }
}

fn start_of(
    runtime: &RuntimePod,
    kind: ContainerKind,
    index: usize,
    container: &Container,
    why: StartReason,
) -> StartContainer {
    StartContainer {
        index,
        kind,
        name: container.name.clone(),
        attempt: next_attempt(runtime, &container.name),
        why,
    }
}

/// One more than the highest attempt of all instances, so that no attempt's name is used twice.
fn next_attempt(runtime: &RuntimePod, name: &str) -> Option<u32> {
    runtime.instances(name).map(|instance| instance.attempt.saturating_add(1)).max()
}
