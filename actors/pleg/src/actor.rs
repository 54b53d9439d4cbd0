//! The actor: requests, events and exits lead to looks at pods; looks lead to facts.

mod events;
mod health;
mod telling;
mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use bridge_cri::{CriError, ExitWatcher, Listed, RuntimeReads, Whose};
use bridge_io::clock::Clock;
use bridge_node::host::PodDirReads;
use bridge_pace::{Backoff, Rests};
use futures::StreamExt;
use jiff::Timestamp;
use messages::event_recorder::RecordEvent;
use messages::facts::{PodObserved, RuntimeObserved, SeenPod};
use messages::pleg::{GetHeldPods, GetRuntimePod, GetRuntimePods, PodTouched, ResendObserved};
use messages::runtime::{HeldPod, HeldPods, RuntimePod, RuntimePods};
use messages::{PodUid, pleg};
use pod_set::Level;
use supervision::{Address, Ctx, Effect, Reply, ReplyLater, Subsystem, blame, reply_later};
use tokio::time::Instant;

use self::health::Version;
use self::telling::Told;
use crate::inspect::{self, FailedLook, Found};
use crate::metrics::PlegMetrics;
use crate::observe;
use crate::schedule::{Look, Schedule};
use crate::undead::Undead;

/// Waits between relists that fail: those of upstream while the runtime is down (row 3.2).
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(5));
/// If so many looks begin together, one list of all pods is cheaper than a list for each.
const SHARED_FROM: usize = 3;
/// After a failed look the next one waits this long;
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// and this long while the runtime is down, since its return brings a relist at once, or has more of the pod than its answers hold.
const LOOK_AGAIN_SELDOM: Duration = Duration::from_secs(10);
/// After an event that a call of ours may have caused, a look waits so long for the end of that call or for the
/// runtime's own event, since either shows that the runtime's state is up to date.
const HEARD_BY: Duration = Duration::from_secs(1);
/// A look after a process's end waits so long, so that a call of ours that follows the first one is under way by then.
const BETWEEN_CALLS: Duration = Duration::from_millis(5);
/// A relist for which events of unknown pods are the cause begins so long after the end of the one before at least.
const BETWEEN_RELISTS: Duration = Duration::from_secs(1);
/// In a burst, looks are gathered for so long.
const GATHER: Duration = Duration::from_millis(3);
/// Asks that wait for the first relist.
const WAITING_MAX: usize = 16;

/// How often Pleg looks at the runtime without an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlegConfig {
    /// Period of relists, the safety net while exits are notified.
    pub relist: Duration,
    /// Period of looks at a pod with a running container whose exit is not notified.
    pub unnotified: Duration,
    /// Period of the runtime's `Status`.
    pub health: Duration,
    /// A look that takes longer than this does not count towards the looks under way.
    pub slow_after: Duration,
}

impl Default for PlegConfig {
    fn default() -> Self {
        Self {
            relist: Duration::from_secs(10),
            unnotified: Duration::from_secs(1),
            health: Duration::from_secs(5),
            slow_after: Duration::from_secs(5),
        }
    }
}

/// Pleg's settings, effects and addresses.
#[derive(Clone)]
pub struct PlegDeps {
    /// Periods.
    pub config: PlegConfig,
    /// The runtime's reads.
    pub runtime: Arc<dyn RuntimeReads>,
    /// Notifies of ends of processes.
    pub exits: Arc<dyn ExitWatcher>,
    /// Where containers write why they ended.
    pub dirs: Arc<dyn PodDirReads>,
    /// Wall time, for `kubelet_pleg_last_seen_seconds`.
    pub clock: Arc<dyn Clock>,
    /// The actors that are told of pods.
    pub observers: Vec<Address<PodObserved>>,
    /// The actors that are told of the runtime when its health or name changes.
    pub runtime_observers: Vec<Address<RuntimeObserved>>,
    /// The actors that are told after every answer of the runtime, since they go by the age of the last answer.
    pub runtime_watchers: Vec<Address<RuntimeObserved>>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// Counts.
    pub metrics: PlegMetrics,
}

