//! The actor: merges the pods of the sources, admits or refuses them, and tells its observers of the result.

mod mirrors;
mod node;
mod pressure;
mod reports;
mod tell;
mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use bridge_kube::MirrorObjects;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    DesiredPods, DesiredPodsChanged, Rejection, RuntimeObserved, Source, SourcePod, WorkerReport,
};
use messages::node_status::ResendNode;
use messages::pleg::{GetHeldPods, ResendObserved};
use messages::pod_manager::{self, ApiPodsChanged, GetPods, GetStaticOf, PodsChanged, ResendDesired};
use messages::pod_sources::ResendPods;
use messages::pod_worker::{EvictPod, GetWorkers, ResendReports};
use messages::status_manager::{GetKnownStatuses, MirrorPods};
use messages::{PodRef, PodUid};
use pod_rules::origin::is_mirror;
use pod_rules::reasons::{
    EXCEEDED_GRACE_PERIOD, EXCEEDED_GRACE_PERIOD_MESSAGE, FAILED_VALIDATION, PREEMPTING,
};
use pod_set::{Followed, Taken};
use supervision::{Address, AskError, AskPort, Ctx, Subsystem, blame};

use crate::admission::{NodeView, counted_as, preemption};
use crate::decide::{Decisions, Outcome, Victim};
use crate::merge::{Candidate, Duplicate, Sources};
use crate::metrics::PodManagerMetrics;
use crate::mirror::Mirrors;
use crate::reported::ReportedFacts;
use tell::Told;
use unread::UnreadPods;

/// How long PodManager waits for an answer before it asks again.
const ASK_DEADLINE: Duration = Duration::from_secs(5);
/// Pause before PodManager repeats an ask that was refused or lost, or asks the runtime again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How often PodManager tells a worker again to end a preempted pod, until the pod has ended.
const EVICT_AGAIN: Duration = Duration::from_secs(5);

/// PodManager's settings.
#[derive(Clone, Debug)]
pub struct PodManagerConfig {
    /// Every configured source. A pod that is absent only counts as removed once all of these have been
    /// heard.
    pub sources: Vec<Source>,
    /// The node that pods are admitted to, as the kubelet registers it.
    pub node: NodeView,
}

/// The neighbours, settings and metrics of PodManager.
#[derive(Clone)]
pub struct PodManagerDeps {
    /// Settings.
    pub config: PodManagerConfig,
    /// Followers of the desired pods that are not told of each change of a status at the API server.
    pub observers: Vec<Address<DesiredPodsChanged>>,
    /// StatusManager, which is told of changes of statuses as well.
    pub status_observer: Address<DesiredPodsChanged>,
    /// Asked for its pods after a restart.
    pub sources: Address<ResendPods>,
    /// The pool of workers, which is asked which pods still hold something on the node.
    pub workers: AskPort<PodManager, GetWorkers>,
    /// Likewise, asked to send the workers' reports again.
    pub reports: Address<ResendReports>,
    /// StatusManager, which is asked which pods earlier incarnations refused or saw end.
    pub statuses: AskPort<PodManager, GetKnownStatuses>,
    /// Pleg, which is asked which pods the runtime holds: before any decision, and before a new static pod
    /// takes a name.
    pub held_pods: AskPort<PodManager, GetHeldPods>,
    /// Pleg, which is asked after a restart to send the runtime's abilities again.
    pub observed: Address<ResendObserved>,
    /// EvictionManager, which is asked after a restart to send the node's pressure again.
    pub pressure: Address<ResendPressure>,
    /// NodeStatus, which is asked after a start for the Node of the API server; none if this kubelet keeps no
    /// Node.
    pub node: Option<Address<ResendNode>>,
    /// ConfigManager, which is asked after a restart for settings that have changed.
    pub configuration: Address<ResendConfiguration>,
    /// The pool of workers, which is told to end pods so that a critical pod finds room.
    pub evict: Address<EvictPod>,
    /// StatusManager, which is told which pods of the API server are mirrors of static pods.
    pub mirrors: Address<MirrorPods>,
    /// The API server that static pods are mirrored to, if there is one.
    pub api: Option<Arc<dyn MirrorObjects>>,
    /// The recorder of events.
    pub events: Address<RecordEvent>,
    /// Metrics, which outlive the incarnation.
    pub metrics: PodManagerMetrics,
}

