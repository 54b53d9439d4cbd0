//! The actor: takes facts into the ledger, publishes the statuses that follow, and checkpoints them.

mod publishing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use bridge_io::clock::Clock;
use bridge_kube::PodStatuses;
use bridge_node::checkpoint::{CheckpointError, CheckpointStore};
use bridge_pace::{Backoff, Rests};
use k8s_openapi::api::core::v1::PodStatus;
use messages::PodUid;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{
    DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeVerdict, RuntimeObserved, SeenPod, Verdicts,
    WorkerReport, WorkerReported,
};
use messages::node_status::ResendNode;
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::probe_manager::ResendVerdicts;
use messages::status_manager::{self, GetKnownStatuses, GetPodStatus, GetPodStatuses, MirrorPods};
use messages::supervision::PodsQuarantined;
use pod_set::{Ends, Followed};
use supervision::{Address, Ctx, Reply, ReplyLater, Subsystem, blame, reply_later};
use tokio::time::Instant;

use crate::checkpoint::{PREFIX, Step, Writes};
use crate::metrics::StatusMetrics;
use crate::progress::Progress;
use crate::publish::Publisher;
use crate::restore::{Restored, restore};
use crate::status_cache::{Change, Heard, PodStatusCache};

/// How long StatusManager waits for a fact before it asks for the fact again.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The longest wait before the checkpoints are read again.
const RESTORE_BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(200), Duration::from_secs(10));
/// At most so many asks wait for the checkpoints to be read; more are dropped, and their askers ask again.
const WAITING_MAX: usize = 4096;

/// StatusManager's settings, effects, addresses and ports.
#[derive(Clone)]
pub struct StatusManagerDeps {
    /// The node's addresses until NodeStatus tells of others, primary first, at most one of each family; empty if none
    /// is known.
    pub host_ips: Vec<String>,
    /// Whether pods have the condition PodReadyToStartContainers: the feature gate PodReadyToStartContainersCondition.
    pub ready_to_start_condition: bool,
    /// Whether containers show the signals by which they are stopped: the feature gate ContainerStopSignals.
    pub stop_signals: bool,
    /// Whether mounts of image volumes show their images: the feature gate ImageVolumeWithDigest.
    pub image_volume_digests: bool,
    /// Where statuses are checkpointed.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Wall time, for start and transition times.
    pub clock: Arc<dyn Clock>,
    /// Asked for the desired pods after a restart.
    pub desired: Address<ResendDesired>,
    /// PodWorkerPool, asked to send the workers' reports again.
    pub reports: Address<ResendReports>,
    /// Asked for every pod's runtime state after a restart.
    pub observed: Address<ResendObserved>,
    /// Asked to look at a pod that its worker has stopped and of which Pleg has not told yet.
    pub touched: Address<PodTouched>,
    /// Asked for the probe verdicts after a restart.
    pub verdicts: Address<ResendVerdicts>,
    /// Asked for the node's addresses after a restart; `None` on a node without a Node object.
    pub node: Option<Address<ResendNode>>,
    /// The API server; `None` without a cluster.
    pub api: Option<Arc<dyn PodStatuses>>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// Counts.
    pub metrics: StatusMetrics,
}

/// StatusManager's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Compute this pod, after a fact about all pods has changed. One pod at a time, so that a panic has a pod's name.
    Compute(PodUid),
    /// Read the checkpoints again.
    Restore,
    /// Try this pod's checkpoint again.
    Checkpoint(PodUid),
    /// Tell the API server of this pod again: the last call failed.
    Publish(PodUid),
    /// Ask again for the facts that are still missing.
    Ask,
}

/// An ask that cannot be answered yet.
struct Waiting {
    query: GetPodStatus,
    reply: Reply<Option<Arc<PodStatus>>>,
}