/// Pleg's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// List everything.
    Relist,
    /// Ask the runtime for its health.
    Health,
    /// Subscribe to the runtime's events again.
    Subscribe,
    /// Begin the looks that have gathered.
    Begin,
    /// A process of this pod has ended: look, unless a call of ours turns out to be the cause.
    Soon(PodUid),
    /// This pod's look takes long.
    Slow(PodUid),
    /// Look at this pod again: an event came while a call of ours was under way, or its exits are not notified.
    Look(PodUid),
    /// Look again at this pod, of which a process has ended while the runtime calls its container running.
    Undead(PodUid),
    /// Tell observers what they are owed, or a digest.
    Tell,
    /// Tell the runtime's health again.
    TellHealth,
}

/// Pods that run, and containers by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    pods: i64,
    states: [i64; 4],
}

impl Counts {
    fn of(pod: &RuntimePod) -> Self {
        let mut counts = Self { pods: i64::from(pod.ready_sandbox().is_some()), states: [0; 4] };
        for container in &pod.containers {
            counts.states[container.state as usize] += 1;
        }
        counts
    }

    fn add(&mut self, other: Self, times: i64) {
        self.pods += times * other.pods;
        for (count, other) in self.states.iter_mut().zip(other.states) {
            *count += times * other;
        }
    }
}

/// The single owner of the observed state of the runtime.
pub struct Pleg {
    deps: PlegDeps,
    told: Told,
    schedule: Schedule,
    /// Looks under way, and the wall times at which they began.
    looking: BTreeMap<PodUid, Timestamp>,
    /// The rests of pods of many containers, each since the end of the pod's last look.
    rests: Rests<PodUid>,
    undead: Undead,
    health: Level<RuntimeObserved, Timer>,
    version: Option<Version>,
    events: bool,
    /// Every pod of which the runtime holds something: those of the newest relist, and those found by looks since.
    /// `None` before the first relist.
    held: Option<BTreeMap<PodUid, HeldPod>>,
    /// Asks that wait for the first relist.
    waiting: Vec<Reply<HeldPods>>,
    /// Running containers whose exit is not notified.
    unnotified: BTreeSet<Arc<str>>,
    /// Pods whose last look failed.
    unseen: BTreeSet<PodUid>,
    /// When an event last told of each of those pods.
    complained: BTreeMap<PodUid, Instant>,
    /// As what each pod is counted, and the sum of that.
    counted: BTreeMap<PodUid, Counts>,
    counts: Counts,
    checking: bool,
    relisting: Option<Instant>,
    /// When the last relist began that the runtime has answered.
    last_relist: Option<Instant>,
    /// When the last relist ended, answered or not.
    relist_ended: Option<Instant>,
    /// Whether an event of an unknown pod came while a relist was under way, which may have begun before that pod.
    relist_again: bool,
    failures: u32,
    /// The moment since which the times of rests count.
    begun: Instant,
}

impl Pleg {
    /// An incarnation that has not looked yet.
    pub fn new(deps: PlegDeps) -> Self {
        Self {
            told: Told::new(0, &deps.observers),
            health: Level::new(deps.runtime_observers.iter().cloned(), Timer::TellHealth),
            deps,
            schedule: Schedule::default(),
            looking: BTreeMap::new(),
            rests: Rests::default(),
            undead: Undead::default(),
            version: None,
            events: false,
            held: None,
            waiting: Vec::new(),
            unnotified: BTreeSet::new(),
            unseen: BTreeSet::new(),
            counted: BTreeMap::new(),
            counts: Counts::default(),
            complained: BTreeMap::new(),
            checking: false,
            relisting: None,
            last_relist: None,
            relist_ended: None,
            relist_again: false,
            failures: 0,
            begun: Instant::now(),
        }
    }

    fn relist(&mut self, ctx: &mut Ctx<Self>) {
        if self.relisting.is_some() {
            return;
        }
        self.relisting = Some(Instant::now());
        let known = self.told.pods().map(|(uid, _)| uid).chain(&self.unseen);
        let known = Whose::All(known.map(|uid| uid.to_string()).collect());
        ctx.effect("relist", None, bridge_cri::list(self.deps.runtime.clone(), known), Self::relisted);
    }