/// The actor that decides which pods the node runs.
pub struct PodManager {
    deps: PodManagerDeps,
    sources: Sources,
    decisions: Decisions,
    known: ReportedFacts,
    reports: Followed<Arc<WorkerReport>>,
    mirrors: Mirrors,
    /// The node that pods are admitted to, with its present labels and taints.
    node: NodeView,
    node_uid: Option<String>,
    /// Whether the pool and StatusManager have answered. Nothing is decided before, nor before the runtime
    /// has answered.
    heard: Heard,
    told: Told,
    duplicates: BTreeSet<PodUid>,
    waiting: usize,
    /// How often all pods were decided about.
    rounds: u64,
    asking_runtime: bool,
    /// How many times EvictionManager was asked for the pressure for which pods wait.
    pressure_asks: u32,
    unread: UnreadPods,
    /// Pods for which the Node is being fetched; `None` while it is not.
    fetching_node: Option<BTreeSet<PodUid>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    workers: bool,
    statuses: bool,
}

impl PodManager {
    /// An incarnation that has heard nothing yet.
    pub fn new(deps: PodManagerDeps) -> Self {
        let mut known = ReportedFacts::new(deps.node.is_none(), deps.api.is_some());
        known.awaits_pressure = true;
        Self {
            node: deps.config.node.clone(),
            node_uid: None,
            sources: Sources::default(),
            decisions: Decisions::default(),
            known,
            reports: Followed::default(),
            mirrors: Mirrors::default(),
            heard: Heard::default(),
            told: Told::new(0, &deps),
            duplicates: BTreeSet::new(),
            waiting: 0,
            rounds: 0,
            asking_runtime: false,
            pressure_asks: 0,
            unread: UnreadPods::default(),
            fetching_node: None,
            deps,
        }
    }

    /// Whether enough is known of earlier decisions to decide about new pods.
    fn may_decide(&self) -> bool {
        self.heard == Heard { workers: true, statuses: true } && self.known.may_tell_what_is_here()
    }

    /// Whether a pod that is absent counts as removed: every source has been heard, and the runtime, without
    /// which most pods wait.
    fn has_decided_all(&self) -> bool {
        self.may_decide()
            && self.known.has_heard_runtime()
            && self.sources.heard_all(&self.deps.config.sources)
    }

    /// Decides anew about every pod, and tells the observers.
    fn decide(&mut self, ctx: &mut Ctx<Self>) {
        if !self.may_decide() {
            return;
        }
        self.rounds += 1;
        let all = self.has_decided_all();
        self.await_unread(all, ctx);
        let merged = self.sources.merge(|uid| self.decisions.has_admitted(uid, &self.known));
        self.decisions.leave_alone(ctx.quarantined());
        let mut outcome = self.decisions.decide(&merged.candidates, all, &mut self.known, &self.node);
        self.say_duplicates(&merged.duplicates);
        self.say(&outcome);
        for victim in &outcome.victims {
            blame::step(&victim.pod.uid, || self.preempt(victim, ctx));
        }
        if outcome.ask_runtime {
            self.ask_runtime(ctx);
        }
        if outcome.ask_pressure {
            self.ask_for_pressure(ctx);
        }
        self.fetch_node(std::mem::take(&mut outcome.ask_node), ctx);
        self.waiting = outcome.waiting;
        self.publish(outcome, ctx);
        self.mirror(ctx);
    }

    /// A pod of the API server has changed, come or gone. The work is that of one pod as long as none waits for anything.
    fn api_pod_changed(&mut self, uid: &PodUid, before: Option<&SourcePod>, ctx: &mut Ctx<Self>) {
        let now = self.sources.one_of_api(uid).cloned();
        let mirrors = [before, now.as_ref()].map(|pod| pod.is_some_and(|pod| is_mirror(&pod.pod)));
        if mirrors.contains(&true) {
            self.mirrors.changed(before.map(|pod| &pod.pod), now.as_ref().map(|pod| &pod.pod));
        }
        if !self.may_decide() {
            return;
        }
        if before.is_none() && now.is_none() && self.sources.is_unread(uid) && self.publish_unread(uid, ctx) {
            return;
        }
        match (before.is_some(), now.is_some(), mirrors) {
            // It is no pod of its own.
            (_, true, [true, true]) | (true, false, [true, _]) | (false, true, [_, true]) => {
                self.tell_mirrors(ctx);
                self.mirror(ctx);
            }
            (_, _, [false, false])
                if !self.sources.is_unread(uid) && self.decide_again(uid, before, now, ctx) => {}
            _ => self.decide(ctx),
        }
    }

