//! PodWorker: brings one pod to its desired state, and ends it when it is not desired any more.
//!
//! The decisions are made in [`step`](crate::step) and the modules that it calls; this module keeps facts,
//! begins steps and takes in their outcomes. At most one task touches the pod at a time, and between two
//! tasks there is a look at the runtime.

mod begin;
mod clock;
mod deadline;
mod hooks;
mod outcome;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use jiff::Timestamp;
use messages::facts::{
    ContainerVerdict, DesiredPod, NodeAddressesObserved, NodeResourcesConfigured, RuntimeObserved, Source,
    WaitingReason, WorkerReport,
};
use messages::image_manager::PresentImage;
use messages::object_cache::PodObjectsChanged;
use messages::pleg::PodTouched;
use messages::pod_set::Generation;
use messages::pod_worker::worker::{PodJudged, PodSeen, RECEIVER, SyncPod, Want};
use messages::pod_worker::{EvictPod, ResendPod};
use messages::runtime::{RuntimeHealth, RuntimePod};
use messages::{PodRef, PodUid};
use pod_rules::phases;
use supervision::{Ctx, Subsystem};
use tokio::time::Instant;

use self::begin::Task;
use self::clock::Anchor;
use self::hooks::{HookWait, Hooking};
use self::outcome::Pull;
use crate::backoff::CrashBackoff;
use crate::deps::PodWorkerDeps;
use crate::execute::{AskPlaces, Floors, PreStops, Progress, SandboxMade};
use crate::lifecycle::{Change, Lifecycle, Trigger};
use crate::past::Past;
use crate::plan::AttemptHistory;
use crate::pod_images::PodImage;
use crate::pull_time::PullTime;
use crate::retry::jittered;
use crate::step::{ReconcileInput, Step, next};

/// How often the worker asks Pleg again for a look that has not come.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How often the worker asks the pool again for its pod until it has been told,
const RESEND_AGAIN: Duration = Duration::from_secs(5);
/// and about how often after that: what the pool tells, or what the worker reports, may be lost.
const RESEND_EVERY: Duration = Duration::from_secs(45);
/// The most characters of a problem that `/supervision` shows.
const PROBLEM_CHARS_SHOWN: usize = 1024;

/// A worker's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The moment that the last step waits for has come.
    Wake,
    /// The look that Pleg was asked for has not come.
    Look,
    /// The pool has not told the pod yet, or not for a while.
    Resend,
    /// Report the step that the running task waits for.
    Progress,
    /// The pod's `activeDeadlineSeconds` may have passed.
    Deadline,
    /// A follower refused the report.
    Report,
}

/// The worker of one pod.
pub struct PodWorker {
    deps: PodWorkerDeps,
    uid: PodUid,
    // Facts from messages.
    pod: Option<PodRef>,
    desired: Option<Arc<DesiredPod>>,
    gone: bool,
    /// The removal of the pod's manifest that came last before this worker.
    made_anew: Option<Generation>,
    /// The pod begins anew after its end: the names of its logs, by which restarts are counted, stay.
    comes_back: bool,
    observed: Option<Arc<RuntimePod>>,
    /// The token of the look that `observed` is of.
    look: u64,
    /// The same of the look in which nothing of the pod ran any more, once there is one.
    last_look: u64,
    health: Option<Arc<RuntimeHealth>>,
    verdicts: Arc<BTreeMap<String, ContainerVerdict>>,
    // The pod's state.
    lifecycle: Lifecycle,
    restored: bool,
    settled: bool,
    /// An order has come in its life to end the pod, or to end it sooner: no stop in flight may hold that up, which may have
    /// any grace period that the pod's author chose.
    hurried: bool,
    /// Whether the pool has told it of its pod: what it says first may have been so before this incarnation.
    told: bool,
    /// The token of the look that has to come before the next step.
    awaited: Option<u64>,
    token: u64,
    /// When that look was asked for.
    asked_at: Timestamp,
    /// `observed` is the state at this moment or later.
    seen_at: Timestamp,
    /// `status.startTime`, once StatusManager has answered.
    start_time: Option<Timestamp>,
    // The results of earlier steps.
    known: AttemptHistory,
    past: Past,
    backoff: CrashBackoff,
    floors: Floors,
    images: BTreeMap<PodImage, Arc<PresentImage>>,
    stopped_sandboxes: BTreeSet<Arc<str>>,
    waiting: Arc<BTreeMap<String, WaitingReason>>,
    /// Since when the pod has waited for volumes, or since the last event about that wait.
    volumes_since: Option<Instant>,
    /// Whether objects of the pod have changed during a task, which may have read the old ones.
    objects_changed: bool,
    retry_at: Option<Timestamp>,
    problem: Option<String>,
    /// The step that was carried out last, so that a step that changes nothing is not repeated at once.
    last: Option<Step>,
    // The work under way.
    task: Option<Task>,
    asking: bool,
    pulls: BTreeMap<PodImage, Pull>,
    /// postStart hooks under way, by container name.
    hooks: BTreeMap<String, Hooking>,
    /// The wait of the pod's stop for them.
    hook_wait: Option<HookWait>,
    /// How much of the grace period that wait has taken, in seconds.
    grace_used: i64,
    /// The containers that the running sync starts and that have a postStart hook.
    to_be_hooked: BTreeSet<String>,
    /// preStop hooks of containers that are stopped, by the runtime's ID.
    pre_stops: PreStops,
    progress: Progress,
    sandbox_made: SandboxMade,
    pull_time: PullTime,
    image_asks: AskPlaces,
    resync_at: Option<Timestamp>,
    anchor: Anchor,
    // What was recorded or reported last.
    announced: BTreeMap<String, Timestamp>,
    network_said: Option<Instant>,
    complained: Option<String>,
    blocked_on: Option<String>,
    report: Option<Arc<WorkerReport>>,
    /// Whether a follower refused the newest report.
    report_refused: bool,
    // For the metrics of a start.
    seen: Instant,
    sync_began: Instant,
    starting: bool,
    synced: bool,
}