/// The single writer of pod status.
pub struct StatusManager {
    deps: StatusManagerDeps,
    status_cache: PodStatusCache,
    observed: Followed<SeenPod>,
    reports: Followed<Arc<WorkerReport>>,
    verdicts: Followed<Verdicts>,
    writes: Writes,
    publisher: Publisher,
    /// Asks for one pod that wait for the checkpoints; `None` once these have been read.
    waiting: Option<Vec<Waiting>>,
    /// Asks for all pods that wait for the checkpoints.
    waiting_for_all: Vec<Reply<BTreeMap<PodUid, Arc<PodStatus>>>>,
    progress: Progress,
    /// The status of a pod of many containers is computed no oftener than that.
    rests: Rests<PodUid>,
    begun: Instant,
    restore_failures: u32,
    restore_problem: Option<String>,
    unusable: usize,
    is_asking: bool,
}

impl StatusManager {
    /// An incarnation without facts.
    pub fn new(deps: StatusManagerDeps) -> Self {
        Self {
            status_cache: PodStatusCache::new(deps.host_ips.clone())
                .telling_ready_to_start(deps.ready_to_start_condition)
                .telling_stop_signals(deps.stop_signals)
                .telling_image_volume_digests(deps.image_volume_digests),
            observed: Followed::default(),
            reports: Followed::default(),
            verdicts: Followed::default(),
            writes: Writes::default(),
            publisher: Publisher::default(),
            waiting: Some(Vec::new()),
            waiting_for_all: Vec::new(),
            progress: Progress::default(),
            rests: Rests::default(),
            begun: Instant::now(),
            restore_failures: 0,
            restore_problem: None,
            unusable: 0,
            is_asking: false,
            deps,
        }
    }

    fn restore(&mut self, ctx: &mut Ctx<Self>) {
        let restored = restore(self.deps.checkpoints.clone(), ctx.incarnation() <= 1);
        ctx.effect("restore", None, restored, Self::restored);
    }

    fn restored(&mut self, outcome: Result<Restored, CheckpointError>, ctx: &mut Ctx<Self>) {
        let restored = match outcome {
            Ok(restored) => restored,
            Err(error) => {
                // Statuses computed without the checkpoints would run finished pods again: no ask is answered until
                // reading works.
                tracing::error!(%error, "Cannot read the pod statuses written down earlier");
                self.deps.metrics.checkpoint("load", "failed");
                self.restore_problem = Some(error.to_string());
                self.restore_failures = self.restore_failures.saturating_add(1);
                ctx.set_timer(Timer::Restore, RESTORE_BACKOFF.after(self.restore_failures));
                return;
            }
        };
        self.restore_problem = None;
        self.unusable = restored.unusable.len();
        for unusable in &restored.unusable {
            tracing::error!(%unusable, "Ignoring a pod status written down earlier");
            self.deps.metrics.checkpoint("load", "corrupt");
            self.deps.events.tell_or_count(RecordEvent {
                object: EventObject::Node,
                event_type: EventType::Warning,
                reason: Arc::from("CorruptPodStatus"),
                message: Arc::from(format!("Ignoring a pod status written down earlier: {unusable}")),
            });
        }
        for (uid, status) in &restored.statuses {
            self.deps.metrics.checkpoint("load", "ok");
            blame::step(uid, || self.writes.restored(uid, status));
        }
        let touched = self.status_cache.restored(restored.statuses);
        self.compute_soon(touched, ctx);
        for Waiting { query, reply } in self.waiting.take().into_iter().flatten() {
            reply.send(self.status_cache.status_since(&query.uid, query.made_anew));
        }
        for reply in std::mem::take(&mut self.waiting_for_all) {
            reply.send(self.status_cache.statuses());
        }
    }

    /// Computes these pods, one at a time and each under its own name. A pod that StatusManager has quarantined gets
    /// only the condition that says so.
    fn compute_soon(&mut self, pods: Vec<PodUid>, ctx: &mut Ctx<Self>) {
        for uid in pods {
            if ctx.is_quarantined(&uid) {
                blame::step(&uid, || self.say_quarantined(&uid, ctx));
            } else {
                ctx.set_timer(Timer::Compute(uid), Duration::ZERO);
            }
        }
    }

    /// Adds the condition Quarantined to the last status of a pod that StatusManager itself has quarantined; nothing
    /// else of it is computed.
    fn say_quarantined(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.status_cache.say_quarantined(uid, self.deps.clock.now()) {
            self.deps.metrics.changes.inc();
        }
        self.tell_api(uid, ctx);
    }

