//! PodWorkerPool: starts a worker for each pod, and gives each worker every fact about its pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use messages::config_manager::ResendConfiguration;
use messages::facts::{
    DesiredPodsChanged, NodeAddressesObserved, NodeResourcesConfigured, PodObserved, ProbeVerdict,
    RuntimeObserved, SeenPod, Verdicts, WorkerReport, WorkerReported,
};
use messages::node_status::ResendNode;
use messages::object_cache::PodObjectsChanged;
use messages::pleg::ResendObserved;
use messages::pod_manager::ResendDesired;
use messages::pod_set::GonePod;
use messages::pod_worker::worker::{PodJudged, PodSeen, SyncPod, Want};
use messages::pod_worker::{EvictPod, GetWorkers, PodReported, RECEIVER, ResendPod, ResendReports};
use messages::probe_manager::ResendVerdicts;
use messages::{Delivery, PodRef, PodUid};
use pod_set::{Ends, Followed, Teller};
use supervision::{Child, ChildSpec, Ctx, Reply, ReplyLater, Subsystem, blame, reply_later};

use crate::deps::PodWorkerPoolDeps;
use crate::dns::check_resolv_conf;
use crate::texts::{DEADLINE_EXCEEDED, check_limits_for_resolv_conf};
use crate::worker::PodWorker;
use crate::worker_registry::{Order, WorkerRegistry};

/// The most messages that may wait for one worker: messages replace older ones of their kind, so this is
/// ample.
const WORKER_MAILBOX: usize = 16;
/// How long the question for all workers waits for the reports of adopted ones: one that crashes over its pod gives none.
const ADOPTED_WITHIN: Duration = Duration::from_secs(2);
/// Pause until it is seen again whether a worker that ends has ended.
const ENDING_PAUSE: Duration = Duration::from_millis(20);
/// How often it is seen whether workers have ended whose last report was lost.
const LOST_EVERY: Duration = Duration::from_secs(60);

/// Questions for all workers that wait, at most.
const WAITING_MAX: usize = 16;

/// The answer to [`GetWorkers`].
type Workers = BTreeMap<PodUid, Arc<WorkerReport>>;

/// The pool's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Workers that were told to end may have ended.
    Ending,
    /// Tell followers what they are owed of the reports, or a digest of them.
    Tell,
    /// Adopted workers had time to report.
    Adopted,
    /// Workers may have ended whose last report was lost.
    Lost,
}

/// The pool of all pod workers.
pub struct PodWorkerPool {
    deps: PodWorkerPoolDeps,
    worker_registry: WorkerRegistry,
    reports: Teller<Arc<WorkerReport>, WorkerReported, Timer>,
    /// Questions for all workers, which wait for the reports of adopted ones; `None` when these had time for them.
    waiting: Option<Vec<Reply<Workers>>>,
    children: BTreeMap<PodUid, Child<PodWorker>>,
    /// Pods whose worker is over and may not have ended yet.
    ending: BTreeSet<PodUid>,
    /// Pods whose worker had ended when that was seen last, while the pool had no report of it.
    lost: BTreeSet<PodUid>,
    health: Option<RuntimeObserved>,
    addresses: Option<NodeAddressesObserved>,
    resources: Option<NodeResourcesConfigured>,
    observed: Followed<SeenPod>,
    verdicts: Followed<Verdicts>,
    evictions: BTreeMap<PodUid, EvictPod>,
}

impl PodWorkerPool {
    /// A pool without any facts.
    pub fn new(deps: PodWorkerPoolDeps) -> Self {
        Self {
            reports: Teller::new(0, deps.report_followers.iter().cloned(), WorkerReported, Timer::Tell),
            waiting: None,
            deps,
            worker_registry: WorkerRegistry::default(),
            children: BTreeMap::new(),
            ending: BTreeSet::new(),
            lost: BTreeSet::new(),
            health: None,
            addresses: None,
            resources: None,
            observed: Followed::default(),
            verdicts: Followed::default(),
            evictions: BTreeMap::new(),
        }
    }

    fn forward<M: Delivery>(&self, uid: &PodUid, message: M)
    where
        PodWorker: Handler<M>,
    {
        if let Some(child) = self.children.get(uid) {
            // One message of each kind: never refused for want of room.
            child.address::<M>().tell_level(message);
        }
    }

    fn sync(&self, uid: &PodUid, pod: PodRef, want: Want) {
        self.forward(uid, SyncPod { pod, want, trusts_end: self.worker_registry.trusts_end(uid) });
    }