impl PodWorker {
    /// A worker that has only the UID of its pod.
    pub fn new(uid: PodUid, deps: PodWorkerDeps) -> Self {
        let backoff = CrashBackoff::new(deps.config.crash_backoff);
        let anchor = Anchor::new(deps.clock.now());
        Self {
            anchor,
            deps,
            uid,
            pod: None,
            desired: None,
            gone: false,
            made_anew: None,
            comes_back: false,
            observed: None,
            health: None,
            verdicts: Arc::default(),
            lifecycle: Lifecycle::new(),
            restored: false,
            settled: false,
            hurried: false,
            told: false,
            awaited: None,
            token: 0,
            look: 0,
            last_look: 0,
            asked_at: Timestamp::UNIX_EPOCH,
            seen_at: Timestamp::UNIX_EPOCH,
            start_time: None,
            known: AttemptHistory::default(),
            past: Past::default(),
            backoff,
            floors: Floors::default(),
            images: BTreeMap::new(),
            stopped_sandboxes: BTreeSet::new(),
            waiting: Arc::default(),
            volumes_since: None,
            objects_changed: false,
            retry_at: None,
            problem: None,
            last: None,
            task: None,
            asking: false,
            pulls: BTreeMap::new(),
            hooks: BTreeMap::new(),
            hook_wait: None,
            grace_used: 0,
            to_be_hooked: BTreeSet::new(),
            pre_stops: PreStops::new(),
            progress: Progress::default(),
            sandbox_made: SandboxMade::default(),
            pull_time: PullTime::default(),
            image_asks: AskPlaces::default(),
            resync_at: None,
            announced: BTreeMap::new(),
            network_said: None,
            complained: None,
            blocked_on: None,
            report: None,
            report_refused: false,
            seen: Instant::now(),
            sync_began: Instant::now(),
            starting: false,
            synced: false,
        }
    }

    fn now(&self) -> Timestamp {
        self.deps.clock.now()
    }

    /// Begins the next step, unless a task is under way: then the end of the task calls this again.
    fn reconcile(&mut self, ctx: &mut Ctx<Self>) {
        self.follow_clock();
        self.see_deadline(ctx);
        self.see_hook_wait(ctx);
        if self.task.is_some() {
            return;
        }
        let observed = self.observed.as_deref().filter(|_| self.awaited.is_none());
        let step = next(&ReconcileInput {
            lifecycle: &self.lifecycle,
            pod: self.desired.as_ref().map(|desired| &*desired.pod),
            gone: self.gone,
            restored: self.restored,
            settled: self.settled,
            observed,
            seen_at: self.seen_at,
            health: self.health.as_deref(),
            verdicts: &self.verdicts,
            backoff: &self.backoff,
            known: &self.known,
            past: &self.past,
            stopped_sandboxes: &self.stopped_sandboxes,
            retry_at: self.retry_at,
            hooks_until: self.hook_wait.as_ref().map(|wait| wait.until),
            grace_used: self.grace_used,
            dead_kept: self.deps.config.dead_kept,
            now: self.now(),
        });
        self.begin(step, ctx);
    }

    /// Asks Pleg for a look at the pod; no step is begun before it has come.
    fn touch(&mut self, ctx: &mut Ctx<Self>) {
        // From the monotonic clock, so that the tokens of a new incarnation are higher than those of the one
        // before.
        let elapsed = u64::try_from(self.deps.epoch.elapsed().as_micros()).unwrap_or(0);
        self.token = elapsed.max(self.token + 1);
        self.awaited = Some(self.token);
        self.asked_at = self.now();
        self.ask_for_look(ctx);
    }

