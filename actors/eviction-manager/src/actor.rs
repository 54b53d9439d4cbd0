//! The actor: measures the node at intervals, tells its pressure, and has pods evicted one after another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_node::stats::RuntimePlaces;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::{EventObject, EventType, RecordAnnotatedEvent, RecordEvent};
use messages::eviction_manager::{self, EvictionConfigured, EvictionSettings, ResendPressure};
use messages::facts::{
    DesiredPod, DesiredPodsChanged, Pressure, PressureObserved, Rejection, WorkerReport, WorkerReported,
    WorkerState,
};
use messages::pod_manager::{GetPressure, ResendDesired};
use messages::pod_worker::{EvictPod, ResendReports};
use messages::{PodRef, PodUid};
use pod_rules::critical::is_critical;
use pod_rules::reasons::{EVICTED, EXCEEDED_GRACE_PERIOD, EXCEEDED_GRACE_PERIOD_MESSAGE};
use pod_set::{Followed, Level, PodSet, Taken};
use supervision::{Address, AskError, AskPort, Ctx, Effect, Subsystem, blame};
use tokio::time::Instant;

use crate::candidates;
use crate::execute::{self, Backends, Measured};
use crate::file_systems::FileSystems;
use crate::local_storage::Limited;
use crate::message::{Said, said};
use crate::metrics::EvictionMetrics;
use crate::observation::{Observations, met, observations};
use crate::rank::{Candidate, rank};
use crate::rounds::Lane;
use crate::threshold::{self, Threshold, ThresholdError, Thresholds};
use crate::watch::Watch;

/// Period of measurements (row 19.2).
const PERIOD: Duration = Duration::from_secs(10);
/// How long EvictionManager waits for a stopped pod to release what it held (row 19.5).
const CLEANUP: Duration = Duration::from_secs(30);
/// How often PodWorkerPool is told again to end the evicted pod, until the pod has ended.
const EVICT_AGAIN: Duration = Duration::from_secs(5);
/// How long a pod that has not ended in its time is left out when the next one is chosen.
const LEFT_OUT: Duration = Duration::from_secs(300);
/// How long PodManager may take to answer, and the pause before it is asked again.
const ASK_DEADLINE: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How long a reclaim may take: containers and images are deleted one by one, each call with a deadline of its own.
const LONG: Duration = Duration::from_secs(3600);

/// EvictionManager's configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvictionConfig {
    /// Every configured threshold; if there is none, the node is never measured.
    pub thresholds: Vec<Threshold>,
    /// `evictionPressureTransitionPeriod`
    pub transition: Duration,
    /// `evictionMaxPodGracePeriod`, in seconds.
    pub soft_grace_seconds_max: i64,
    /// `localStorageCapacityIsolation`: pods are evicted that use more of the local disk than their limits.
    pub local_storage: bool,
}

impl EvictionConfig {
    /// These settings, read; `local_storage` is none of them.
    ///
    /// # Errors
    /// The first threshold that is not valid.
    pub fn of(settings: &EvictionSettings, local_storage: bool) -> Result<Self, ThresholdError> {
        let EvictionSettings { hard, soft, soft_grace, min_reclaim, .. } = settings;
        let pods_enforced = settings.pods_enforced;
        Ok(Self {
            thresholds: Thresholds { hard, soft, soft_grace, min_reclaim, pods_enforced }.parse()?,
            transition: settings.transition,
            soft_grace_seconds_max: settings.soft_grace_seconds_max,
            local_storage,
        })
    }
}

/// EvictionManager's configuration, effects, addresses and ports.
#[derive(Clone)]
pub struct EvictionManagerDeps {
    /// Configuration.
    pub config: Arc<EvictionConfig>,
    /// Measurements, and the actors that reclaim disk.
    pub backends: Backends,
    /// The actors that are told of the node's pressure.
    pub observers: Vec<Address<PressureObserved>>,
    /// Asks PodManager after a restart which pressure was told last.
    pub pressure: AskPort<EvictionManager, GetPressure>,
    /// PodWorkerPool, which ends pods.
    pub evict: Address<EvictPod>,
    /// PodManager, asked for the desired pods after a restart.
    pub manager: Address<ResendDesired>,
    /// PodWorkerPool, asked for the workers' reports after a restart.
    pub pool: Address<ResendReports>,
    /// ConfigManager, asked after a restart for settings that have changed.
    pub configuration: Address<ResendConfiguration>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// EventRecorder, for events with annotations.
    pub annotated: Address<RecordAnnotatedEvent>,
    /// Metrics.
    pub metrics: EvictionMetrics,
}

/// EvictionManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Ask PodManager for the pressure again.
    Ask,
    /// Measure the node.
    Measure,
    /// Tell the pressure again.
    Tell,
    /// Tell PodWorkerPool again to end the evicted pod.
    EvictAgain,
    /// The evicted pod has been waited for long enough.
    Waited,
    /// Count the files of the next pod with limits.
    Count(Lane),
}

/// A measurement by which pods may have to be evicted.
struct Shortage {
    /// The threshold to act against: the first of `due`.
    threshold: Threshold,
    /// All thresholds that were passed for their grace period.
    due: Vec<Threshold>,
    observed: Observations,
    file_systems: FileSystems,
    measured_at: Instant,
}

/// The evicted pod that EvictionManager waits for.
struct EvictedPod {
    pod: PodRef,
    grace_seconds: i64,
    why: Rejection,
    stopped: bool,
}

/// EvictionManager: keeps the node from running out of memory, disk and processes.
pub struct EvictionManager {
    pub(crate) deps: EvictionManagerDeps,
    pub(crate) began: Instant,
    pub(crate) desired: PodSet<Arc<DesiredPod>>,
    pub(crate) reports: Followed<Arc<WorkerReport>>,
    watch: Watch,
    /// Whether the node is measured: it is not while there has been no threshold.
    measures: bool,
    /// Not known before the first measurement.
    pressure: Level<PressureObserved, Timer>,
    pub(crate) places: Option<RuntimePlaces>,
    leaving: Option<EvictedPod>,
    /// Pods that were ended while they were left alone: nothing is heard of them, so others come next.
    ended_unseen: BTreeSet<PodUid>,
    /// Pods that have not ended in their time, and until when others come next, since this incarnation began.
    overdue: BTreeMap<PodUid, Duration>,
    /// Pods with limits of local storage.
    pub(crate) limited: Limited,
    pub(crate) evicted: u64,
    problems: Vec<String>,
}

impl EvictionManager {
    /// An incarnation that has not measured, and so tells nothing.
    pub fn new(deps: EvictionManagerDeps) -> Self {
        let pressure = Level::new(deps.observers.iter().cloned(), Timer::Tell);
        Self {
            deps,
            began: Instant::now(),
            desired: PodSet::default(),
            reports: Followed::default(),
            watch: Watch::default(),
            measures: false,
            pressure,
            places: None,
            leaving: None,
            ended_unseen: BTreeSet::new(),
            overdue: BTreeMap::new(),
            limited: Limited::default(),
            evicted: 0,
            problems: Vec::new(),
        }
    }

    // ---- measuring ----

    fn ask(&self, ctx: &mut Ctx<Self>) {
        let asked = self.deps.pressure.ask(GetPressure, ASK_DEADLINE);
        ctx.effect("ask for pressure", None, asked, Self::asked);
    }

    fn asked(&mut self, answer: Result<Option<Pressure>, AskError>, ctx: &mut Ctx<Self>) {
        match answer {
            Ok(known) => {
                self.watch.inherit(known.unwrap_or_default(), self.began.elapsed());
                self.measure(ctx);
            }
            Err(_) => ctx.set_timer(Timer::Ask, ASK_AGAIN),
        }
    }

    fn measure(&mut self, ctx: &mut Ctx<Self>) {
        let work = execute::measure(self.deps.backends.clone(), self.places.clone());
        let measured_at = Instant::now();
        ctx.effect("measure", None, work, move |actor, measured, ctx| {
            actor.measured(measured, measured_at, ctx);
        });
    }