    fn act(&mut self, ctx: &mut Ctx<Self>) {
        self.worker_registry.leave_alone(ctx.quarantined());
        for order in self.worker_registry.decide() {
            let _named = blame::name(order.uid());
            match order {
                Order::Start(pod, want) => {
                    if matches!(want, Want::Gone(None)) {
                        self.deps.worker.metrics.orphaned_pods.inc();
                    }
                    self.start(pod, want, ctx);
                }
                Order::Tell(pod, want) => {
                    let uid = pod.uid.clone();
                    // The new goal may be past what a dormant worker crashed on, so it is tried again.
                    if let Some(child) = self.children.get(&uid) {
                        child.revive();
                    }
                    self.sync(&uid, pod, want);
                }
                Order::Forget(uid) => self.forget(uid, ctx),
            }
        }
        self.count();
    }

    fn start(&mut self, pod: PodRef, want: Want, ctx: &mut Ctx<Self>) {
        let uid = pod.uid.clone();
        if self.ending.contains(&uid) {
            // The new worker would be taken for its predecessor, which has not ended. The timer that waits
            // for that end starts it.
            self.worker_registry.not_started(&uid);
            return;
        }
        let (worker, name) = (self.deps.worker.clone(), uid.clone());
        let spec = ChildSpec { mailbox_bound: Some(WORKER_MAILBOX) };
        let child = ctx.child(&uid, spec, move || PodWorker::new(name.clone(), worker.clone()));
        self.children.insert(uid.clone(), child);
        self.sync(&uid, pod, want);
        self.tell_all_but_goal(&uid);
    }

    /// Sends a worker every fact about its pod except its goal.
    fn tell_all_but_goal(&self, uid: &PodUid) {
        if let Some(health) = &self.health {
            self.forward(uid, health.clone());
        }
        if let Some(addresses) = &self.addresses {
            self.forward(uid, addresses.clone());
        }
        if let Some(resources) = &self.resources {
            self.forward(uid, resources.clone());
        }
        if let Some(seen) = self.observed.get(uid) {
            self.forward(uid, PodSeen { uid: uid.clone(), seen: seen.clone() });
        }
        self.forward_verdicts(uid);
        if let Some(eviction) = self.evictions.get(uid) {
            self.forward(uid, eviction.clone());
        }
    }

    /// Takes what Pleg sees of a pod. Whether the runtime holds something of a pod that has no worker.
    fn see(&mut self, uid: &PodUid, seen: SeenPod) -> bool {
        self.worker_registry.observe(uid, &seen.state);
        let is_strange = !self.worker_registry.has(uid) && !seen.state.is_absent();
        self.forward(uid, PodSeen { uid: uid.clone(), seen });
        is_strange
    }

    fn forward_verdicts(&self, uid: &PodUid) {
        if let Some(verdicts) = self.verdicts.get(uid) {
            self.forward(uid, PodJudged { uid: uid.clone(), verdicts: verdicts.clone() });
        }
    }

    fn forget(&mut self, uid: PodUid, ctx: &mut Ctx<Self>) {
        if self.worker_registry.is_desired(&uid) {
            let label = if self.worker_registry.is_static(&uid) { "true" } else { "" };
            self.deps.worker.metrics.restarted_pods.with_label_values(&[label]).inc();
        }
        match self.reports.set().get(&uid) {
            Some(report) => self.reports.put_last(&uid, report.over()),
            None => self.reports.remove(&uid, GonePod::default()),
        }
        self.reports.wake(ctx);
        self.children.remove(&uid);
        self.lost.remove(&uid);
        self.evictions.remove(&uid);
        // The worker ends by itself; this stops one that is just being restarted.
        ctx.stop_child::<PodWorker>(&uid);
        self.ending.insert(uid);
        ctx.set_timer(Timer::Ending, ENDING_PAUSE);
    }

    fn see_endings(&mut self, ctx: &mut Ctx<Self>) {
        let ended = |uid: &&PodUid| !ctx.has_child::<PodWorker>(uid);
        let ended: Vec<PodUid> = self.ending.iter().filter(ended).cloned().collect();
        for uid in &ended {
            self.ending.remove(uid);
            self.worker_registry.touch(uid);
        }
        if !self.ending.is_empty() {
            ctx.set_timer(Timer::Ending, ENDING_PAUSE);
        }
        self.act(ctx);
    }

    /// A worker ends once nothing is left of its pod and this mailbox has taken its last report. If that was lost on the way the
    /// worker counts as over all the same.
    fn see_lost(&mut self, ctx: &mut Ctx<Self>) {
        let ended = self.children.iter().filter(|(_, child)| child.has_ended());
        let ended: BTreeSet<PodUid> = ended.map(|(uid, _)| uid.clone()).collect();
        // The report of one that has just ended may wait in the mailbox.
        let before = std::mem::replace(&mut self.lost, ended);
        let mut is_news = false;
        for uid in self.lost.intersection(&before) {
            if self.worker_registry.ended(uid) {
                tracing::warn!(pod = %uid, "The worker has ended, and its last report is lost");
                is_news = true;
            }
        }
        if is_news {
            self.act(ctx);
        }
        ctx.set_timer(Timer::Lost, LOST_EVERY);
    }