    fn ask_for_look(&mut self, ctx: &mut Ctx<Self>) {
        if let Some(token) = self.awaited {
            // Lost: asked for again when the timer runs out.
            self.deps.pleg.tell_level(PodTouched { uid: self.uid.clone(), token });
            ctx.set_timer(Timer::Look, LOOK_AGAIN);
        }
    }

    /// Ends the pod, or shortens its grace period.
    fn end(&mut self, trigger: &Trigger, ctx: &mut Ctx<Self>) {
        let change = self.lifecycle.end(trigger, self.desired.as_ref().map(|desired| &*desired.pod));
        if change == Change::None {
            return;
        }
        tracing::info!(pod = %self.uid, ?trigger, ?change, "Pod ends");
        self.retry_at = None;
        self.problem = None;
        self.last = None;
        self.known.replaced = Arc::default();
        self.cut_short(change, ctx);
        self.tell_report(ctx);
    }

    /// Stops waiting for what a terminating pod does not need. Calls to the runtime go on in the bridge; the
    /// worker waits for them but for stops, and for a look after them, before it kills anything.
    fn cut_short(&mut self, change: Change, ctx: &mut Ctx<Self>) {
        for (_, pull) in std::mem::take(&mut self.pulls) {
            ctx.cancel_effect(pull.effect);
        }
        self.known.pulling.clear();
        if matches!(change, Change::Began | Change::Shortened) {
            self.wait_for_hooks();
        }
        let Some(task) = &self.task else { return };
        let cut = match change {
            Change::Began => task.is_sync() || (task.is_settle() && self.told),
            // The stop with the shorter grace period makes the one in flight end sooner.
            Change::Shortened => task.is_stop() || task.is_settle(),
            Change::None | Change::NowDeleted => false,
        };
        if cut {
            ctx.cancel_effect(task.effect);
            let was_stop = task.is_stop();
            self.task = None;
            self.progress = Progress::default();
            self.hurried = true;
            if !was_stop {
                self.settled = false;
            } else {
                self.touch(ctx);
            }
        }
    }
}

impl Actor for PodWorker {
    type Context = Ctx<Self>;
}

impl Subsystem for PodWorker {
    const NAME: &'static str = RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        if ctx.incarnation() > 1 {
            self.deps.resend.tell_level(ResendPod { uid: self.uid.clone() });
        }
        ctx.set_timer(Timer::Resend, RESEND_AGAIN);
        self.reconcile(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Wake | Timer::Deadline => self.reconcile(ctx),
            Timer::Look => self.ask_for_look(ctx),
            Timer::Report => {
                self.tell_report(ctx);
                self.reconcile(ctx);
            }
            Timer::Resend => {
                self.deps.resend.tell_level(ResendPod { uid: self.uid.clone() });
                ctx.set_timer(Timer::Resend, RESEND_AGAIN);
            }
            Timer::Progress => self.see_progress(ctx),
        }
    }

    fn timer_pod(_timer: &Timer) -> Option<PodUid> {
        // A child is one pod's worker: supervision puts all its crashes down to that pod already.
        None
    }

    fn observe(&self) -> serde_json::Value {
        let now = self.now();
        let seconds_to = |at: Timestamp| at.duration_since(now).as_secs().max(0);
        let step = self.progress.longest();
        let retry_at = self.retry_at.into_iter().chain(self.known.pod_retry_at).min();
        let failures = self.known.failures.iter();
        let next_tries: BTreeMap<&String, i64> =
            failures.map(|(name, failure)| (name, seconds_to(failure.retry_at))).collect();
        let problem = self.problem.as_ref();
        serde_json::json!({
            "pod": self.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name)),
            "state": self.lifecycle.state(),
            "graceSeconds": self.lifecycle.grace_seconds(),
            "step": step.as_ref().map(|(step, _)| step),
            "stepSeconds": step.as_ref().map(|(_, lasts)| lasts.as_secs()),
            "problem": problem.map(|problem| problem.chars().take(PROBLEM_CHARS_SHOWN).collect::<String>()),
            "retrySeconds": retry_at.map(seconds_to),
            "nextTries": next_tries,
            "released": self.lifecycle.released(),
            "task": self.task.as_ref().map(Task::name),
            "awaitsLook": self.awaited.is_some(),
            "blockedOn": self.blocked_on,
            "waiting": self.waiting.len(),
        })
    }
}

impl Handler<SyncPod> for PodWorker {
    type Result = ();

