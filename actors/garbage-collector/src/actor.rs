//! The actor: keeps the facts, and collects garbage at intervals and on request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_io::clock::Clock;
use messages::PodUid;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{DesiredPod, DesiredPodsChanged, PodObserved, SeenPod, WorkerReport, WorkerReported};
use messages::garbage_collector::{self, CollectNow, RemoveDeadContainers};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::runtime::ContainerState;
use pod_set::{Followed, PodSet, Taken};
use supervision::{Address, Ctx, Reply, ReplyLater, Subsystem, reply_later};

use crate::execute::{self, Backends, LogsFound, Removed};
use crate::plan::{Garbage, GcPolicy, dead_of_all, garbage};
use crate::removals::Removals;

/// Upstream's period of collections (row 19.12).
const PERIOD: Duration = Duration::from_secs(60);
/// The longest wait of an ask for the removal of all dead containers: what hangs or is not known then is not waited for.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// The asks for the removal of all dead containers have waited long enough.
    Patience,
}

/// GarbageCollector: removes containers, sandboxes and logs that no pod needs.
pub struct GarbageCollector {
    deps: GarbageCollectorDeps,
    desired: PodSet<Arc<DesiredPod>>,
    observed: Followed<SeenPod>,
    reports: Followed<Arc<WorkerReport>>,
    removals: Removals,
    /// Whether logs are being looked at.
    looking: bool,
    /// Asks for the removal of all dead containers.
    waiting: Vec<Reply<()>>,
    /// The pods that such asks wait for.
    awaited: BTreeSet<PodUid>,
    /// What has failed since it was told last.
    errors: Vec<String>,
    removed: u64,
    problem: Option<String>,
}

impl GarbageCollector {
    /// An incarnation without facts, which removes nothing.
    pub fn new(deps: GarbageCollectorDeps) -> Self {
        Self {
            deps,
            desired: PodSet::default(),
            observed: Followed::default(),
            reports: Followed::default(),
            removals: Removals::default(),
            looking: false,
            waiting: Vec::new(),
            awaited: BTreeSet::new(),
            errors: Vec::new(),
            removed: 0,
            problem: None,
        }
    }