    /// Computes the pod's status now, or after the rest that a pod of many containers has between two times.
    fn compute(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let containers = self.status_cache.containers(uid);
        if let Some(rest) = self.rests.left(uid, containers, self.begun.elapsed()) {
            return ctx.set_timer(Timer::Compute(uid.clone()), rest);
        }
        let before = self.status_cache.status(uid);
        let step = match self.status_cache.compute(uid, self.deps.clock.now()) {
            None => None,
            Some(Change::Gone { uid }) => {
                self.progress.gone(&uid);
                self.rests.gone(&uid);
                self.writes.gone(&uid)
            }
            Some(Change::Told { pod, status }) => {
                self.deps.metrics.changes.inc();
                self.deps.metrics.ended(before.as_deref(), &status);
                self.progress.changed(uid);
                tracing::debug!(
                    %pod,
                    phase = status.phase.as_deref().unwrap_or_default(),
                    reason = status.reason.as_deref().unwrap_or_default(),
                    "Pod status changed"
                );
                // The end of a static pod whose manifest was removed is none for the pod that comes back under its UID.
                if self.status_cache.is_removed_static(uid) {
                    self.writes.gone(uid)
                } else {
                    self.writes.told(&pod, status)
                }
            }
        };
        self.run(step, ctx);
        self.tell_api(uid, ctx);
        self.ask_later(ctx);
    }

    fn run(&mut self, step: Option<Step>, ctx: &mut Ctx<Self>) {
        let store = &self.deps.checkpoints;
        let (operation, uid, work) = match step {
            None => return,
            Some(Step::Wait(uid, after)) => {
                ctx.set_timer(Timer::Checkpoint(uid), after);
                return;
            }
            Some(Step::Remove(uid)) => {
                let work = store.remove(&format!("{PREFIX}{uid}"));
                ("remove", uid, work)
            }
            Some(Step::Save(checkpoint)) => {
                let uid = checkpoint.pod.uid.clone();
                let content = serde_json::to_value(&checkpoint)
                    .expect("a checkpoint has only string keys, so it can be written as JSON");
                let work = store.save(&format!("{PREFIX}{uid}"), &content);
                ("save", uid, work)
            }
        };
        ctx.effect("checkpoint", Some(uid.clone()), work, move |actor, outcome, ctx| {
            actor.written(&uid, operation, outcome, ctx);
        });
    }

    fn written(
        &mut self,
        uid: &PodUid,
        operation: &'static str,
        outcome: Result<(), CheckpointError>,
        ctx: &mut Ctx<Self>,
    ) {
        if let Err(error) = &outcome {
            tracing::warn!(%error, pod = %uid, operation, "Pod status is not safe on disk");
        }
        self.deps.metrics.checkpoint(operation, if outcome.is_ok() { "ok" } else { "failed" });
        let step = self.writes.done(uid, outcome.map_err(|error| error.to_string()));
        self.run(step, ctx);
    }

    /// Takes what has changed of pods, and computes their statuses: that of one pod at once.
    fn heard<V>(
        &mut self,
        changed: Vec<(PodUid, V)>,
        ctx: &mut Ctx<Self>,
        take: impl Fn(&mut PodStatusCache, &PodUid, V),
    ) {
        let is_one = changed.len() == 1;
        let mut touched = Vec::new();
        for (uid, value) in changed {
            ctx.for_pod(&uid, |ctx| {
                take(&mut self.status_cache, &uid, value);
                if is_one { self.compute(&uid, ctx) } else { touched.push(uid.clone()) }
            });
        }
        let has_heard_all = self.observed.is_complete() && self.reports.is_complete();
        touched.extend(self.status_cache.heard_all(has_heard_all));
        self.compute_soon(touched, ctx);
    }