    fn handle(&mut self, message: SyncPod, ctx: &mut Ctx<Self>) {
        // A pool that has restarted may have only the UID of a pod.
        if self.pod.is_none() || !message.pod.name.is_empty() {
            self.pod = Some(message.pod);
        }
        match message.want {
            Want::Run(desired) => self.wanted(desired, message.trusts_end, ctx),
            Want::Gone(known) => {
                self.gone = true;
                let orphaned = self.desired.is_none() && known.is_none();
                // This version of the pod has the grace period that its deletion granted.
                if let Some(known) = known {
                    self.desired = Some(known);
                }
                self.end(if orphaned { &Trigger::Orphaned } else { &Trigger::Removed }, ctx);
            }
        }
        self.told = true;
        let every = jittered(RESEND_EVERY, self.deps.clock.random_u64());
        ctx.set_timer(Timer::Resend, every);
        // The pool may have restarted, or have lost this worker's report.
        self.report = None;
        self.tell_report(ctx);
        self.reconcile(ctx);
    }
}

impl PodWorker {
    fn wanted(&mut self, desired: Arc<DesiredPod>, trusts_end: bool, ctx: &mut Ctx<Self>) {
        let changed = self.desired.as_ref().is_none_or(|known| known.pod != desired.pod);
        let is_first = self.desired.is_none();
        let is_anew = !is_first && desired.made_anew > self.made_anew;
        self.made_anew = self.made_anew.max(desired.made_anew);
        self.desired = Some(desired.clone());
        if changed {
            self.set_deadline(ctx);
            // The images were answered for the old spec.
            self.images.clear();
        }
        let pod = &desired.pod;
        if is_anew {
            // The pod gets another worker when this one is over.
            (self.gone, self.comes_back) = (true, true);
            self.end(&Trigger::Removed, ctx);
        } else if pod.metadata.deletion_timestamp.is_some() {
            self.end(&Trigger::Deleted, ctx);
        } else if is_first && trusts_end && phases::pod_has_ended(pod) {
            // An end that the API server showed before this kubelet ran the pod is final. An end that other
            // clients write while the pod runs is taken back by StatusManager, also one that a worker finds
            // when it restarts.
            self.end(&Trigger::Finished, ctx);
        } else if is_first && trusts_end && desired.source == Source::Api {
            self.past.add(pod.status.as_ref());
        }
    }
}

impl Handler<PodSeen> for PodWorker {
    type Result = ();

    fn handle(&mut self, PodSeen { seen, .. }: PodSeen, ctx: &mut Ctx<Self>) {
        self.observed = Some(seen.state);
        self.look = seen.touch;
        // The token may be of an earlier incarnation, from a clock that was ahead: the next token must be
        // higher.
        self.token = self.token.max(seen.touch);
        if self.awaited.is_some_and(|token| seen.touch >= token) {
            self.awaited = None;
            self.seen_at = self.asked_at;
            ctx.cancel_timer(&Timer::Look);
            self.see_replaced(ctx);
        }
        self.see_past();
        self.see_hooks(ctx);
        self.forget_failures_of_running();
        self.reconcile(ctx);
    }
}

impl Handler<RuntimeObserved> for PodWorker {
    type Result = ();

    fn handle(&mut self, fact: RuntimeObserved, ctx: &mut Ctx<Self>) {
        if self.health.as_ref() != Some(&fact.0) {
            self.health = Some(fact.0);
            self.reconcile(ctx);
        }
    }
}

impl Handler<PodJudged> for PodWorker {
    type Result = ();

    fn handle(&mut self, fact: PodJudged, ctx: &mut Ctx<Self>) {
        self.verdicts = fact.verdicts;
        self.reconcile(ctx);
    }
}

impl Handler<NodeAddressesObserved> for PodWorker {
    type Result = ();

    /// Containers that start from now on get the new addresses.
    fn handle(&mut self, fact: NodeAddressesObserved, _ctx: &mut Ctx<Self>) {
        let host_ips = fact.host_ips();
        if self.deps.config.host_ips != host_ips {
            Arc::make_mut(&mut self.deps.config).host_ips = host_ips;
        }
    }
}

impl Handler<NodeResourcesConfigured> for PodWorker {
    type Result = ();

    /// Containers that start from now on get the new amounts.
    fn handle(&mut self, fact: NodeResourcesConfigured, _ctx: &mut Ctx<Self>) {
        if self.deps.config.node != fact.settings {
            Arc::make_mut(&mut self.deps.config).node = fact.settings;
        }
    }
}

impl Handler<PodObjectsChanged> for PodWorker {
    type Result = ();

    fn handle(&mut self, _: PodObjectsChanged, ctx: &mut Ctx<Self>) {
        if self.task.is_some() {
            self.objects_changed = true;
        } else {
            self.retry_objects();
            self.reconcile(ctx);
        }
    }
}

impl Handler<EvictPod> for PodWorker {
    type Result = ();

    fn handle(&mut self, order: EvictPod, ctx: &mut Ctx<Self>) {
        self.end(&Trigger::Evicted { grace_seconds: order.grace_seconds, why: order.why }, ctx);
        self.reconcile(ctx);
    }
}
