//! The actor: what the sources say, merged, admitted and sent on.

mod node;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use bridge_kube::MirrorObjects;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    DesiredPods, DesiredPodsChanged, PressureObserved, Rejection, RuntimeObserved, Source, SourcePod,
    WorkerReport, WorkerReported,
};
use messages::node_status::ResendNode;
use messages::pleg::{GetHeldPods, ResendObserved};
use messages::pod_manager::{
    self, ApiPodsChanged, GetPods, GetPressure, GetStaticOf, PodsChanged, ResendDesired,
};
use messages::pod_sources::ResendPods;
use messages::pod_worker::{EvictPod, GetWorkers};
use messages::status_manager::{GetKnownStatuses, MirrorPods};
use messages::{PodRef, PodUid};
use pod_rules::origin::is_mirror;
use pod_rules::reasons::{
    EXCEEDED_GRACE_PERIOD, EXCEEDED_GRACE_PERIOD_MESSAGE, FAILED_VALIDATION, PREEMPTING,
};
use pod_set::Taken;
use supervision::{Address, AskError, AskPort, Ctx, Subsystem, blame};

use crate::admission::{NodeView, counted_as, preemption};
use crate::decide::{Decisions, Outcome, Victim};
use crate::execute::{self, Done, MirrorError};
use crate::known::Known;
use crate::merge::{Candidate, Duplicate, Sources};
use crate::metrics::PodManagerMetrics;
use crate::mirror::{Mirrors, Step};
use tell::Told;

/// How long PodManager waits for an answer before it asks again.
const ASK_DEADLINE: Duration = Duration::from_secs(5);
/// Pause before it asks again for what was refused or not known yet.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How often a pod that has to end is told so, until it has.
const EVICT_AGAIN: Duration = Duration::from_secs(5);

/// Pause before a mirror pod is tried again while the Node is not there yet, and otherwise.
const MIRROR_SOON: Duration = Duration::from_secs(1);
const MIRROR_AGAIN: Duration = Duration::from_secs(10);

/// What PodManager goes by.
#[derive(Clone, Debug)]
pub struct PodManagerConfig {
    /// Every source that is configured; absence means removal only once all have been heard.
    pub sources: Vec<Source>,
    /// The node that pods are admitted to, as it registers itself.
    pub node: NodeView,
}

/// What PodManager is given.
#[derive(Clone)]
pub struct PodManagerDeps {
    /// Configuration.
    pub config: PodManagerConfig,
    /// Who is told of the desired pods, but not of each change of their statuses at the API server.
    pub observers: Vec<Address<DesiredPodsChanged>>,
    /// StatusManager: told of these as well.
    pub status_observer: Address<DesiredPodsChanged>,
    /// Asked for its pods after a restart.
    pub sources: Address<ResendPods>,
    /// Asked which pods still have something on the node.
    pub workers: AskPort<PodManager, GetWorkers>,
    /// Asked what was decided about pods before this incarnation.
    pub statuses: AskPort<PodManager, GetKnownStatuses>,
    /// Asked what the runtime holds, before anything is decided, and before a new static pod takes a name.
    pub held_pods: AskPort<PodManager, GetHeldPods>,
    /// Asked after a restart what the runtime can do.
    pub observed: Address<ResendObserved>,
    /// Asked after a restart what the node runs out of.
    pub pressure: Address<ResendPressure>,
    /// Asked after a start for the Node, as the API server has it; none if nobody keeps a Node.
    pub node: Option<Address<ResendNode>>,
    /// Told to end pods so that a critical one finds room.
    pub evict: Address<EvictPod>,
    /// Told which pods of the API server stand for static ones.
    pub mirrors: Address<MirrorPods>,
    /// The API server, if there is one that static pods are mirrored to.
    pub api: Option<Arc<dyn MirrorObjects>>,
    /// Events.
    pub events: Address<RecordEvent>,
    /// Counts.
    pub metrics: PodManagerMetrics,
}

/// Desired state.
pub struct PodManager {
    deps: PodManagerDeps,
    sources: Sources,
    decisions: Decisions,
    known: Known,
    mirrors: Mirrors,
    /// The node that pods are admitted to, as it is now.
    node: NodeView,
    node_uid: Option<String>,
    /// The pool and StatusManager have answered: nothing is decided before, nor before the runtime has told.
    heard: Heard,
    told: Told,
    duplicates: BTreeSet<PodUid>,
    waiting: usize,
    asking_runtime: bool,
    /// Pods that the Node is being fetched for.
    fetching_node: Option<BTreeSet<PodUid>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    workers: bool,
    statuses: bool,
}