    fn relisted(&mut self, answer: Result<Listed, CriError>, ctx: &mut Ctx<Self>) {
        let began = self.relisting.take().unwrap_or_else(Instant::now);
        self.relist_ended = Some(Instant::now());
        let again = std::mem::take(&mut self.relist_again);
        match answer {
            Ok(listed) => {
                self.failures = 0;
                let metrics = &self.deps.metrics;
                metrics.relist_seconds.observe(began.elapsed().as_secs_f64());
                let last = self.last_relist.replace(began);
                if let Some(last) = last {
                    metrics.relist_interval_seconds.observe(began.duration_since(last).as_secs_f64());
                }
                if last.is_none_or(|last| began.duration_since(last) > self.deps.config.relist * 2) {
                    self.tell_watchers();
                }
                let metrics = &self.deps.metrics;
                metrics.last_seen_seconds.set(self.deps.clock.now().as_second() as f64);
                let wanted = self.compare(&observe::lines(&listed.sandboxes, &listed.containers), ctx);
                // Of pods that a list lacks nothing may be cleaned away while they may run.
                if listed.has_all_ready() {
                    self.hold(observe::held(&listed.sandboxes, &listed.containers));
                    self.told.listed(wanted);
                }
                let period = self.deps.config.relist;
                ctx.set_timer(Timer::Relist, if again { BETWEEN_RELISTS.min(period) } else { period });
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                tracing::warn!(%error, failures = self.failures, "Relist failed");
                ctx.set_timer(Timer::Relist, BACKOFF.after(self.failures));
                self.check_health(ctx);
            }
        }
        self.begin_looks(ctx);
    }

    /// Takes the pods of a list. It may have begun before the newest looks and lack the pods that they found.
    fn hold(&mut self, listed: BTreeMap<PodUid, HeldPod>) {
        let mut before = self.held.replace(listed).unwrap_or_default();
        let held = self.held.get_or_insert_default();
        for (uid, pod) in self.told.pods() {
            let found = || HeldPod { pod: pod.state.pod.clone(), source: None };
            held.entry(uid.clone()).or_insert_with(|| before.remove(uid).unwrap_or_else(found));
        }
        let held = Arc::new(held.clone());
        for reply in std::mem::take(&mut self.waiting) {
            reply.send(held.clone());
        }
    }

    /// Queues a look at every pod whose lines differ from its known state, unless it is left alone. Returns these pods.
    fn compare(
        &mut self,
        listed: &BTreeMap<PodUid, Vec<observe::Line>>,
        ctx: &mut Ctx<Self>,
    ) -> BTreeSet<PodUid> {
        let vanished = self.told.pods().map(|(uid, _)| uid).filter(|uid| !listed.contains_key(*uid)).cloned();
        let mut wanted: BTreeSet<PodUid> = vanished.collect();
        for (uid, lines) in listed {
            let same = ctx.for_pod(uid, |_| {
                self.told.get(uid).is_some_and(|pod| observe::known_lines(&pod.state) == *lines)
            });
            if same != Some(true) {
                wanted.insert(uid.clone());
            }
        }
        wanted.retain(|uid| {
            let is_looked_at = ctx.for_pod(uid, |_| self.schedule.want(uid)).is_some();
            if !is_looked_at {
                self.told.unseen(uid);
            }
            is_looked_at
        });
        wanted
    }

    /// Begins looks at once while few are under way; in a burst a moment later, so that looks begin together.
    fn begin_soon(&mut self, ctx: &mut Ctx<Self>) {
        if self.schedule.under_way() < SHARED_FROM {
            self.begin_looks(ctx);
        } else {
            ctx.set_timer(Timer::Begin, GATHER);
        }
    }

