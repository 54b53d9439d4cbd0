//! The actor: runs probes when they are due, and tells the verdicts that their answers settle.

mod reconciling;
mod restoring;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_node::checkpoint::CheckpointStore;
use jiff::Timestamp;
use messages::event_recorder::{EventObject, RecordEvent};
use messages::facts::{
    DesiredPod, DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeKind, ProbeVerdict, SeenPod,
    Verdicts, WorkerReport, WorkerReported, WorkerState,
};
use messages::node_status::ResendNode;
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};
use pod_set::{Followed, PodSet, Taken, Teller};
use supervision::{Address, Ctx, Effect, Subsystem};
use tokio::time::Instant;

use crate::checkpoint::{self, SavedPod};
use crate::execute::{self, Backends};
use crate::lanes::{AllLanes, Lane, ProbeLimits};
use crate::metrics::ProbeMetrics;
use crate::pod::{At, PodProbes, ProbeName, ProbeRun, RunChange, RunEnd};
use crate::running::RunningProbe;
use crate::texts;
use crate::timer::{ProbeKey, Timer};
use crate::verdict::{NoAnswer, ProbeAnswer};

/// A checkpoint that could not be written is tried again after this long.
const SAVE_AGAIN: Duration = Duration::from_secs(10);
/// How long the effect of a probe may take beyond the probe's own timeout: the runtime has a deadline of its own.
const LONG: Duration = Duration::from_secs(3600);

/// ProbeManager's settings, effects and addresses.
#[derive(Clone)]
pub struct ProbeManagerDeps {
    /// HTTP, TCP, gRPC and commands in containers.
    pub backends: Backends,
    /// Where verdicts are checkpointed.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// When the kubelet's process began.
    pub kubelet_started: Timestamp,
    /// The address of pods in the host's network, until NodeStatus tells those of the Node.
    pub node_ip: Arc<str>,
    /// How many probes of a pod may be in flight.
    pub limits: ProbeLimits,
    /// Metrics, which survive restarts of the actor.
    pub metrics: ProbeMetrics,
    /// PodWorkerPool and StatusManager, which are told verdicts.
    pub verdicts: Vec<Address<ProbeVerdict>>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// PodManager, asked to send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// Pleg, asked to send the runtime's pods again.
    pub resend_observed: Address<ResendObserved>,
    /// PodWorkerPool, asked to send the workers' reports again.
    pub resend_reports: Address<ResendReports>,
    /// NodeStatus, asked to tell the Node's addresses again; `None` without a cluster.
    pub node: Option<Address<ResendNode>>,
}

/// ProbeManager: runs all pods' probes.
pub struct ProbeManager {
    deps: ProbeManagerDeps,
    /// The address of pods in the host's network.
    node_ip: Arc<str>,
    origin: Instant,
    lanes: AllLanes,
    running: BTreeMap<PodUid, BTreeMap<ProbeName, RunningProbe>>,
    pods: BTreeMap<PodUid, PodProbes>,
    /// The newest facts, also of pods that are not desired yet, or not any more.
    desired: PodSet<Arc<DesiredPod>>,
    observed: Followed<SeenPod>,
    reports: Followed<Arc<WorkerReport>>,
    told: Teller<Verdicts, ProbeVerdict, Timer>,
    ending: BTreeMap<PodUid, WorkerState>,
    /// Checkpoints of pods that have not been desired yet; `None` until they are read. Before that no verdict is told,
    /// or Ready would flap.
    restored: Option<BTreeMap<PodUid, SavedPod>>,
    /// Pods whose checkpoints could not be read yet: what was told of them holds, and they are not probed.
    unread: BTreeSet<PodUid>,
    saved: BTreeMap<PodUid, SavedPod>,
    /// Pods whose turn comes after facts about all of them.
    unreconciled: BTreeSet<PodUid>,
}