impl PodManager {
    /// An incarnation that has heard nobody.
    pub fn new(deps: PodManagerDeps) -> Self {
        Self {
            node: deps.config.node.clone(),
            node_uid: None,
            sources: Sources::default(),
            decisions: Decisions::default(),
            known: Known::new(deps.node.is_none(), deps.api.is_some()),
            mirrors: Mirrors::default(),
            heard: Heard::default(),
            told: Told::new(0),
            duplicates: BTreeSet::new(),
            waiting: 0,
            asking_runtime: false,
            fetching_node: None,
            deps,
        }
    }

    /// Whether the past is known that new pods are judged beside.
    fn may_decide(&self) -> bool {
        self.heard == Heard { workers: true, statuses: true } && self.known.may_tell_what_is_here()
    }

    /// Absence means removal: every source has been heard, and the runtime, without which most pods wait.
    fn has_decided_all(&self) -> bool {
        self.may_decide()
            && self.known.has_heard_runtime()
            && self.sources.heard_all(&self.deps.config.sources)
    }

    /// Does what is to be done about mirror pods now.
    fn mirror(&mut self, ctx: &mut Ctx<Self>) {
        let Some(api) = self.deps.api.clone() else { return };
        let all = self.has_decided_all();
        let known = &self.known;
        for step in self.mirrors.steps(self.told.statics(), all, |name| known.has_name(name)) {
            let work = execute::mirror(api.clone(), self.deps.config.node.name.clone(), step.clone());
            ctx.effect("mirror", Some(step.uid()), work, move |actor, outcome, ctx| {
                actor.mirrored(&step, outcome, ctx)
            });
        }
    }

    fn mirrored(&mut self, step: &Step, outcome: Result<Done, MirrorError>, ctx: &mut Ctx<Self>) {
        let name = step.full_name();
        match outcome {
            Ok(Done::Created(pod)) => self.mirrors.created(*pod),
            Ok(Done::Deleted) => self.mirrors.deleted(&name),
            Err(error) => {
                tracing::warn!(%error, pod = name, "The static pod is not mirrored at the API server as it should be");
                let is_early = matches!(&error, MirrorError::NoNode(_))
                    || matches!(&error, MirrorError::Api(error) if error.is_not_found());
                self.mirrors.failed(&name);
                ctx.set_timer(Timer::Mirror(name), if is_early { MIRROR_SOON } else { MIRROR_AGAIN });
                return;
            }
        }
        self.mirrors.done(&name);
        self.tell_mirrors();
        self.mirror(ctx);
    }

    /// Decides anew and tells everybody.
    fn decide(&mut self, ctx: &mut Ctx<Self>) {
        if !self.may_decide() {
            return;
        }
        let all = self.has_decided_all();
        let merged = self.sources.merge(|uid| self.decisions.has_admitted(uid, &self.known));
        self.decisions.leave_alone(ctx.quarantined());
        let mut outcome = self.decisions.decide(&merged.candidates, all, &mut self.known, &self.node);
        self.say_duplicates(&merged.duplicates);
        self.say(&outcome);
        for victim in &outcome.victims {
            blame::for_pod(&victim.pod.uid, || self.preempt(victim, ctx));
        }
        if outcome.ask_runtime {
            self.ask_runtime(ctx);
        }
        self.fetch_node(std::mem::take(&mut outcome.ask_node), ctx);
        self.waiting = outcome.waiting;
        self.publish(outcome, ctx);
        self.mirror(ctx);
    }

    /// A pod of the API server has changed, come or gone. The work is that of one pod if it was judged before and no other
    /// waits for anything; a new pod is judged beside all others.
    fn api_pod_changed(&mut self, uid: &PodUid, before: Option<&SourcePod>, ctx: &mut Ctx<Self>) {
        let now = self.sources.one_of_api(uid).cloned();
        let mirrors = [before, now.as_ref()].map(|pod| pod.is_some_and(|pod| is_mirror(&pod.pod)));
        if mirrors.contains(&true) {
            self.mirrors.changed(before.map(|pod| &pod.pod), now.as_ref().map(|pod| &pod.pod));
        }
        if !self.may_decide() {
            return;
        }
        match (before.is_some(), now.is_some(), mirrors) {
            // It is no pod of its own.
            (_, true, [true, true]) | (true, false, [true, _]) | (false, true, [_, true]) => {
                self.tell_mirrors();
                self.mirror(ctx);
            }
            (_, _, [false, false]) if !self.sources.is_unread(uid) && self.decide_again(uid, now, ctx) => {}
            _ => self.decide(ctx),
        }
    }