    fn begin_looks(&mut self, ctx: &mut Ctx<Self>) {
        let looks: Vec<Look> = std::iter::from_fn(|| self.schedule.next()).collect();
        // Several at once share one list of everything.
        let shared = (looks.len() >= SHARED_FROM).then(|| {
            let pods = Whose::All(looks.iter().map(|look| look.uid.to_string()).collect());
            inspect::lists(self.deps.runtime.clone(), pods)
        });
        for look in looks {
            if ctx.is_quarantined(&look.uid) {
                // When the pod is let in again, another look is queued.
                self.schedule.failed(&look.uid);
                self.told.unseen(&look.uid);
                continue;
            }
            let _named = blame::name(&look.uid);
            // This look also finds what later ones were to look for.
            ctx.cancel_timer(&Timer::Look(look.uid.clone()));
            ctx.cancel_timer(&Timer::Soon(look.uid.clone()));
            self.looking.insert(look.uid.clone(), self.deps.clock.now());
            let known = self.told.get(&look.uid).map(|pod| pod.state.clone());
            let (runtime, dirs) = (self.deps.runtime.clone(), self.deps.dirs.clone());
            let of_pod = || inspect::lists(runtime.clone(), Whose::Pod(look.uid.to_string()));
            let lists = shared.clone().unwrap_or_else(of_pod);
            let undead = self.undead.of(&look.uid);
            let work = inspect::look(runtime, dirs, look.uid.clone(), lists, known, look.ended, undead);
            let (uid, token, began) = (look.uid.clone(), look.token, Instant::now());
            ctx.set_timer(Timer::Slow(uid.clone()), self.deps.config.slow_after);
            // A call to the runtime for each container, as many as the pod's author likes; each has its own deadline.
            ctx.effect(Effect::lasting("look"), Some(look.uid), work, move |actor, found, ctx| {
                actor.deps.metrics.pod_relist_seconds.observe(began.elapsed().as_secs_f64());
                actor.looked(&uid, token, found, ctx);
            });
        }
        self.told.wake(ctx);
    }

    fn looked(&mut self, uid: &PodUid, token: u64, found: Result<Found, FailedLook>, ctx: &mut Ctx<Self>) {
        ctx.cancel_timer(&Timer::Slow(uid.clone()));
        self.looking.remove(uid);
        let wanted = match found {
            Ok(found) => {
                self.unseen.remove(uid);
                self.complained.remove(uid);
                if let Some(pause) = self.undead.found(uid, &found.undead) {
                    ctx.set_timer(Timer::Undead(uid.clone()), pause);
                }
                self.schedule.found_ended(uid, &found.pod);
                let wanted = self.schedule.done(uid);
                self.learn(uid, token, found, ctx);
                wanted
            }
            Err(FailedLook { pod, error }) => {
                let runtime_is_well = self.health.fact().is_some_and(|known| known.0.ready);
                if runtime_is_well {
                    self.complain(pod, &error);
                    tracing::warn!(%error, pod = %uid, "Look at pod failed");
                } else {
                    tracing::debug!(%error, pod = %uid, "Look at pod failed; the runtime is not well");
                }
                // The askers of this token go on waiting; the next look answers them.
                let wanted = self.schedule.failed(uid);
                let soon = runtime_is_well && !error.is_too_large();
                let pause = if soon { LOOK_AGAIN } else { LOOK_AGAIN_SELDOM };
                ctx.set_timer(Timer::Look(uid.clone()), pause);
                self.unseen.insert(uid.clone());
                self.told.unseen(uid);
                if runtime_is_well {
                    self.check_health(ctx);
                }
                wanted
            }
        };
        self.rests.begin(uid, self.containers(uid), self.begun.elapsed());
        if wanted {
            self.want(uid, ctx);
        }
        self.told.wake(ctx);
        self.begin_soon(ctx);
    }

    fn learn(&mut self, uid: &PodUid, token: u64, found: Found, ctx: &mut Ctx<Self>) {
        for (container, pid) in found.pids {
            match pid.map(|pid| self.deps.exits.watch(&container, pid)) {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "Exit is not notified; the pod is looked at instead");
                    self.unnotified.insert(container);
                }
                None => {
                    self.unnotified.insert(container);
                }
            }
        }
        let state = Arc::new(found.pod);
        if let Some(known) = self.told.get(uid).map(|known| known.state.clone()) {
            self.unwatch_ended(&known, &state);
        }
        let in_the_dark = state.live().any(|c| self.unnotified.contains(&c.id));
        if in_the_dark && !self.events {
            ctx.set_timer(Timer::Look(uid.clone()), self.deps.config.unnotified);
        }
        let gone = state.is_absent();
        if let Some(held) = &mut self.held {
            if gone {
                held.remove(uid);
            } else {
                let pod = || HeldPod { pod: state.pod.clone(), source: None };
                held.entry(uid.clone()).or_insert_with(pod);
            }
        }
        self.count(uid, (!gone).then_some(&*state));
        self.told.seen(uid, SeenPod { state, touch: token });
        if gone {
            self.schedule.forget(uid);
        }
        self.show_counts();
    }

    fn unwatch_ended(&mut self, before: &RuntimePod, after: &RuntimePod) {
        for id in observe::no_longer_running(before, after) {
            self.deps.exits.unwatch(id);
            self.unnotified.remove(id);
        }
    }

    /// Counts the pod as what it is now, in the place of what it was counted as.
    fn count(&mut self, uid: &PodUid, state: Option<&RuntimePod>) {
        let counts = state.map(Counts::of);
        let before = match counts {
            Some(counts) => self.counted.insert(uid.clone(), counts),
            None => self.counted.remove(uid),
        };
        self.counts.add(counts.unwrap_or_default(), 1);
        self.counts.add(before.unwrap_or_default(), -1);
    }

    fn show_counts(&self) {
        let (metrics, Counts { pods, states }) = (&self.deps.metrics, self.counts);
        metrics.running_pods.set(pods);
        for (state, count) in ["created", "running", "exited", "unknown"].iter().zip(states) {
            metrics.running_containers.with_label_values(&[state]).set(count);
        }
    }

    fn snapshot(&self) -> Option<RuntimePods> {
        self.held.as_ref()?;
        Some(Arc::new(self.told.pods().map(|(uid, pod)| (uid.clone(), pod.state.clone())).collect()))
    }
}

