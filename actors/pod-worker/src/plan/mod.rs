//! What has to be done so that a pod runs as desired: decided from what was seen, as a value.
//!
//! The order of the steps is the order of the fields (row 5.3). [`plan`] never does the same thing twice for one
//! observation: the worker looks again before it plans again.

mod init;
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

use crate::backoff::{CrashBackoff, Verdict};
use crate::hash::container_hash;
use crate::spec::{ContainerKind, PodView};
use crate::texts;

/// All that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The desired pod.
    pub pod: &'a Pod,
    /// What the runtime holds of it.
    pub runtime: &'a RuntimePod,
    /// Settled probe verdicts by container name.
    pub verdicts: &'a BTreeMap<String, ContainerVerdict>,
    /// Restart delays.
    pub backoff: &'a CrashBackoff,
    /// What the worker remembers of failed attempts.
    pub known: &'a Known,
    /// The network plugin is not ready: only pods on the node's network are synced (row 3.8).
    pub network_ready: bool,
    /// Dead instances that are kept of each container.
    pub dead_kept: usize,
    /// `runtime` is how things were then, or later.
    pub seen_at: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// How long after a kill that nobody here asked for the sandbox is looked at before the container comes back: the end
/// of the sandbox may be what killed it, and the runtime says so of the container first.
const SANDBOX_SETTLES: SignedDuration = SignedDuration::from_secs(1);
/// The exit code of a process that SIGKILL has ended.
const KILLED: i32 = 137;

/// What a worker remembers of its last attempts. Losing it costs one early retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Containers that could not be started, by name.
    pub failures: BTreeMap<String, Failure>,
    /// The sandbox (or what it needs: volumes, directories, cgroup) could not be made: not again before this.
    pub pod_retry_at: Option<Timestamp>,
    /// Removing dead instances has failed: not again before this.
    pub prune_retry_at: Option<Timestamp>,
    /// Containers whose image is being waited for, by name: nothing of theirs is started meanwhile.
    pub pulling: BTreeSet<String>,
    /// Instances (by container name, the runtime's ID) whose postStart hook has not ended: what comes after them in the
    /// pod waits, and their probes kill nothing.
    pub hooking: BTreeMap<String, Arc<str>>,
    /// Instances whose postStart hook has failed: they are killed.
    pub hook_failed: BTreeMap<String, Arc<str>>,
    /// Instances that were killed to start another: that is done whatever the restart policy says, until it has failed.
    pub replaced: Arc<BTreeMap<String, Arc<str>>>,
}

impl Known {
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
    /// Shown as the container's waiting state.
    pub waiting: WaitingReason,
    /// Not before this.
    pub retry_at: Timestamp,
    /// The hash of the spec that failed; another one is tried at once.
    pub hash: u64,
}

/// The plan of one sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodPlan {
    /// Stop all live containers, then all sandboxes.
    pub kill_pod: bool,
    /// Ready sandboxes without live containers that a lost answer left behind: stop and remove.
    pub discard_sandboxes: Vec<Arc<str>>,
    /// Single containers to stop, one after another.
    pub kill: Vec<KillContainer>,
    /// An exit restarts all containers: these instances are killed, where they run, and removed, one after another.
    pub reset: Vec<Reset>,
    /// Instances to remove before anything starts.
    pub purge: Vec<Prune>,
    /// A sandbox to create.
    pub create_sandbox: Option<NewSandbox>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Instances to remove afterwards, at leisure: nothing waits for it.
    pub prune: Vec<Prune>,
    /// Containers that wait, by name, and why.
    pub waiting: BTreeMap<String, WaitingReason>,
    /// Containers whose wait is a restart delay: one event BackOff each.
    pub backing_off: Vec<BackingOff>,
    /// The next moment at which the same inputs give another plan.
    pub look_again: Option<Timestamp>,
    /// Something starts only when a look that began at this moment or later has shown that the sandbox is well.
    pub look_after: Option<Timestamp>,
    /// Something would start, or be killed, if the network were ready.
    pub needs_network: bool,
    /// The pod has nothing more to run.
    pub finished: Option<Finished>,
}

impl PodPlan {
    /// Nothing is to be done.
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

    /// Instances that are killed to start another one of the same container, by its name.
    pub fn replaced(&self) -> BTreeMap<String, Arc<str>> {
        let comes_back = |kill: &&KillContainer| self.start.iter().any(|start| start.name == kill.name);
        self.kill.iter().filter(comes_back).map(|kill| (kill.name.clone(), kill.id.clone())).collect()
    }