    /// Takes over what has been told of a pod.
    fn catch_up(&mut self, uid: &PodUid) {
        if let Some(seen) = self.observed.get(uid) {
            self.status_cache.observed(uid, seen.clone());
        }
        // Otherwise the pod is back under its UID, and the report of its earlier life.
        let counts =
            |report: &&Arc<WorkerReport>| !report.is_over() || self.status_cache.is_being_deleted(uid);
        if let Some(report) = self.reports.get(uid).filter(counts) {
            self.status_cache.reported(uid, report.clone());
        } else if self.reports.is_removed(uid)
            && let Some(report) = self.status_cache.report(uid)
        {
            self.status_cache.reported(uid, report.over());
        }
        if let Some(verdicts) = self.verdicts.get(uid) {
            self.status_cache.verdicts(uid, verdicts.clone());
        }
    }

    /// Sets the timer that asks again for facts lost on the way; without missing facts there is no timer.
    fn ask_later(&mut self, ctx: &mut Ctx<Self>) {
        if !self.is_asking && self.status_cache.is_missing_facts() {
            self.is_asking = true;
            ctx.set_timer(Timer::Ask, ASK_AGAIN);
        }
    }

    fn ask(&mut self) {
        let missing = self.status_cache.missing();
        if missing.desired {
            self.deps.desired.tell_level(ResendDesired { receiver: Self::NAME });
        }
        if missing.reports {
            self.deps.reports.tell_level(ResendReports { receiver: Self::NAME });
        }
        if missing.runtime || !missing.looks.is_empty() {
            self.deps.observed.tell_level(ResendObserved { receiver: Self::NAME });
        }
        for (uid, token) in missing.looks {
            self.deps.touched.tell_level(PodTouched { uid, token });
        }
    }
}

impl Actor for StatusManager {
    type Context = Ctx<Self>;
}

impl Subsystem for StatusManager {
    const NAME: &'static str = status_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.restore(ctx);
        self.deps.desired.tell_level(ResendDesired { receiver: Self::NAME });
        self.deps.reports.tell_level(ResendReports { receiver: Self::NAME });
        self.deps.observed.tell_level(ResendObserved { receiver: Self::NAME });
        self.deps.verdicts.tell_level(ResendVerdicts { receiver: Self::NAME });
        if let Some(node) = &self.deps.node {
            node.tell_level(ResendNode { receiver: Self::NAME });
        }
        // A resend that is lost on the way is asked for once more.
        self.is_asking = true;
        ctx.set_timer(Timer::Ask, ASK_AGAIN);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Compute(uid) => self.compute(&uid, ctx),
            Timer::Restore => self.restore(ctx),
            Timer::Checkpoint(uid) => {
                let step = self.writes.due(&uid);
                self.run(step, ctx);
            }
            Timer::Publish(uid) => {
                self.publisher.due(&uid);
                self.publish(ctx);
            }
            Timer::Ask => {
                self.is_asking = false;
                self.ask();
                self.ask_later(ctx);
            }
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Compute(uid) | Timer::Checkpoint(uid) | Timer::Publish(uid) => Some(uid.clone()),
            Timer::Restore | Timer::Ask => None,
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        // What loops over pods have left out.
        self.status_cache.note_desired(pod);
        self.ask_later(ctx);
        if let Some(seen) = self.observed.now(pod) {
            self.status_cache.observed(pod, seen);
        }
        self.catch_up(pod);
        self.compute(pod, ctx);
    }

    fn observe(&self) -> serde_json::Value {
        let (pods, phases) = self.status_cache.phases();
        let (under_way, problems) = self.writes.problems();
        let (telling, untold) = self.publisher.counts();
        serde_json::json!({
            "pods": pods,
            "phases": phases,
            "restored": self.waiting.is_none(),
            "restoreProblem": self.restore_problem,
            "unusableCheckpoints": self.unusable,
            "checkpointsUnderWay": under_way,
            "checkpointsFailed": problems.len(),
            "callsUnderWay": telling,
            "callsFailed": untold,
            "checkpointProblem": problems.into_values().next(),
        })
    }
}

impl Handler<DesiredPodsChanged> for StatusManager {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        match self.status_cache.desired(update) {
            Heard::Compute(touched) => {
                // What was told of a pod before it was known to be desired.
                for uid in &touched {
                    ctx.for_pod(uid, |_| self.catch_up(uid));
                }
                self.compute_soon(touched, ctx);
            }
            Heard::Missed => self.deps.desired.tell_level(ResendDesired { receiver: Self::NAME }),
        }
    }
}