impl ProbeManager {
    /// An incarnation without facts.
    pub fn new(deps: ProbeManagerDeps) -> Self {
        Self {
            lanes: AllLanes::new(deps.limits),
            running: BTreeMap::new(),
            node_ip: deps.node_ip.clone(),
            deps,
            origin: Instant::now(),
            pods: BTreeMap::new(),
            desired: PodSet::default(),
            observed: Followed::default(),
            reports: Followed::default(),
            told: Teller::new(0, [], ProbeVerdict, Timer::Tell),
            ending: BTreeMap::new(),
            restored: None,
            unread: BTreeSet::new(),
            saved: BTreeMap::new(),
            unreconciled: BTreeSet::new(),
        }
    }

    fn at(&self) -> At {
        At {
            now: self.origin.elapsed(),
            wall: self.deps.clock.now(),
            kubelet_started: self.deps.kubelet_started,
            random: self.deps.clock.random_u64(),
        }
    }

    /// Brings a pod in line with the newest facts.
    fn reconcile(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        self.reconcile_probes(uid, ctx);
        self.forget_verdicts(uid);
        self.told.wake(ctx);
    }

    fn reconcile_probes(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if !self.desired.is_known() || self.restored.is_none() {
            return;
        }
        let Some(desired) = self.desired.get(uid).cloned() else {
            if self.desired.is_removed(uid) {
                self.not_desired(uid, ctx);
                if !self.pods.contains_key(uid) && self.is_absent(uid) {
                    self.ending.remove(uid);
                }
            }
            return;
        };
        if desired.rejected.is_some() {
            return self.not_desired(uid, ctx);
        }
        if let Some(probes) = self.pods.get_mut(uid) {
            if !probes.set_desired(desired) {
                return;
            }
        } else {
            let now = self.origin.elapsed();
            let restored = self.restored.as_mut().and_then(|all| all.remove(uid)).unwrap_or_default();
            let probes = PodProbes::new(desired, restored.clone(), now);
            if !probes.has_probes() {
                return;
            }
            if self.unread.contains(uid) {
                return self.leave(uid);
            }
            self.saved.insert(uid.clone(), restored);
            self.pods.insert(uid.clone(), probes);
            self.leave(uid);
            self.catch_up(uid, ctx);
        }
        self.settled(uid, ctx);
    }

    /// A new pod hears what was known of it before it was desired.
    fn catch_up(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let at = self.at();
        let Some(probes) = self.pods.get_mut(uid) else { return };
        if self.ending.contains_key(uid) {
            probes.set_terminating(true);
        }
        if let Some(seen) = self.observed.get(uid)
            && probes.observe(&seen.state, at)
        {
            self.publish(uid, ctx);
        }
        if let (Some(report), Some(probes)) = (self.reports.get(uid), self.pods.get_mut(uid))
            && report.state == WorkerState::Syncing
        {
            probes.set_starting(&report.starting, at.now);
        }
    }

    /// Takes what Pleg sees of a pod.
    fn see(&mut self, uid: &PodUid, state: &RuntimePod, ctx: &mut Ctx<Self>) {
        let at = self.at();
        let Some(probes) = self.pods.get_mut(uid) else { return };
        if probes.observe(state, at) {
            self.publish(uid, ctx);
        }
        if self.is_desired(uid) { self.settled(uid, ctx) } else { self.not_desired(uid, ctx) }
    }

    /// Takes the report of a pod's worker.
    fn reported(&mut self, uid: &PodUid, report: &WorkerReport, ctx: &mut Ctx<Self>) {
        let now = self.origin.elapsed();
        match report.state {
            // The same pod may come back under its UID: a static pod whose file returns.
            WorkerState::Syncing => {
                self.ending.remove(uid);
                if let Some(probes) = self.pods.get_mut(uid) {
                    probes.set_terminating(false);
                    probes.set_starting(&report.starting, now);
                }
            }
            _ if report.released && !self.pods.contains_key(uid) => drop(self.ending.remove(uid)),
            state => {
                self.ending.insert(uid.clone(), state);
                if let Some(probes) = self.pods.get_mut(uid) {
                    probes.set_terminating(true);
                }
            }
        }
        if self.is_desired(uid) { self.reschedule(uid, ctx) } else { self.not_desired(uid, ctx) }
    }