    /// Something waits until this moment.
    fn not_before(&mut self, moment: Timestamp) {
        self.look_again = Some(self.look_again.map_or(moment, |earlier| earlier.min(moment)));
    }
}

/// A container that waits for its restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingOff {
    /// Kind, for the event's field path.
    pub kind: ContainerKind,
    /// Its name.
    pub name: String,
    /// Until then.
    pub until: Timestamp,
}

/// A sandbox to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSandbox {
    /// `metadata.attempt`.
    pub attempt: u32,
    /// It replaces one: event SandboxChanged.
    pub replaces: bool,
}

/// Why a container is killed; it decides which grace period holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillReason {
    /// The startup probe has failed for good.
    StartupProbe,
    /// The liveness probe has failed for good.
    LivenessProbe,
    /// Its postStart hook has failed.
    PostStartHook,
    /// Anything else.
    Other,
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillContainer {
    /// The runtime's ID.
    pub id: Arc<str>,
    /// Its name in the spec.
    pub name: String,
    /// Kind, for the event's field path.
    pub kind: ContainerKind,
    /// The message of event Killing.
    pub message: String,
    /// Why.
    pub reason: KillReason,
}

/// An instance to remove since all containers are restarted (row 5.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The runtime's ID.
    pub id: Arc<str>,
    /// Its name in the spec.
    pub name: String,
    /// Kind, for the event's field path.
    pub kind: ContainerKind,
    /// It has not exited: it is killed first, without grace.
    pub kill: bool,
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartContainer {
    /// Index in `spec.initContainers`, `spec.containers` or `spec.ephemeralContainers`.
    pub index: usize,
    /// Which of them, and how.
    pub kind: ContainerKind,
    /// Its name.
    pub name: String,
    /// The restart count; absent if the runtime knows no instance: then the log files decide (row 5.16).
    pub attempt: Option<u32>,
    /// Why.
    pub why: StartReason,
}

/// Why a container is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartReason {
    /// There is no instance of it.
    New,
    /// Its last instance was created, and never ran.
    NeverRan,
    /// Its last instance has exited.
    Exited,
    /// It is killed by this plan and comes back.
    Killed,
    /// Its sandbox is replaced.
    NewSandbox,
}

/// An instance to remove from the runtime, with its log and the link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// The runtime's ID.
    pub id: Arc<str>,
    /// Its name in the spec, or what the runtime calls it.
    pub name: Arc<str>,
    /// Its restart count, by which its log is named.
    pub attempt: u32,
}

/// Why a pod has nothing more to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// No container is left that runs or will.
    Done,
    /// An init container has failed and may not be restarted.
    InitFailed,
    /// The sandbox is gone, and the restart policy forbids another.
    SandboxGone,
}

/// Makes the plan.
pub fn plan(inputs: &Inputs<'_>) -> PodPlan {
    let mut plan = PodPlan::default();
    let view = PodView::of(inputs.pod);
    let unsynced = !inputs.network_ready && !view.host_network();
    plan.reset = reset::all_containers(view, inputs.runtime);
    if !plan.reset.is_empty() && unsynced {
        return PodPlan { needs_network: true, ..PodPlan::default() };
    }
    if !plan.reset.is_empty() {
        // The pod begins anew when nothing of it is left.
        return plan;
    }
    match sandbox::verdict(view, inputs.runtime) {
        sandbox::Verdict::Keep { discard } => {
            plan.discard_sandboxes = discard;
            keep_sandbox(inputs, view, &mut plan);
        }
        sandbox::Verdict::Replace(new) => sandbox::replace(inputs, view, new, &mut plan),
    }
    if plan.finished.is_some() {
        // The worker goes on to terminate the pod, which kills what is left in the right order.
        return PodPlan { finished: plan.finished, ..PodPlan::default() };
    }
    hold_back(inputs, view, &mut plan);
    if unsynced { without_network(plan) } else { plan }
}

/// Upstream does not sync a pod that needs a network which is not ready: nothing starts, and nothing is killed either,
/// not even what a probe has failed (row 3.8).
fn without_network(plan: PodPlan) -> PodPlan {
    let needs_network = !PodPlan { prune: Vec::new(), ..plan.clone() }.is_idle();
    PodPlan { needs_network, prune: plan.prune, waiting: plan.waiting, ..PodPlan::default() }
}