    /// Answers the questions for all workers.
    fn answer_waiting(&mut self) {
        for reply in self.waiting.take().into_iter().flatten() {
            reply.send(self.worker_registry.reports());
        }
    }

    /// Checks the node's resolver configuration before any pod is given it; later each worker that reads it does.
    fn check_resolv_conf(&self, ctx: &mut Ctx<Self>) {
        let Some(read) = self.deps.worker.resolv_conf.clone() else { return };
        ctx.effect("check resolvConf", None, read(), |pool, read, _| {
            let worker = &pool.deps.worker;
            let config = &worker.config;
            let problem = match read {
                Ok(text) => check_resolv_conf(&config.resolv_conf, &text, &config.cluster_dns.domain),
                Err(error) => Some(error),
            };
            if let Some(problem) = problem {
                worker.events.tell_or_count(check_limits_for_resolv_conf(&problem));
            }
        });
    }

    fn count(&self) {
        let gauge = &self.deps.worker.metrics.working_pods;
        for ((lifecycle, config, fixed), count) in self.worker_registry.counts() {
            gauge.with_label_values(&[lifecycle, config, fixed]).set(count);
        }
    }
}

impl Actor for PodWorkerPool {
    type Context = Ctx<Self>;
}

impl Subsystem for PodWorkerPool {
    const NAME: &'static str = RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        let followers = self.deps.report_followers.iter().cloned();
        self.reports = Teller::new(ctx.incarnation(), followers, WorkerReported, Timer::Tell);
        for (uid, child) in ctx.children::<PodWorker>() {
            blame::for_pod(&uid, || self.worker_registry.adopt(&uid));
            self.reports.unread(&uid);
            self.children.insert(uid, child);
        }
        // A pod that is not named here has no worker.
        self.reports.completed();
        self.reports.begin(ctx);
        if !self.children.is_empty() {
            self.waiting = Some(Vec::new());
            ctx.set_timer(Timer::Adopted, ADOPTED_WITHIN);
        }
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        self.deps.resend_observed.tell_level(ResendObserved { receiver: Self::NAME });
        self.deps.resend_verdicts.tell_level(ResendVerdicts { receiver: Self::NAME });
        if let Some(node) = &self.deps.resend_node {
            node.tell_level(ResendNode { receiver: Self::NAME });
        }
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        self.check_resolv_conf(ctx);
        ctx.set_timer(Timer::Lost, LOST_EVERY);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Ending => self.see_endings(ctx),
            Timer::Tell => self.reports.due(ctx),
            Timer::Adopted => self.answer_waiting(),
            Timer::Lost => self.see_lost(ctx),
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        if let Some(seen) = self.observed.now(pod) {
            self.see(pod, seen);
        }
        self.forward_verdicts(pod);
        if let Some((pod, want)) = self.worker_registry.goal(pod) {
            // The worker reports again, whatever became of what it told meanwhile.
            self.sync(&pod.uid.clone(), pod, want);
        }
        self.worker_registry.touch(pod);
        self.act(ctx);
    }

    fn observe(&self) -> serde_json::Value {
        let counts = self.worker_registry.counts();
        let of = |state: &str| -> i64 {
            counts.iter().filter(|((lifecycle, _, _), _)| *lifecycle == state).map(|(_, count)| count).sum()
        };
        serde_json::json!({
            "workers": self.children.len(),
            "syncing": of("sync"),
            "terminating": of("terminating"),
            "terminated": of("terminated"),
            "ending": self.ending.len(),
        })
    }
}

impl Handler<DesiredPodsChanged> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        if self.worker_registry.desire(update) {
            self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        }
        self.act(ctx);
    }
}

impl Handler<PodObserved> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, fact: PodObserved, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.observed.hear(fact.0) else {
            return self.deps.resend_observed.tell_level(ResendObserved { receiver: Self::NAME });
        };
        let mut is_strange = false;
        for (uid, seen) in changed {
            is_strange |= ctx.for_pod(&uid, |_| self.see(&uid, seen)).unwrap_or(false);
        }
        if is_strange {
            self.act(ctx);
        }
    }
}

impl Handler<RuntimeObserved> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, fact: RuntimeObserved, _ctx: &mut Ctx<Self>) {
        // Also when Pleg repeats it: a worker may have lost it.
        for (uid, child) in &self.children {
            let _named = blame::name(uid);
            child.address::<RuntimeObserved>().tell_level(fact.clone());
        }
        self.health = Some(fact);
    }
}

