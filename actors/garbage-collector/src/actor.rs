//! The actor: keeps the facts, and collects garbage at intervals and on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use messages::PodUid;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{DesiredPod, DesiredPodsChanged, PodObserved, WorkerReport, WorkerReported};
use messages::garbage_collector::{self, CollectNow, RemoveDeadContainers};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::runtime::{ContainerState, RuntimePod};
use pod_set::{Looks, PodSet, Taken};
use supervision::{Address, Ctx, Effect, Reply, ReplyLater, Subsystem, reply_later};

use crate::execute::{self, Backends, Collected, KnownPods};
use crate::plan::{GcPolicy, dead_of_all, garbage};

/// Upstream's period of collections (row 19.12).
const PERIOD: Duration = Duration::from_secs(60);
/// How long a collection may take: there may be many and large files, and each call to the runtime has a deadline of
/// its own.
const LONG: Duration = Duration::from_secs(3600);

/// GarbageCollector's settings, effects and addresses.
#[derive(Clone)]
pub struct GarbageCollectorDeps {
    /// The runtime and the disk.
    pub backends: Backends,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// How many dead containers may stay.
    pub policy: GcPolicy,
    /// PodManager, asked for the desired pods after a restart.
    pub manager: Address<ResendDesired>,
    /// Pleg, asked for the runtime's pods after a restart.
    pub pleg: Address<ResendObserved>,
    /// PodWorkerPool, asked for the workers' reports after a restart.
    pub pool: Address<ResendReports>,
    /// Pleg, told of the pods of which something was removed.
    pub touched: Address<PodTouched>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
}

/// GarbageCollector's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Collect garbage.
    Collect,
}

/// GarbageCollector: removes containers, sandboxes and logs that no pod needs.
pub struct GarbageCollector {
    deps: GarbageCollectorDeps,
    desired: PodSet<Arc<DesiredPod>>,
    observed: BTreeMap<PodUid, Arc<RuntimePod>>,
    looks: Looks,
    reports: BTreeMap<PodUid, Arc<WorkerReport>>,
    collecting: bool,
    /// Whether another collection was wanted while one is under way.
    again: bool,
    /// Asks for the removal of all dead containers, which the next collection answers.
    waiting: Vec<Reply<()>>,
    /// Such asks that the collection under way answers.
    served: Vec<Reply<()>>,
    removed: u64,
    problem: Option<String>,
}

impl GarbageCollector {
    /// An incarnation without facts, which removes nothing.
    pub fn new(deps: GarbageCollectorDeps) -> Self {
        Self {
            deps,
            desired: PodSet::default(),
            observed: BTreeMap::new(),
            looks: Looks::default(),
            reports: BTreeMap::new(),
            collecting: false,
            again: false,
            waiting: Vec::new(),
            served: Vec::new(),
            removed: 0,
            problem: None,
        }
    }

    fn collect(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Collect, PERIOD);
        if !self.desired.is_complete() {
            // Without the whole set of desired pods anything may still be needed.
            self.waiting.drain(..).for_each(|reply| reply.send(()));
            return;
        }
        if self.collecting {
            self.again = true;
            return;
        }
        self.collecting = true;
        self.served = std::mem::take(&mut self.waiting);
        let all = !self.served.is_empty();
        let now = self.deps.clock.now();
        // Nothing of a quarantined pod is removed.
        let mut observed = self.observed.clone();
        observed.retain(|uid, _| !ctx.is_quarantined(uid));
        let garbage = match all {
            true => dead_of_all(&observed, &self.reports, now),
            false => garbage(&observed, &self.reports, &self.deps.policy, now),
        };
        let all = self.observed.values().flat_map(|pod| &pod.containers);
        let alive = all.filter(|c| c.state != ContainerState::Exited).map(|c| c.id.to_string());
        let known = KnownPods { pods: self.known(), containers: alive.collect() };
        let work = execute::collect(self.deps.backends.clone(), garbage, known);
        ctx.effect(Effect::within("collect", LONG), None, work, Self::collected);
    }

    fn collected(&mut self, collected: Collected, ctx: &mut Ctx<Self>) {
        self.collecting = false;
        self.removed += collected.removed;
        self.problem = collected.problem();
        if let Some(problem) = &self.problem {
            // A full recorder counts what it drops.
            self.deps.events.tell_or_count(RecordEvent {
                object: EventObject::Node,
                event_type: EventType::Warning,
                reason: Arc::from("ContainerGCFailed"),
                message: Arc::from(problem.as_str()),
            });
        }
        for uid in collected.touched {
            // No actor waits for this look. If the message is refused, the next relist shows the same.
            self.deps.touched.tell_level(PodTouched { uid, token: 0 });
        }
        self.served.drain(..).for_each(|reply| reply.send(()));
        if std::mem::take(&mut self.again) {
            self.collect(ctx);
        }
    }

    /// The pods whose logs may still be wanted.
    fn known(&self) -> BTreeSet<PodUid> {
        let working = self.reports.iter().filter(|(_, report)| !report.released).map(|(uid, _)| uid);
        self.desired.uids().chain(self.observed.keys()).chain(working).cloned().collect()
    }
}

impl Actor for GarbageCollector {
    type Context = Ctx<Self>;
}

impl Subsystem for GarbageCollector {
    const NAME: &'static str = garbage_collector::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.manager.tell_level(ResendDesired { receiver: Self::NAME });
        ctx.tell_until_taken(&self.deps.pleg, ResendObserved);
        ctx.tell_until_taken(&self.deps.pool, ResendReports);
        ctx.set_timer(Timer::Collect, PERIOD);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Collect => self.collect(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "removed": self.removed,
            "pods": self.observed.len(),
            "collecting": self.collecting,
            "problem": self.problem,
        })
    }
}

impl Handler<DesiredPodsChanged> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, _ctx: &mut Ctx<Self>) {
        let changed = self.desired.take(update);
        pod_set::forget_over(&mut self.reports, &self.desired, &changed);
        if matches!(changed, Taken::Missed) {
            self.deps.manager.tell_level(ResendDesired { receiver: Self::NAME });
        }
    }
}

impl Handler<PodObserved> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, _ctx: &mut Ctx<Self>) {
        if !self.looks.is_newest(&observed.uid, observed.look) {
            return;
        }
        if observed.state.is_absent() {
            self.observed.remove(&observed.uid);
        } else {
            self.observed.insert(observed.uid, observed.state);
        }
    }
}

impl Handler<WorkerReported> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, reported: WorkerReported, _ctx: &mut Ctx<Self>) {
        pod_set::take_report(&mut self.reports, &self.desired, reported);
    }
}

impl Handler<CollectNow> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, _: CollectNow, ctx: &mut Ctx<Self>) {
        self.collect(ctx);
    }
}

impl Handler<RemoveDeadContainers> for GarbageCollector {
    type Result = ReplyLater<()>;
    fn handle(&mut self, _: RemoveDeadContainers, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.waiting.push(reply);
        self.collect(ctx);
        later
    }
}