    fn later(&self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Measure, PERIOD);
    }

    fn measured(&mut self, measured: Measured, measured_at: Instant, ctx: &mut Ctx<Self>) {
        let observed = self.learn(&measured);
        let file_systems = FileSystems::of(&measured.usage);
        let config = self.deps.config.clone();
        let thresholds = threshold::on(&config.thresholds, file_systems);
        let judged = self.watch.judge(&thresholds, &observed, config.transition, self.began.elapsed());
        let pressure = PressureObserved(judged.pressure);
        if self.pressure.fact() != Some(&pressure) {
            tracing::info!(pressure = ?judged.pressure, "What the node runs out of");
            self.pressure.set(pressure, ctx);
        }
        let Some(threshold) = judged.due.first().copied() else {
            self.later(ctx);
            return;
        };
        let shortage = Shortage { threshold, due: judged.due, observed, file_systems, measured_at };
        self.relieve(shortage, ctx);
    }

    /// Takes in a measurement, and logs its problems if they are new.
    fn learn(&mut self, measured: &Measured) -> Observations {
        self.places = measured.places.clone();
        self.limited.learn(FileSystems::is_one_disk(&measured.usage));
        let problems = &measured.usage.problems;
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            tracing::warn!("Eviction manager: {problem}");
        }
        self.problems = problems.clone();
        observations(&measured.usage)
    }

    // ---- reclaiming and evicting ----

    fn relieve(&mut self, shortage: Shortage, ctx: &mut Ctx<Self>) {
        let signal = shortage.threshold.signal;
        let resource = signal.resource();
        tracing::info!(signal = signal.as_str(), "Eviction manager: attempting to reclaim");
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Node,
            event_type: EventType::Warning,
            reason: Arc::from("EvictionThresholdMet"),
            message: Arc::from(format!("Attempting to reclaim {}", resource.as_str())),
        });
        let reclaims = shortage.file_systems.reclaims(signal);
        if !reclaims.any() {
            self.look_for_victim(shortage, ctx);
            return;
        }
        let work = execute::reclaim(self.deps.backends.clone(), reclaims, self.places.clone());
        ctx.effect(Effect::within("reclaim", LONG), None, work, move |actor, measured, ctx| {
            let observed = actor.learn(&measured);
            let thresholds = threshold::on(&actor.deps.config.thresholds, shortage.file_systems);
            if met(&thresholds, &observed, true).is_empty() && !observed.is_empty() {
                tracing::info!("Eviction manager: no pod has to end for that");
                actor.later(ctx);
            } else {
                actor.look_for_victim(shortage, ctx);
            }
        });
    }

    fn look_for_victim(&mut self, shortage: Shortage, ctx: &mut Ctx<Self>) {
        if !self.reports.is_complete() {
            // A pod of which the pool has yet to tell may have ended, or may be ending for this shortage.
            return self.later(ctx);
        }
        // A pod whose figures cannot be read without a panic counts as a pod that cannot be measured, which ends first: were it
        // left out, its neighbours would end for what it uses.
        let quarantined = |pod: &Arc<DesiredPod>| ctx.is_quarantined(&pod.pod_ref.uid);
        let now = self.began.elapsed();
        self.overdue.retain(|_, until| *until > now);
        let mut pods = candidates::active(&self.desired, &self.reports);
        pods.retain(|pod| !self.overdue.contains_key(&pod.pod_ref.uid));
        let (mut left_alone, pods): (Vec<_>, Vec<_>) = pods.into_iter().partition(quarantined);
        left_alone.retain(|pod| !self.ended_unseen.contains(&pod.pod_ref.uid));
        if pods.is_empty() && left_alone.is_empty() {
            tracing::warn!("Eviction manager: thresholds have been met, but no pods are active to evict");
            self.later(ctx);
            return;
        }
        let work = execute::pods(self.deps.backends.clone(), pods, shortage.threshold.signal.resource());
        ctx.effect("measure pods", None, work, move |actor, mut measured, ctx| {
            measured.extend(left_alone.into_iter().map(|pod| Candidate { pod, usage: None, is_cut: false }));
            actor.choose(&shortage, measured, ctx);
        });
    }

    fn choose(&mut self, shortage: &Shortage, measured: Vec<Candidate>, ctx: &mut Ctx<Self>) {
        let ranked = rank(measured, shortage.threshold.signal, shortage.file_systems);
        for threshold in &shortage.due {
            self.deps.metrics.used(threshold.signal, shortage.measured_at.elapsed());
        }
        match ranked.iter().find(|candidate| !is_critical(&candidate.pod.pod, candidate.pod.source)) {
            Some(victim) => {
                blame::for_pod(&victim.pod.pod_ref.uid, || self.evict(shortage, victim, ctx));
            }
            None => {
                tracing::warn!("Eviction manager: unable to evict any pods from the node");
                self.later(ctx);
            }
        }
    }

    fn evict(&mut self, shortage: &Shortage, victim: &Candidate, ctx: &mut Ctx<Self>) {
        let (threshold, pod) = (&shortage.threshold, &victim.pod);
        let uid = &pod.pod_ref.uid;
        let resource = threshold.signal.resource();
        let said = said(resource, &pod.pod, victim.usage.as_ref(), &shortage.due, &shortage.observed);
        let grace = candidates::grace_seconds(threshold, &pod.pod, self.deps.config.soft_grace_seconds_max);
        let why = Rejection::new(EVICTED, said.message.clone());
        let order = EvictPod { uid: uid.clone(), grace_seconds: Some(grace), why: why.clone() };
        if self.deps.evict.tell(order).is_err() {
            self.later(ctx);
            return;
        }
        // A pod that is being evicted already is told again, and waited for again.
        if !candidates::is_being_evicted(self.reports.get(uid)) {
            tracing::warn!(pod = %pod.pod_ref, signal = threshold.signal.as_str(), "Pod is evicted");
            self.evicted += 1;
            self.deps.metrics.evicted(threshold.signal.as_str());
            self.announce(&pod.pod_ref, said);
        }
        if ctx.is_quarantined(uid) {
            self.ended_unseen.insert(uid.clone());
        }
        self.leaving =
            Some(EvictedPod { pod: pod.pod_ref.clone(), grace_seconds: grace, why, stopped: false });
        ctx.set_timer(Timer::EvictAgain, EVICT_AGAIN);
        ctx.set_timer(Timer::Waited, candidates::stop_within(grace));
        self.follow(ctx);
    }

    pub(crate) fn announce(&self, pod: &PodRef, said: Said) {
        self.deps.annotated.tell_or_count(RecordAnnotatedEvent {
            event: RecordEvent {
                object: EventObject::Pod { pod: pod.clone(), field_path: Arc::from("") },
                event_type: EventType::Warning,
                reason: Arc::from(EVICTED),
                message: Arc::from(said.message),
            },
            annotations: Arc::new(said.annotations),
        });
    }

    // ---- waiting for the evicted pod ----

    /// Looks how far the evicted pod's end has come. When nothing is left of it, the node is measured at once.
    fn follow(&mut self, ctx: &mut Ctx<Self>) {
        let Some(leaving) = &mut self.leaving else { return };
        let uid = &leaving.pod.uid;
        let report = self.reports.get(uid);
        let has_left = || self.desired.is_removed(uid) && self.reports.is_removed(uid);
        let released = report.map_or_else(has_left, |report| report.released);
        if released {
            tracing::info!(pod = %leaving.pod, "Eviction manager: pod has been cleaned up");
            self.leaving = None;
            ctx.cancel_timer(&Timer::EvictAgain);
            ctx.cancel_timer(&Timer::Waited);
            self.measure(ctx);
            return;
        }
        let stopped = report.is_some_and(|report| report.state == WorkerState::Terminated);
        if stopped && !std::mem::replace(&mut leaving.stopped, true) {
            ctx.set_timer(Timer::Waited, CLEANUP);
        }
    }

    /// Tells again that the evicted pod shall end, while no report says that it has: the order may be lost, and the pool does
    /// nothing about one that it knows.
    fn evict_again(&self, ctx: &mut Ctx<Self>) {
        let Some(leaving) = &self.leaving else { return };
        let uid = &leaving.pod.uid;
        if self.reports.get(uid).is_some_and(|report| report.state == WorkerState::Terminated) {
            return;
        }
        self.deps.evict.tell_level(EvictPod {
            uid: uid.clone(),
            grace_seconds: Some(leaving.grace_seconds),
            why: leaving.why.clone(),
        });
        ctx.set_timer(Timer::EvictAgain, EVICT_AGAIN);
    }

    fn waited(&mut self, ctx: &mut Ctx<Self>) {
        let Some(leaving) = &mut self.leaving else { return };
        if std::mem::replace(&mut leaving.stopped, true) {
            tracing::warn!(pod = %leaving.pod, "Eviction manager: timed out waiting for pod to be cleaned up");
            // Its end goes on; chosen again at once, it would keep all others from being evicted.
            self.overdue.insert(leaving.pod.uid.clone(), self.began.elapsed() + LEFT_OUT);
            self.leaving = None;
            ctx.cancel_timer(&Timer::EvictAgain);
            self.measure(ctx);
            return;
        }
        // Its end goes on (row 4.6).
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Pod { pod: leaving.pod.clone(), field_path: Arc::from("") },
            event_type: EventType::Warning,
            reason: Arc::from(EXCEEDED_GRACE_PERIOD),
            message: Arc::from(EXCEEDED_GRACE_PERIOD_MESSAGE),
        });
        ctx.set_timer(Timer::Waited, CLEANUP);
    }
}