    fn collect(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Collect, PERIOD);
        if !self.errors.is_empty() {
            self.tell_problem();
        }
        if !self.knows_all() {
            // Anything may still be needed; asks wait.
            return;
        }
        let now = self.deps.clock.now();
        // Nothing of a quarantined pod is removed.
        let observed = self.observed.present().filter(|(uid, _)| !ctx.is_quarantined(uid));
        let observed = observed.map(|(uid, seen)| (uid.clone(), seen.state.clone())).collect();
        let reports = self.reports.iter().map(|(uid, report)| (uid.clone(), report.clone())).collect();
        let garbage = match self.waiting.is_empty() {
            true => garbage(&observed, &reports, &self.deps.policy, now),
            false => dead_of_all(&observed, &reports, now),
        };
        if !self.looking {
            self.looking = true;
            let all = self.observed.present().flat_map(|(_, seen)| &seen.state.containers);
            let alive = all.filter(|c| c.state != ContainerState::Exited).map(|c| c.id.to_string());
            let work = execute::look_at_logs(self.deps.backends.dirs.clone(), alive.collect());
            ctx.effect("look at logs", None, work, Self::looked);
        }
        self.removals.forget_found();
        self.found(garbage, ctx);
    }

    fn found(&mut self, garbage: Garbage, ctx: &mut Ctx<Self>) {
        let pods = garbage.of_pods();
        if !self.waiting.is_empty() {
            self.awaited.extend(pods.keys().cloned());
        }
        self.removals.found(pods);
        self.remove_next(ctx);
    }

    fn looked(&mut self, logs: LogsFound, ctx: &mut Ctx<Self>) {
        self.looking = false;
        self.removed += logs.links;
        self.errors.extend(logs.errors);
        let gone = logs.dirs.into_iter().filter(|dir| self.is_gone(&PodUid::new(&dir.uid)));
        self.found(Garbage { log_dirs: gone.collect(), ..Garbage::default() }, ctx);
    }

    /// Begins the removals for which there is a place, and tells and answers what is over.
    fn remove_next(&mut self, ctx: &mut Ctx<Self>) {
        while let Some((uid, garbage)) = self.removals.next() {
            if garbage == Garbage::default() || ctx.is_quarantined(&uid) {
                self.over(&uid);
                continue;
            }
            let work = execute::remove(self.deps.backends.clone(), uid.clone(), garbage);
            let of = uid.clone();
            ctx.effect("remove garbage", Some(uid), work, move |actor, removed, ctx| {
                actor.ended(&of, removed, ctx);
            });
        }
        if self.removals.is_idle() && !self.looking {
            self.tell_problem();
        }
        if self.awaited.is_empty() && !self.looking && self.knows_all() {
            self.answer(ctx);
        }
    }

    fn ended(&mut self, uid: &PodUid, removed: Removed, ctx: &mut Ctx<Self>) {
        self.over(uid);
        self.removed += removed.count;
        self.errors.extend(removed.errors);
        if removed.touched {
            // No actor waits for this look. If the message is refused, the next relist shows the same.
            self.deps.touched.tell_level(PodTouched { uid: uid.clone(), token: 0 });
        }
        self.remove_next(ctx);
    }

    fn over(&mut self, uid: &PodUid) {
        if !self.removals.ended(uid) {
            self.awaited.remove(uid);
        }
    }

    fn answer(&mut self, ctx: &mut Ctx<Self>) {
        ctx.cancel_timer(&Timer::Patience);
        self.awaited.clear();
        self.waiting.drain(..).for_each(|reply| reply.send(()));
    }

    /// Tells what has failed since it was told last: once when all removals have ended, or when the next collection begins.
    fn tell_problem(&mut self) {
        self.problem = execute::problem(&std::mem::take(&mut self.errors));
        let Some(problem) = &self.problem else { return };
        // A full recorder counts what it drops.
        self.deps.events.tell_or_count(RecordEvent {
            object: EventObject::Node,
            event_type: EventType::Warning,
            reason: Arc::from("ContainerGCFailed"),
            message: Arc::from(problem.as_str()),
        });
    }

    /// Whether absence of a pod means something: its writers have said all.
    fn knows_all(&self) -> bool {
        self.desired.is_complete() && self.observed.is_complete() && self.reports.is_complete()
    }

    /// What asks wait for may have become known.
    fn heard(&mut self, knew_all: bool, ctx: &mut Ctx<Self>) {
        if !knew_all && self.knows_all() && !self.waiting.is_empty() {
            self.collect(ctx);
        }
    }

    /// Whether the pod's logs are wanted no more. A writer that began anew since the logs were listed may have yet to tell
    /// of the pod.
    fn is_gone(&self, uid: &PodUid) -> bool {
        let is_absent = self.observed.get(uid).map(|seen| seen.state.is_absent());
        let is_released = self.reports.get(uid).map(|report| report.released);
        self.desired.is_removed(uid)
            && is_absent.unwrap_or_else(|| self.observed.is_removed(uid))
            && is_released.unwrap_or_else(|| self.reports.is_removed(uid))
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
        self.deps.pleg.tell_level(ResendObserved { receiver: Self::NAME });
        self.deps.pool.tell_level(ResendReports { receiver: Self::NAME });
        ctx.set_timer(Timer::Collect, PERIOD);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Collect => self.collect(ctx),
            Timer::Patience => self.answer(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "removed": self.removed,
            "pods": self.observed.present().count(),
            "podsWaiting": self.removals.counts().0,
            "podsUnderWay": self.removals.counts().1,
            "problem": self.problem,
        })
    }
}

impl Handler<DesiredPodsChanged> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        let knew_all = self.knows_all();
        let changed = self.desired.take(update);
        if matches!(changed, Taken::Missed) {
            self.deps.manager.tell_level(ResendDesired { receiver: Self::NAME });
        }
        self.heard(knew_all, ctx);
    }
}

impl Handler<PodObserved> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, observed: PodObserved, ctx: &mut Ctx<Self>) {
        let knew_all = self.knows_all();
        if self.observed.hear(observed.0).is_none() {
            self.deps.pleg.tell_level(ResendObserved { receiver: Self::NAME });
        }
        self.heard(knew_all, ctx);
    }
}

impl Handler<WorkerReported> for GarbageCollector {
    type Result = ();
    fn handle(&mut self, WorkerReported(update): WorkerReported, ctx: &mut Ctx<Self>) {
        let knew_all = self.knows_all();
        if self.reports.take(update).is_none() {
            self.deps.pool.tell_level(ResendReports { receiver: Self::NAME });
        }
        self.heard(knew_all, ctx);
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
        ctx.set_timer(Timer::Patience, PATIENCE);
        self.collect(ctx);
        later
    }
}