impl Handler<MirrorPods> for StatusManager {
    type Result = ();
    fn handle(&mut self, mirrors: MirrorPods, ctx: &mut Ctx<Self>) {
        let touched = self.status_cache.mirrors(&mirrors.pods);
        self.compute_soon(touched, ctx);
    }
}

impl Handler<NodeAddressesObserved> for StatusManager {
    type Result = ();
    fn handle(&mut self, fact: NodeAddressesObserved, ctx: &mut Ctx<Self>) {
        let touched = self.status_cache.addresses(fact.host_ips());
        self.compute_soon(touched, ctx);
    }
}

impl Handler<RuntimeObserved> for StatusManager {
    type Result = ();
    fn handle(&mut self, RuntimeObserved(health): RuntimeObserved, ctx: &mut Ctx<Self>) {
        let touched = self.status_cache.runtime(&health);
        self.compute_soon(touched, ctx);
    }
}

impl Handler<PodObserved> for StatusManager {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.observed.hear(observed.0) else {
            return self.deps.observed.tell_level(ResendObserved { receiver: Self::NAME });
        };
        self.heard(changed, ctx, |cache, uid, seen| cache.observed(uid, seen));
    }
}

impl Handler<WorkerReported> for StatusManager {
    type Result = ();
    fn handle(&mut self, WorkerReported(update): WorkerReported, ctx: &mut Ctx<Self>) {
        let Some(mut changed) = self.reports.hear(update) else {
            return self.deps.reports.tell_level(ResendReports { receiver: Self::NAME });
        };
        // Of a pod that was over before this incarnation there is nothing to tell.
        changed.retain(|(uid, report)| !report.is_over() || self.status_cache.has(uid));
        self.heard(changed, ctx, |cache, uid, report| cache.reported(uid, report));
    }
}

impl Handler<ProbeVerdict> for StatusManager {
    type Result = ();
    fn handle(&mut self, ProbeVerdict(update): ProbeVerdict, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.verdicts.take(update) else {
            return self.deps.verdicts.tell_level(ResendVerdicts { receiver: Self::NAME });
        };
        // What was said of a pod before it lost its probes, or came to its end, goes with the pod.
        let now = |(uid, _): (PodUid, _)| self.verdicts.get(&uid).cloned().map(|verdicts| (uid, verdicts));
        let changed = changed.into_iter().filter_map(now).collect();
        self.heard(changed, ctx, PodStatusCache::verdicts);
    }
}

impl Handler<PodsQuarantined> for StatusManager {
    type Result = ();
    fn handle(&mut self, quarantined: PodsQuarantined, ctx: &mut Ctx<Self>) {
        let changed = self.status_cache.quarantined(quarantined);
        self.compute_soon(changed, ctx);
    }
}

impl Handler<GetPodStatus> for StatusManager {
    type Result = ReplyLater<Option<Arc<PodStatus>>>;
    fn handle(&mut self, query: GetPodStatus, _ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        match &mut self.waiting {
            None => reply.send(self.status_cache.status_since(&query.uid, query.made_anew)),
            Some(waiting) if waiting.len() < WAITING_MAX => waiting.push(Waiting { query, reply }),
            Some(_) => drop(reply),
        }
        later
    }
}

impl Handler<GetPodStatuses> for StatusManager {
    type Result = MessageResult<GetPodStatuses>;
    fn handle(&mut self, _: GetPodStatuses, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.status_cache.statuses())
    }
}

impl Handler<GetKnownStatuses> for StatusManager {
    type Result = ReplyLater<BTreeMap<PodUid, Arc<PodStatus>>>;
    fn handle(&mut self, _: GetKnownStatuses, _ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        if self.waiting.is_none() {
            reply.send(self.status_cache.statuses());
        } else if self.waiting_for_all.len() < WAITING_MAX {
            self.waiting_for_all.push(reply);
        }
        later
    }
}