    /// Whether the runtime is known to hold nothing of the pod.
    fn is_absent(&self, uid: &PodUid) -> bool {
        self.observed.now(uid).is_some_and(|seen| seen.state.is_absent())
    }

    /// A pod was removed: readiness goes on while its containers stop (row 7.9).
    fn not_desired(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(probes) = self.pods.get_mut(uid) else { return };
        probes.set_terminating(true);
        let stopped = !probes.may_run() || self.ending.get(uid) == Some(&WorkerState::Terminated);
        if stopped { self.remove(uid, ctx) } else { self.reschedule(uid, ctx) }
    }

    fn is_desired(&self, uid: &PodUid) -> bool {
        !self.desired.is_removed(uid)
    }

    fn remove(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(probes) = self.pods.remove(uid) else { return };
        self.give_up(uid, ctx);
        for name in probes.names() {
            let key = key_of(uid, &name);
            self.lanes.forget(&key);
            self.deps.metrics.forget(&probes.desired().pod_ref, &name.0, name.1);
            ctx.cancel_timer(&Timer::Due(key));
        }
        self.saved.remove(uid);
        self.ending.remove(uid);
        self.forget_verdicts(uid);
        self.told.wake(ctx);
        ctx.cancel_timer(&Timer::Save(uid.clone()));
        ctx.cancel_timer(&Timer::Changed(uid.clone()));
        self.forget_checkpoint(uid, ctx);
    }

    fn forget_checkpoint(&self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let removal = self.deps.checkpoints.remove(&checkpoint::name(uid));
        ctx.effect("remove checkpoint", Some(uid.clone()), removal, |_, removed, _| {
            if let Err(error) = removed {
                tracing::warn!(%error, "the verdicts of a pod that is gone stay on disk until the next start");
            }
        });
    }

    /// After any change to a pod: writes its checkpoint, and moves its probes' places in the queue.
    fn settled(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        self.save(uid, ctx);
        self.reschedule(uid, ctx);
    }

    fn save(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(probes) = self.pods.get(uid) else { return };
        let now = probes.saved();
        // Until Pleg has told of the pod's containers, the verdicts in the checkpoint stay.
        if now.is_empty() || self.saved.get(uid) == Some(&now) {
            return;
        }
        let content = match serde_json::to_value(&now) {
            Ok(content) => content,
            Err(error) => return tracing::error!(%error, pod = %uid, "verdicts cannot be written as JSON"),
        };
        self.saved.insert(uid.clone(), now);
        let save = self.deps.checkpoints.save(&checkpoint::name(uid), &content);
        let uid = uid.clone();
        ctx.effect("save verdicts", Some(uid.clone()), save, move |actor, saved, ctx| {
            if let Err(error) = saved {
                tracing::warn!(%error, pod = %uid, "verdicts are not on disk: Ready may flap if the kubelet restarts now");
                actor.saved.remove(&uid);
                ctx.set_timer(Timer::Save(uid), SAVE_AGAIN);
            }
        });
    }

    fn reschedule(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        self.give_up(uid, ctx);
        let Some(probes) = self.pods.get(uid) else { return };
        for name in probes.names() {
            self.reschedule_one(uid, &name, ctx);
        }
    }

    fn reschedule_one(&mut self, uid: &PodUid, name: &ProbeName, ctx: &mut Ctx<Self>) {
        let Some(probes) = self.pods.get(uid) else { return };
        let key = key_of(uid, name);
        match probes.due(name) {
            Ok(_) if self.lanes.waits(&key) => {}
            Ok(due) => ctx.set_timer(Timer::Due(key), due.saturating_sub(self.origin.elapsed())),
            Err(_) => {
                self.lanes.forget(&key);
                ctx.cancel_timer(&Timer::Due(key));
            }
        }
    }

    /// Begins as many of the pod's probes that are due as may be in flight.
    fn pump(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        while let Some((lane, key)) = self.lanes.next(uid) {
            let name = (key.container, key.kind);
            let run = self.pods.get_mut(uid).and_then(|probes| probes.begin(&name));
            match run {
                Some(run) => self.run(lane, key.pod, name, run, ctx),
                None => self.lanes.ended(lane, uid),
            }
        }
        self.deps.metrics.traffic(self.lanes.in_flight(), self.lanes.waiting());
    }