impl Actor for EvictionManager {
    type Context = Ctx<Self>;
}

impl Subsystem for EvictionManager {
    const NAME: &'static str = eviction_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.manager.tell_level(ResendDesired { receiver: Self::NAME });
        self.deps.pool.tell_level(ResendReports { receiver: Self::NAME });
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        if self.deps.config.thresholds.is_empty() {
            return self.pressure.set(PressureObserved::default(), ctx);
        }
        self.measures = true;
        self.ask(ctx);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Ask => self.ask(ctx),
            Timer::Measure => self.measure(ctx),
            Timer::Tell => self.pressure.due(ctx),
            Timer::EvictAgain => self.evict_again(ctx),
            Timer::Waited => self.waited(ctx),
            Timer::Count(lane) => self.count_next(lane, ctx),
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.ended_unseen.remove(pod);
        self.note_limits([pod.clone()], ctx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pressure": self.pressure.fact().map(|told| told.0),
            "evicted": self.evicted,
            "waitsFor": self.leaving.as_ref().map(|leaving| leaving.pod.to_string()),
            "limited": self.limited.len(),
            "problems": self.problems,
        })
    }
}

impl Handler<DesiredPodsChanged> for EvictionManager {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        let changed = self.desired.take(update);
        match changed {
            Taken::Nothing => return,
            Taken::Pod(uid, _) => self.note_limits(std::iter::once(uid), ctx),
            Taken::All(before) => {
                let uids: BTreeSet<PodUid> = before.uids().chain(self.desired.uids()).cloned().collect();
                self.note_limits(uids, ctx);
            }
            Taken::Missed => self.deps.manager.tell_level(ResendDesired { receiver: Self::NAME }),
        }
        self.follow(ctx);
    }
}