    /// Decides about one pod of the API server, whether that is enough.
    fn decide_again(&mut self, uid: &PodUid, now: Option<SourcePod>, ctx: &mut Ctx<Self>) -> bool {
        if self.waiting > 0 || !self.duplicates.is_empty() || !self.has_decided_all() {
            return false;
        }
        let Some(pod) = now else {
            let is_all = self.decisions.forget(uid, &mut self.known);
            if is_all {
                self.publish_gone(uid, ctx);
            }
            return is_all;
        };
        let candidate = Candidate { pod_ref: PodRef::of(&pod.pod), pod, source: Source::Api };
        let Some(outcome) = self.decisions.decide_again(&candidate, &mut self.known, &self.node) else {
            return false;
        };
        self.say(&outcome);
        for pod in outcome.pods.into_values() {
            self.publish_one(pod, ctx);
        }
        true
    }

    /// An event for each refusal, and for each pod that waits for a kubelet that can run it, once.
    fn say(&self, outcome: &Outcome) {
        for (pod, why) in &outcome.refused {
            let _named = blame::name(&pod.uid);
            tracing::warn!(%pod, reason = why.reason, message = why.message, "Pod is not admitted");
            self.deps.metrics.rejections.with_label_values(&[counted_as(&why.reason)]).inc();
            self.warn(pod, &why.reason, &why.message);
        }
        for (pod, why) in &outcome.unsupported {
            let _named = blame::name(&pod.uid);
            tracing::warn!(%pod, message = why.message, "Pod asks for what this kubelet does not do; it stays Pending");
            self.warn(pod, &why.reason, &why.message);
        }
        for (pod, why) in &outcome.kept {
            let _named = blame::name(&pod.uid);
            tracing::warn!(%pod, reason = why.reason, message = why.message, "Pod runs on though a new one would wait");
            let message = format!("{}; the pod runs already and is left alone", why.message);
            self.warn(pod, &why.reason, &message);
        }
    }

    /// How many pods no worker runs, for good or not.
    fn refused(&self, for_good: bool) -> usize {
        let refused = self.told.pods().filter_map(|(_, pod)| pod.rejected.as_ref());
        refused.filter(|why| why.is_final() == for_good).count()
    }

    /// An event for each duplicate, once.
    fn say_duplicates(&mut self, duplicates: &[Duplicate]) {
        for duplicate in duplicates.iter().filter(|duplicate| !self.duplicates.contains(&duplicate.pod.uid)) {
            let (pod, source) = (&duplicate.pod, duplicate.source.as_str());
            let _named = blame::name(&pod.uid);
            let message = format!(
                "Error validating pod {}.{} from {source}, ignoring: metadata.name: Duplicate value: {:?}",
                pod.name, pod.namespace, pod.name
            );
            self.warn(pod, FAILED_VALIDATION, &message);
        }
        self.duplicates = duplicates.iter().map(|duplicate| duplicate.pod.uid.clone()).collect();
    }

    fn warn(&self, pod: &PodRef, reason: &str, message: &str) {
        let object = EventObject::Pod { pod: pod.clone(), field_path: Arc::from("") };
        let event = RecordEvent {
            object,
            event_type: EventType::Warning,
            reason: Arc::from(reason),
            message: Arc::from(message),
        };
        self.deps.events.tell_or_count(event);
    }

    fn preempt(&self, victim: &Victim, ctx: &mut Ctx<Self>) {
        tracing::info!(pod = %victim.pod, resource = victim.resource, "Pod ends so that a critical one finds room");
        self.warn(&victim.pod, PREEMPTING, preemption::MESSAGE);
        self.deps.metrics.preemptions.with_label_values(&[victim.resource.as_str()]).inc();
        self.evict(&victim.pod.uid);
        ctx.set_timer(Timer::EvictAgain, EVICT_AGAIN);
        ctx.set_timer(Timer::Exceeded(victim.pod.clone()), Duration::from_secs(victim.wait_seconds));
    }

    fn evict(&self, uid: &PodUid) {
        let why = Rejection { reason: PREEMPTING.to_owned(), message: preemption::MESSAGE.to_owned() };
        // Refused or lost: it is told again until the pod has ended.
        self.deps.evict.tell_level(EvictPod { uid: uid.clone(), grace_seconds: None, why });
    }