fn keep_sandbox(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    plan.purge = prune::init_before_start(view, inputs.runtime);
    plan.prune = prune::dead(view, inputs.runtime, inputs.dead_kept)
        .into_iter()
        .filter(|prune| !plan.purge.iter().any(|purge| purge.id == prune.id))
        .collect();
    ephemeral(inputs, view, plan);
    match init::progress(inputs, view, plan) {
        init::Progress::Failed => plan.finished = Some(Finished::InitFailed),
        init::Progress::Running => {}
        init::Progress::Initialized => regular::decide(inputs, view, plan),
    }
}

/// Ephemeral containers are started before all else, also while the pod is not initialized, and never again.
fn ephemeral(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    for (index, container) in view.ephemeral().iter().enumerate() {
        if inputs.runtime.latest(&container.name).is_none() {
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

/// Takes out what has to wait: for a restart delay, or for the retry of a failure. An init container that waits holds
/// up all that follow it.
fn hold_back(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    let ephemeral = view.ephemeral().iter().filter_map(|container| view.find(&container.name));
    let lasting = view.containers().map(|(kind, container)| (kind, Cow::Borrowed(container)));
    for (_, container) in lasting.chain(ephemeral) {
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
    let mut ready = Vec::new();
    let mut blocked = false;
    for start in std::mem::take(&mut plan.start) {
        let Some((_, container)) = view.find(&start.name) else { continue };
        if blocked {
            continue;
        }
        if inputs.known.pulling.contains(&start.name) {
            blocked = start.kind == ContainerKind::Init;
            continue;
        }
        if held_by_hook(inputs, view, &start) {
            blocked = start.kind == ContainerKind::Init;
            continue;
        }
        match wait_of(inputs, &container) {
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

/// A container is started first when the postStart hooks of those before it have ended, and again when its own has.
fn held_by_hook(inputs: &Inputs<'_>, view: PodView<'_>, start: &StartContainer) -> bool {
    if inputs.known.hooking.contains_key(&start.name) {
        return true;
    }
    if matches!(start.why, StartReason::Exited | StartReason::Killed) {
        return false;
    }
    let Some(place) = view.place(&start.name) else { return false };
    inputs.known.hooking.keys().any(|name| view.place(name).is_some_and(|before| before < place))
}

/// The moment at which the sandbox has to be looked at before this start, if it has not been yet.
fn settles_at(inputs: &Inputs<'_>, start: &StartContainer) -> Option<Timestamp> {
    let instance = inputs.runtime.latest(&start.name).filter(|_| start.why == StartReason::Exited)?;
    let killed = instance.exit_code == KILLED && &*instance.reason != "OOMKilled";
    let finished = instance.finished_at.filter(|at| killed && *at <= inputs.now)?;
    let settled = finished.saturating_add(SANDBOX_SETTLES).unwrap_or(Timestamp::MAX);
    (inputs.seen_at < settled).then_some(settled)
}

/// What the whole pod needs is not there: nothing starts, and what is dead already is not killed again and again.
/// True if that held anything back.
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
    if let Verdict::Wait { until, delay } = inputs.backoff.verdict(inputs.runtime, name, hash, inputs.now) {
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

/// A failure stays visible until an instance has been started after it.
fn still_failing<'a>(inputs: &Inputs<'a>, container: &Container) -> Option<&'a Failure> {
    let failure = inputs.known.failures.get(&container.name)?;
    let running = inputs.runtime.latest(&container.name).is_some_and(|c| c.state == ContainerState::Running);
    (!running && failure.hash == container_hash(container)).then_some(failure)
}

/// The verdict over this very instance.
fn verdict_of<'a>(inputs: &Inputs<'a>, instance: &RuntimeContainer) -> Option<&'a ContainerVerdict> {
    inputs.verdicts.get(&*instance.name).filter(|verdict| verdict.container_id == instance.id)
}

/// The image in the spec is not the one the instance was made of, or nobody knows of what it was made.
fn changed(container: &Container, instance: &RuntimeContainer) -> bool {
    instance.hash != Some(container_hash(container))
}

/// A container whose postStart hook has failed is killed; upstream's words for it are that short.
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

/// One more than the newest instance has, and than any other: the name of an attempt is never used twice.
fn next_attempt(runtime: &RuntimePod, name: &str) -> Option<u32> {
    runtime.instances(name).map(|instance| instance.attempt.saturating_add(1)).max()
}