impl Handler<WorkerReported> for EvictionManager {
    type Result = ();
    fn handle(&mut self, WorkerReported(update): WorkerReported, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.reports.take(update) else {
            return self.deps.pool.tell_level(ResendReports { receiver: Self::NAME });
        };
        for (uid, _) in changed {
            ctx.for_pod(&uid, |ctx| self.note_report(&uid, ctx));
        }
        self.follow(ctx);
    }
}

impl Handler<ResendPressure> for EvictionManager {
    type Result = ();
    fn handle(&mut self, ask: ResendPressure, ctx: &mut Ctx<Self>) {
        self.pressure.asked(ask.receiver, ctx);
    }
}

impl Handler<EvictionConfigured> for EvictionManager {
    type Result = ();
    fn handle(&mut self, configured: EvictionConfigured, ctx: &mut Ctx<Self>) {
        let config = match EvictionConfig::of(&configured.settings, self.deps.config.local_storage) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(%error, "Eviction manager: changed thresholds cannot be used; those before stay");
                return;
            }
        };
        if *self.deps.config == config {
            return;
        }
        // The next measurement is judged by them.
        self.watch.keep(&config.thresholds);
        self.deps.config = Arc::new(config);
        if !self.deps.config.thresholds.is_empty() && !std::mem::replace(&mut self.measures, true) {
            self.ask(ctx);
        }
    }
}