    fn evict_again(&self, ctx: &mut Ctx<Self>) {
        let victims = self.decisions.victims();
        for uid in &victims {
            blame::for_pod(uid, || self.evict(uid));
        }
        if !victims.is_empty() {
            ctx.set_timer(Timer::EvictAgain, EVICT_AGAIN);
        }
    }

    /// A pod that has to end takes longer than it may (row 4.6). Its end goes on; others need not wait for it.
    fn exceeded(&mut self, pod: &PodRef, ctx: &mut Ctx<Self>) {
        if self.decisions.victims().contains(&pod.uid) {
            self.warn(pod, EXCEEDED_GRACE_PERIOD, EXCEEDED_GRACE_PERIOD_MESSAGE);
            self.decisions.give_up(&pod.uid);
            self.decide(ctx);
        }
    }

    fn ask_workers(&self, ctx: &mut Ctx<Self>) {
        let asked = self.deps.workers.ask(GetWorkers, ASK_DEADLINE);
        ctx.effect("ask workers", None, asked, Self::heard_workers);
    }

    fn heard_workers(&mut self, answer: WorkersAnswer, ctx: &mut Ctx<Self>) {
        let Ok(reports) = answer else {
            ctx.set_timer(Timer::AskWorkers, ASK_AGAIN);
            return;
        };
        for (uid, report) in reports {
            blame::for_pod(&uid.clone(), || self.known.report_if_unknown(uid, report));
        }
        self.heard.workers = true;
        self.decide(ctx);
    }

    fn ask_statuses(&self, ctx: &mut Ctx<Self>) {
        let asked = self.deps.statuses.ask(GetKnownStatuses, ASK_DEADLINE);
        ctx.effect("ask statuses", None, asked, Self::heard_statuses);
    }

    fn heard_statuses(&mut self, answer: StatusesAnswer, ctx: &mut Ctx<Self>) {
        let Ok(statuses) = answer else {
            ctx.set_timer(Timer::AskStatuses, ASK_AGAIN);
            return;
        };
        self.decisions.restore(&mut self.known, &statuses);
        self.heard.statuses = true;
        self.decide(ctx);
    }

    fn ask_runtime(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.asking_runtime, true) {
            return;
        }
        let asked = self.deps.held_pods.ask(GetHeldPods, ASK_DEADLINE);
        ctx.effect("ask runtime", None, asked, |actor, answer, ctx| {
            // Somebody still waits, or the next decision says otherwise.
            ctx.set_timer(Timer::AskRuntime, ASK_AGAIN);
            if let Ok(pods) = answer {
                actor.known.runtime(&pods);
                actor.decide(ctx);
            }
        });
    }
}

type WorkersAnswer = Result<BTreeMap<PodUid, Arc<WorkerReport>>, AskError>;
type StatusesAnswer = Result<BTreeMap<PodUid, Arc<PodStatus>>, AskError>;

/// PodManager's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Ask the pool again.
    AskWorkers,
    /// Ask StatusManager again.
    AskStatuses,
    /// The runtime may be asked again.
    AskRuntime,
    /// Ask for the Node again.
    AskForNode,
    /// Tell those again who have to end.
    EvictAgain,
    /// This pod should have ended by now.
    Exceeded(PodRef),
    /// The mirror of this full name may be tried again.
    Mirror(String),
    /// Tell the digests of the desired pods.
    Digest,
}

impl Actor for PodManager {
    type Context = Ctx<Self>;
}