impl Actor for Pleg {
    type Context = Ctx<Self>;
}

impl Subsystem for Pleg {
    const NAME: &'static str = pleg::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.told = Told::new(ctx.incarnation(), &self.deps.observers);
        self.told.begin(ctx);
        let exits = self.deps.exits.exits();
        ctx.stream("exits", exits.boxed(), Self::exited, |_, _| {
            tracing::warn!("Process exits are no longer notified; the relist finds them");
        });
        self.check_health(ctx);
        self.subscribe(ctx);
        self.relist(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Relist => self.relist(ctx),
            Timer::Tell => self.told.due(ctx),
            Timer::TellHealth => self.health.due(ctx),
            Timer::Health => self.check_health(ctx),
            Timer::Subscribe => self.subscribe(ctx),
            Timer::Begin => self.begin_looks(ctx),
            Timer::Soon(uid) => self.look_soon(&uid, ctx),
            Timer::Slow(uid) => {
                self.schedule.slow(&uid);
                self.told.unseen(&uid);
                self.begin_looks(ctx);
            }
            Timer::Look(uid) => {
                self.want(&uid, ctx);
                self.begin_looks(ctx);
            }
            Timer::Undead(uid) => self.look_at_undead(&uid, ctx),
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Soon(uid) | Timer::Slow(uid) | Timer::Look(uid) | Timer::Undead(uid) => Some(uid.clone()),
            _ => None,
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.schedule.want(pod);
        self.begin_soon(ctx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.told.pods().count(),
            "looksPending": self.schedule.pending(),
            "slowPods": self.schedule.slow_pods(),
            "events": self.events,
            "baseline": self.held.is_some(),
            "runtime": self.health.fact().map(|told| &told.0),
        })
    }
}

impl Handler<PodTouched> for Pleg {
    type Result = ();
    fn handle(&mut self, touched: PodTouched, ctx: &mut Ctx<Self>) {
        self.schedule.touched(&touched.uid, touched.token);
        self.begin_soon(ctx);
    }
}

impl Handler<ResendObserved> for Pleg {
    type Result = ();
    fn handle(&mut self, ask: ResendObserved, ctx: &mut Ctx<Self>) {
        self.health.asked(ask.receiver, ctx);
        self.tell_watchers();
        self.told.asked(ask.receiver, ctx);
    }
}

impl Handler<GetRuntimePods> for Pleg {
    type Result = MessageResult<GetRuntimePods>;
    fn handle(&mut self, _: GetRuntimePods, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.snapshot())
    }
}

impl Handler<GetRuntimePod> for Pleg {
    type Result = MessageResult<GetRuntimePod>;
    fn handle(&mut self, asked: GetRuntimePod, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.told.get(&asked.uid).map(|pod| pod.state.clone()))
    }
}

impl Handler<GetHeldPods> for Pleg {
    type Result = ReplyLater<HeldPods>;
    fn handle(&mut self, _: GetHeldPods, _ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        if let Some(held) = &self.held {
            reply.send(Arc::new(held.clone()));
        } else {
            // Asks given up by their askers make room; when there is none left, the ask is dropped, and its asker asks
            // again.
            self.waiting.retain(Reply::is_wanted);
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push(reply);
            }
        }
        later
    }
}