    /// Decides about one pod of the API server, whether that is enough.
    fn decide_again(
        &mut self,
        uid: &PodUid,
        before: Option<&SourcePod>,
        now: Option<SourcePod>,
        ctx: &mut Ctx<Self>,
    ) -> bool {
        // Others that are left out for their names are none of this pod's matter.
        let is_alone = !self.duplicates.contains(uid) && self.sources.has_own_name(before, now.as_ref());
        if self.waiting > 0 || !is_alone || !self.has_decided_all() {
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
        let is_new = self.told.get(uid).is_none();
        let outcome = match is_new {
            true => self.decisions.decide_new(&candidate, &mut self.known, &self.node),
            false => self.decisions.decide_again(&candidate, &mut self.known, &self.node),
        };
        let Some(outcome) = outcome else { return false };
        self.say(&outcome);
        for pod in outcome.pods.into_values() {
            self.publish_one(pod, ctx);
        }
        if is_new {
            self.count(ctx);
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

    /// How many pods no worker runs: refused for good, or waiting for a kubelet that can run them.
    fn refused(&self, for_good: bool) -> usize {
        let refused = self.told.pods().filter_map(|(_, pod)| pod.rejected.as_ref());
        refused.filter(|why| why.is_final() == for_good).count()
    }

    /// Records an event for each new duplicate.
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
        let why = Rejection::new(PREEMPTING, preemption::MESSAGE);
        // Refused or lost: it is told again until the pod has ended.
        self.deps.evict.tell_level(EvictPod { uid: uid.clone(), grace_seconds: None, why });
    }

    fn evict_again(&self, ctx: &mut Ctx<Self>) {
        let victims = self.decisions.victims();
        for uid in &victims {
            blame::step(uid, || self.evict(uid));
        }
        if !victims.is_empty() {
            ctx.set_timer(Timer::EvictAgain, EVICT_AGAIN);
        }
    }

    /// A preempted pod takes longer to end than it may (row 4.6). Its end goes on; the pods that wait for it
    /// wait no longer.
    fn exceeded(&mut self, pod: &PodRef, ctx: &mut Ctx<Self>) {
        if self.decisions.victims().contains(&pod.uid) {
            self.warn(pod, EXCEEDED_GRACE_PERIOD, EXCEEDED_GRACE_PERIOD_MESSAGE);
            self.decisions.give_up(&pod.uid);
            self.decide(ctx);
        }
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
        match std::mem::replace(&mut self.heard.statuses, true) {
            false => self.decisions.restore(&mut self.known, &statuses),
            true => self.decisions.restore_unheard(&mut self.known, &statuses),
        }
        self.decide(ctx);
    }

    fn ask_runtime(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.asking_runtime, true) {
            return;
        }
        let asked = self.deps.held_pods.ask(GetHeldPods, ASK_DEADLINE);
        ctx.effect("ask runtime", None, asked, |actor, answer, ctx| {
            // The timer asks again if pods still wait then; otherwise the next decision that needs it asks.
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
    /// Ask the pool of workers again.
    AskWorkers,
    /// Ask StatusManager again.
    AskStatuses,
    /// The runtime may be asked again, and is asked if it has not answered yet.
    AskRuntime,
    /// Ask NodeStatus for the Node again.
    AskForNode,
    /// Ask EvictionManager for the pressure again.
    AskForPressure,
    /// New pods wait no longer for those that cannot be read.
    UnreadPods,
    /// Tell the workers again to end the preempted pods.
    EvictAgain,
    /// This preempted pod should have ended by now.
    Exceeded(PodRef),
    /// The mirror pod of this full name may be tried again.
    Mirror(String),
    /// The API server's watch has had time to tell of the mirror pod of this full name, which was created.
    MirrorMade(String),
    /// Tell followers what they are owed of the desired pods, or a digest of them.
    Tell,
    /// Tell StatusManager the same.
    TellObjects,
    /// Tell StatusManager the mirrors again.
    TellMirrors,
    /// Count the pods that are not over.
    Count,
}

impl Actor for PodManager {
    type Context = Ctx<Self>;
}

impl Subsystem for PodManager {
    const NAME: &'static str = pod_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.told = Told::new(ctx.incarnation(), &self.deps);
        self.ask_workers(ctx);
        self.deps.reports.tell_level(ResendReports { receiver: Self::NAME });
        self.ask_statuses(ctx);
        self.ask_runtime(ctx);
        self.deps.sources.tell_level(ResendPods);
        self.ask_for_node(ctx);
        if ctx.incarnation() > 1 {
            self.deps.observed.tell_level(ResendObserved { receiver: Self::NAME });
            self.deps.pressure.tell_level(ResendPressure { receiver: Self::NAME });
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::AskWorkers => self.ask_workers(ctx),
            Timer::AskStatuses => self.ask_statuses(ctx),
            Timer::AskForNode => self.ask_for_node(ctx),
            Timer::AskForPressure => self.ask_for_pressure_again(ctx),
            Timer::UnreadPods => self.await_no_longer(ctx),
            Timer::AskRuntime => {
                self.asking_runtime = false;
                if !self.known.has_heard_runtime() {
                    self.ask_runtime(ctx);
                } else if self.waiting > 0 {
                    self.decide(ctx);
                }
            }
            Timer::EvictAgain => self.evict_again(ctx),
            Timer::Tell => self.told.pods.due(ctx),
            Timer::TellObjects => self.told.objects.due(ctx),
            Timer::TellMirrors => self.told.mirrors.due(ctx),
            Timer::Count => self.count_pods(),
            Timer::Exceeded(pod) => self.exceeded(&pod, ctx),
            Timer::Mirror(name) => {
                self.mirrors.done(&name);
                self.mirror(ctx);
            }
            Timer::MirrorMade(name) => self.see_made(&name, ctx),
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Exceeded(pod) => Some(pod.uid.clone()),
            Timer::AskWorkers
            | Timer::AskStatuses
            | Timer::AskRuntime
            | Timer::AskForNode
            | Timer::AskForPressure
            | Timer::UnreadPods
            | Timer::EvictAgain
            | Timer::Tell
            | Timer::TellObjects
            | Timer::TellMirrors
            | Timer::Count
            | Timer::Mirror(_)
            | Timer::MirrorMade(_) => None,
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.catch_up(pod);
        if self.decisions.is_unheard(pod) {
            // What was answered while it was left alone is not that nothing is known of it.
            self.ask_statuses(ctx);
        }
        self.decide(ctx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.told.len(),
            "rejected": self.refused(true),
            "unsupported": self.refused(false),
            "waiting": self.waiting,
            "rounds": self.rounds,
            "preempting": self.decisions.victims().len(),
            "sourcesReady": self.has_decided_all(),
        })
    }
}

impl Handler<PodsChanged> for PodManager {
    type Result = ();
    fn handle(&mut self, changed: PodsChanged, ctx: &mut Ctx<Self>) {
        if self.sources.set(changed.source, changed.pods) {
            self.decide(ctx);
        }
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

impl Handler<RuntimeObserved> for PodManager {
    type Result = ();
    fn handle(&mut self, RuntimeObserved(health): RuntimeObserved, ctx: &mut Ctx<Self>) {
        // A runtime that does not answer has no name here, and its abilities are unknown.
        let told = (!health.name.is_empty()).then_some(health.supplemental_groups_policy);
        if told.is_some() && self.known.strict_groups != told {
            self.known.strict_groups = told;
            if self.waiting > 0 {
                self.decide(ctx);
            }
        }
    }
}

impl Handler<ResendDesired> for PodManager {
    type Result = ();
    fn handle(&mut self, ask: ResendDesired, ctx: &mut Ctx<Self>) {
        self.tell_all_to(ask.receiver, ctx);
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