impl Subsystem for PodManager {
    const NAME: &'static str = pod_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.told = Told::new(ctx.incarnation());
        self.ask_workers(ctx);
        self.ask_statuses(ctx);
        self.ask_runtime(ctx);
        ctx.tell_until_taken(&self.deps.sources, ResendPods);
        self.ask_for_node(ctx);
        self.tell_digests(ctx);
        if ctx.incarnation() > 1 {
            ctx.tell_until_taken(&self.deps.observed, ResendObserved);
            ctx.tell_until_taken(&self.deps.pressure, ResendPressure);
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::AskWorkers => self.ask_workers(ctx),
            Timer::AskStatuses => self.ask_statuses(ctx),
            Timer::AskForNode => self.ask_for_node(ctx),
            Timer::AskRuntime => {
                self.asking_runtime = false;
                if !self.known.has_heard_runtime() {
                    self.ask_runtime(ctx);
                } else if self.waiting > 0 {
                    self.decide(ctx);
                }
            }
            Timer::EvictAgain => self.evict_again(ctx),
            Timer::Digest => self.tell_digests(ctx),
            Timer::Exceeded(pod) => self.exceeded(&pod, ctx),
            Timer::Mirror(name) => {
                self.mirrors.done(&name);
                self.mirror(ctx);
            }
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Exceeded(pod) => Some(pod.uid.clone()),
            Timer::AskWorkers
            | Timer::AskStatuses
            | Timer::AskRuntime
            | Timer::AskForNode
            | Timer::EvictAgain
            | Timer::Digest
            | Timer::Mirror(_) => None,
        }
    }

    fn on_release(&mut self, _pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.decide(ctx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.told.len(),
            "rejected": self.refused(true),
            "unsupported": self.refused(false),
            "waiting": self.waiting,
            "preempting": self.decisions.victims().len(),
            "sourcesReady": self.has_decided_all(),
        })
    }
}

impl Handler<PodsChanged> for PodManager {
    type Result = ();
    fn handle(&mut self, changed: PodsChanged, ctx: &mut Ctx<Self>) {
        self.sources.set(changed.source, changed.pods);
        self.decide(ctx);
    }
}

impl Handler<ApiPodsChanged> for PodManager {
    type Result = ();
    fn handle(&mut self, ApiPodsChanged(update): ApiPodsChanged, ctx: &mut Ctx<Self>) {
        match self.sources.take_api(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, before) => self.api_pod_changed(&uid, before.as_ref(), ctx),
            Taken::All(_) => {
                self.mirrors.heard(self.sources.of_api().map(|(_, pod)| &pod.pod));
                self.decide(ctx);
            }
            Taken::Missed => self.deps.sources.tell_level(ResendPods),
        }
    }
}

impl Handler<WorkerReported> for PodManager {
    type Result = ();
    fn handle(&mut self, reported: WorkerReported, ctx: &mut Ctx<Self>) {
        let news = self.known.report(reported.uid, reported.report);
        if news && self.waiting > 0 {
            self.decide(ctx);
        } else if news {
            self.mirror(ctx);
        }
    }
}

impl Handler<RuntimeObserved> for PodManager {
    type Result = ();
    fn handle(&mut self, RuntimeObserved(health): RuntimeObserved, ctx: &mut Ctx<Self>) {
        // A runtime that does not answer has no name, and nobody knows what it can do.
        let told = (!health.name.is_empty()).then_some(health.supplemental_groups_policy);
        if told.is_some() && self.known.strict_groups != told {
            self.known.strict_groups = told;
            if self.waiting > 0 {
                self.decide(ctx);
            }
        }
    }
}

impl Handler<PressureObserved> for PodManager {
    type Result = ();
    fn handle(&mut self, PressureObserved(pressure): PressureObserved, _ctx: &mut Ctx<Self>) {
        // Who was refused stays refused, and who runs is not judged again.
        self.known.pressure = Some(pressure);
    }
}

impl Handler<GetPressure> for PodManager {
    type Result = MessageResult<GetPressure>;
    fn handle(&mut self, _: GetPressure, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.known.pressure)
    }
}

impl Handler<ResendDesired> for PodManager {
    type Result = ();
    fn handle(&mut self, ask: ResendDesired, _ctx: &mut Ctx<Self>) {
        self.tell_all_to(ask.receiver);
    }
}

impl Handler<GetPods> for PodManager {
    type Result = MessageResult<GetPods>;
    fn handle(&mut self, _: GetPods, _ctx: &mut Ctx<Self>) -> Self::Result {
        let pods = self.told.pods().map(|(uid, pod)| (uid.clone(), pod.clone())).collect();
        MessageResult(DesiredPods { pods: Arc::new(pods), sources_ready: self.has_decided_all() })
    }
}

impl Handler<GetStaticOf> for PodManager {
    type Result = MessageResult<GetStaticOf>;
    fn handle(&mut self, ask: GetStaticOf, _ctx: &mut Ctx<Self>) -> Self::Result {
        let name = self.mirrors.full_name(&ask.mirror);
        let of_name = |pod: &&Arc<Pod>| name.is_some_and(|name| PodRef::of(pod).full_name() == name);
        MessageResult(self.told.statics().find(of_name).map(|pod| PodRef::of(pod).uid))
    }
}