    fn run(&mut self, lane: Lane, uid: PodUid, name: ProbeName, run: ProbeRun, ctx: &mut Ctx<Self>) {
        let began = self.origin.elapsed();
        self.deps.metrics.began(began.saturating_sub(run.due));
        let probes = self.pods.get(&uid).ok_or_else(|| "the pod is gone".to_owned());
        let target = probes.and_then(|probes| probes.target(&run, &self.node_ip));
        let (backends, id, timeout) = (self.deps.backends.clone(), run.container_id.clone(), run.timeout);
        let asker = Arc::from(uid.as_str());
        let work = async move {
            match target {
                Ok(target) => execute::run(backends, target, id, asker, timeout).await,
                Err(message) => ProbeAnswer::Errored { why: NoAnswer::Unknown, message },
            }
        };
        let (pod, probe, container_id) = (uid.clone(), name.clone(), run.container_id.clone());
        let effect = ctx.effect(
            Effect::within("probe", timeout.saturating_add(LONG)),
            Some(pod.clone()),
            work,
            move |actor, answer, ctx| {
                actor.landed(&uid, &name);
                actor.answered(&uid, &name, &run, began, &answer, ctx);
                actor.pump(&uid, ctx);
            },
        );
        self.running.entry(pod).or_default().insert(probe, RunningProbe { effect, lane, container_id });
    }

    /// A probe is not in flight any more.
    fn landed(&mut self, uid: &PodUid, name: &ProbeName) {
        let Some(running) = self.running.get_mut(uid) else { return };
        if let Some(one) = running.remove(name) {
            self.lanes.ended(one.lane, uid);
        }
        if running.is_empty() {
            self.running.remove(uid);
        }
    }

    /// Ends the pod's probes in flight that would not count any more: they free their lanes, and could hang for long.
    fn give_up(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let probes = self.pods.get(uid);
        let counts = |name: &ProbeName, one: &RunningProbe| {
            probes.is_some_and(|probes| probes.awaits(name, &one.container_id))
        };
        let running = self.running.get(uid).into_iter().flatten();
        let vain: Vec<ProbeName> =
            running.filter(|(name, one)| !counts(name, one)).map(|(name, _)| name.clone()).collect();
        if vain.is_empty() {
            return;
        }
        for name in vain {
            if let Some(one) = self.running.get(uid).and_then(|running| running.get(&name)) {
                ctx.cancel_effect(one.effect);
            }
            self.landed(uid, &name);
            if let Some(probes) = self.pods.get_mut(uid) {
                probes.given_up(&name);
            }
        }
        self.pump(uid, ctx);
    }

    fn answered(
        &mut self,
        uid: &PodUid,
        name: &ProbeName,
        run: &ProbeRun,
        began: Duration,
        answer: &ProbeAnswer,
        ctx: &mut Ctx<Self>,
    ) {
        let at = self.origin.elapsed();
        let Some(probes) = self.pods.get_mut(uid) else { return };
        let pod = probes.desired().pod_ref.clone();
        let heard =
            probes.ended(name, &run.container_id, RunEnd { due: run.due, at, passed: answer.passed() });
        if heard != RunChange::Dropped {
            if let Some(passed) = answer.passed() {
                self.deps.metrics.answered(&pod, &name.0, name.1, passed, at.saturating_sub(began));
            }
            self.record(pod, run, texts::event(name.1, answer));
        }
        if heard == RunChange::Changed {
            self.changed(uid, ctx);
        }
        // What the pod's other containers are due is as before.
        for kind in [ProbeKind::Startup, ProbeKind::Liveness, ProbeKind::Readiness] {
            self.reschedule_one(uid, &(name.0.clone(), kind), ctx);
        }
    }