impl Handler<NodeAddressesObserved> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, fact: NodeAddressesObserved, _ctx: &mut Ctx<Self>) {
        let host_ips = fact.host_ips();
        // While no address of the Node is known, the last known ones stay.
        if host_ips.is_empty() {
            return;
        }
        // Workers that are made from now on start with the new addresses.
        if self.deps.worker.config.host_ips != host_ips {
            Arc::make_mut(&mut self.deps.worker.config).host_ips = host_ips;
        }
        for (uid, child) in &self.children {
            let _named = blame::name(uid);
            child.address::<NodeAddressesObserved>().tell_level(fact.clone());
        }
        self.addresses = Some(fact);
    }
}

impl Handler<NodeResourcesConfigured> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, fact: NodeResourcesConfigured, _ctx: &mut Ctx<Self>) {
        // Workers that are made from now on start with the new resources.
        if self.deps.worker.config.node != fact.settings {
            Arc::make_mut(&mut self.deps.worker.config).node = fact.settings.clone();
        }
        // Also when ConfigManager repeats it: a worker may have lost it.
        for (uid, child) in &self.children {
            let _named = blame::name(uid);
            child.address::<NodeResourcesConfigured>().tell_level(fact.clone());
        }
        self.resources = Some(fact);
    }
}

impl Handler<ProbeVerdict> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, ProbeVerdict(update): ProbeVerdict, ctx: &mut Ctx<Self>) {
        let Some(changed) = self.verdicts.take(update) else {
            return self.deps.resend_verdicts.tell_level(ResendVerdicts { receiver: Self::NAME });
        };
        for (uid, _) in changed {
            ctx.for_pod(&uid, |_| self.forward_verdicts(&uid));
        }
    }
}

impl Handler<PodReported> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, PodReported { uid, report }: PodReported, ctx: &mut Ctx<Self>) {
        if !self.worker_registry.has(&uid) {
            return;
        }
        // An earlier pool may have given the order, and the next incarnation of the worker has to know. That its time is up it
        // finds by itself.
        if let Some(why) = report.failed.as_ref().filter(|why| why.reason != DEADLINE_EXCEEDED) {
            let order = || EvictPod { uid: uid.clone(), grace_seconds: None, why: why.clone() };
            self.evictions.entry(uid.clone()).or_insert_with(order);
        }
        let is_decisive = self.worker_registry.report(&uid, &report);
        if self.reports.set().get(&uid) != Some(&report) {
            self.reports.put(&uid, report);
            self.reports.wake(ctx);
        }
        if self.waiting.is_some() && self.reports.set().unread_uids().next().is_none() {
            self.answer_waiting();
        }
        if is_decisive {
            self.act(ctx);
        }
    }
}

impl Handler<EvictPod> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, order: EvictPod, _ctx: &mut Ctx<Self>) {
        let uid = order.uid.clone();
        if !self.worker_registry.has(&uid) {
            return;
        }
        let is_news = self.evictions.insert(uid.clone(), order.clone()).is_none();
        // The end may be past what a dormant worker crashed on. An order that is told again wakes it no more: it would never rest.
        if let Some(child) = self.children.get(&uid).filter(|_| is_news) {
            child.revive();
        }
        self.forward(&uid, order);
    }
}

impl Handler<PodObjectsChanged> for PodWorkerPool {
    type Result = ();

    /// The fact is not kept: a worker that starts reads all objects anyway.
    fn handle(&mut self, fact: PodObjectsChanged, _ctx: &mut Ctx<Self>) {
        let uid = fact.uid.clone();
        self.forward(&uid, fact);
    }
}

impl Handler<ResendPod> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, request: ResendPod, _ctx: &mut Ctx<Self>) {
        if let Some((pod, want)) = self.worker_registry.goal(&request.uid) {
            self.sync(&request.uid, pod, want);
        }
        self.tell_all_but_goal(&request.uid);
    }
}

impl Handler<ResendReports> for PodWorkerPool {
    type Result = ();

    fn handle(&mut self, ask: ResendReports, ctx: &mut Ctx<Self>) {
        self.reports.asked(ask.receiver, ctx);
    }
}

impl Handler<GetWorkers> for PodWorkerPool {
    type Result = ReplyLater<Workers>;

    fn handle(&mut self, _: GetWorkers, _ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        match &mut self.waiting {
            None => reply.send(self.worker_registry.reports()),
            Some(waiting) => {
                waiting.retain(Reply::is_wanted);
                // One that is dropped asks again.
                if waiting.len() < WAITING_MAX {
                    waiting.push(reply);
                }
            }
        }
        later
    }
}