    fn record(&self, pod: PodRef, run: &ProbeRun, event: Option<texts::Event>) {
        let Some(event) = event else { return };
        let object = EventObject::Pod { pod, field_path: run.field_path.as_str().into() };
        // No probe waits for an event.
        self.deps.events.tell_or_count(RecordEvent {
            object,
            event_type: event.event_type,
            reason: event.reason.into(),
            message: event.message.into(),
        });
    }
}

fn key_of(uid: &PodUid, name: &ProbeName) -> ProbeKey {
    ProbeKey { pod: uid.clone(), container: name.0.clone(), kind: name.1 }
}

impl actix::Actor for ProbeManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ProbeManager {
    const NAME: &'static str = messages::probe_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        let followers = self.deps.verdicts.iter().cloned();
        self.told = Teller::new(ctx.incarnation(), followers, ProbeVerdict, Timer::Tell);
        self.told.begin(ctx);
        self.deps.metrics.begin();
        self.load(ctx);
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        self.deps.resend_observed.tell_level(ResendObserved { receiver: Self::NAME });
        self.deps.resend_reports.tell_level(ResendReports { receiver: Self::NAME });
        if let Some(node) = &self.deps.node {
            node.tell_level(ResendNode { receiver: Self::NAME });
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Reconcile(uid) => {
                self.unreconciled.remove(&uid);
                self.reconcile(&uid, ctx);
                self.all_reconciled(ctx);
            }
            Timer::Load => self.load(ctx),
            Timer::Save(uid) => self.save(&uid, ctx),
            Timer::Changed(uid) => self.changed(&uid, ctx),
            Timer::Tell => self.told.due(ctx),
            Timer::Due(key) => {
                let name = (key.container.clone(), key.kind);
                let Some(probes) = self.pods.get(&key.pod) else { return };
                let Ok(due) = probes.due(&name) else { return };
                let lane = if probes.is_exec(&name) { Lane::Exec } else { Lane::Network };
                let pod = key.pod.clone();
                self.lanes.wait(lane, due, key);
                self.pump(&pod, ctx);
            }
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        timer.pod().cloned()
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.reconcile(pod, ctx);
        if let Some(seen) = self.observed.now(pod) {
            self.see(pod, &seen.state, ctx);
        }
        if let Some(report) = self.reports.get(pod).cloned() {
            self.reported(pod, &report, ctx);
        }
        if self.desired.is_complete() && self.restored.is_some() {
            self.drop_stale_checkpoints(ctx);
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.pods.len(),
            "probes": self.pods.values().map(|probes| probes.names().len()).sum::<usize>(),
            "inFlight": self.lanes.in_flight(),
            "waiting": self.lanes.waiting(),
            "checkpointsRead": self.restored.is_some(),
        })
    }
}

impl actix::Handler<DesiredPodsChanged> for ProbeManager {
    type Result = ();

    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        match self.desired.take(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, _) => self.reconcile(&uid, ctx),
            Taken::All(_) => self.reconcile_all(ctx),
            Taken::Missed => self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME }),
        }
    }
}

impl actix::Handler<NodeAddressesObserved> for ProbeManager {
    type Result = ();

    fn handle(&mut self, fact: NodeAddressesObserved, _ctx: &mut Ctx<Self>) {
        if let Some(first) = fact.host_ips().first() {
            self.node_ip = Arc::from(first.as_str());
        }
    }
}

impl actix::Handler<PodObserved> for ProbeManager {
    type Result = ();

    fn handle(&mut self, fact: PodObserved, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.observed.hear(fact.0) else {
            return self.deps.resend_observed.tell_level(ResendObserved { receiver: Self::NAME });
        };
        for (uid, seen) in changed {
            ctx.for_pod(&uid, |ctx| self.see(&uid, &seen.state, ctx));
        }
    }
}

impl actix::Handler<WorkerReported> for ProbeManager {
    type Result = ();

    fn handle(&mut self, WorkerReported(update): WorkerReported, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.reports.hear(update) else {
            return self.deps.resend_reports.tell_level(ResendReports { receiver: Self::NAME });
        };
        for (uid, report) in changed {
            ctx.for_pod(&uid, |ctx| self.reported(&uid, &report, ctx));
        }
    }
}
