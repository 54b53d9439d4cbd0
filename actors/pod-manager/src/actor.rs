//! The actor: what the sources say, merged and sent on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler, MessageResult};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{DesiredPod, DesiredPods, Source, WorkerReported};
use messages::pod_manager::{self, GetPods, PodsChanged, ResendDesired};
use messages::pod_sources::ResendPods;
use messages::pod_worker::GetWorkers;
use messages::{PodRef, PodUid};
use supervision::{Address, Ctx, Subsystem};

use crate::merge::{Merged, Sources};
use crate::metrics::PodManagerMetrics;

/// How long a restarted PodManager waits for the pool's answer before it asks again.
const WORKERS_DEADLINE: Duration = Duration::from_secs(5);

/// What PodManager goes by.
#[derive(Clone, Debug)]
pub struct PodManagerConfig {
    /// Every source that is configured; absence means removal only once all have been heard.
    pub sources: Vec<Source>,
    /// `maxPods`.
    pub pods_max: usize,
}

/// What PodManager is given.
#[derive(Clone)]
pub struct PodManagerDeps {
    /// Configuration.
    pub config: PodManagerConfig,
    /// Who is told of the desired pods.
    pub observers: Vec<Address<DesiredPods>>,
    /// Asked for its pods after a restart.
    pub sources: Address<ResendPods>,
    /// Asked which pods still have something on the node.
    pub workers: Address<GetWorkers>,
    /// Events.
    pub events: Address<RecordEvent>,
    /// Counts.
    pub metrics: PodManagerMetrics,
}

/// Desired state.
pub struct PodManager {
    deps: PodManagerDeps,
    sources: Sources,
    leaving: BTreeMap<PodUid, PodRef>,
    desired: Arc<BTreeMap<PodUid, Arc<DesiredPod>>>,
    said: BTreeSet<(PodUid, String)>,
    waiting: usize,
}

impl PodManager {
    /// An incarnation that has heard nobody.
    pub fn new(deps: PodManagerDeps) -> Self {
        Self {
            deps,
            sources: Sources::default(),
            leaving: BTreeMap::new(),
            desired: Arc::default(),
            said: BTreeSet::new(),
            waiting: 0,
        }
    }

    fn fact(&self) -> DesiredPods {
        DesiredPods {
            pods: self.desired.clone(),
            sources_ready: self.sources.heard_all(&self.deps.config.sources),
        }
    }

    fn tell(&self) {
        for observer in &self.deps.observers {
            // Refused: the observer asks for a resend when it is back.
            let _ = observer.tell(self.fact());
        }
    }

    fn merge(&mut self) {
        let running = |pod: &&Arc<DesiredPod>| pod.rejected.is_none();
        let admitted = self.desired.values().filter(running).map(|pod| pod.pod_ref.uid.clone());
        let admitted: BTreeSet<PodUid> = admitted.chain(self.leaving.keys().cloned()).collect();
        let merged = self.sources.merge(&self.leaving, &admitted, self.deps.config.pods_max);
        self.say(&merged);
        self.waiting = merged.waiting.len();
        self.desired = Arc::new(merged.pods);
        let statics = self.desired.values().filter(|pod| pod.source != Source::Api).count() as i64;
        self.deps.metrics.desired_pods.with_label_values(&["true"]).set(statics);
        self.deps.metrics.desired_pods.with_label_values(&["false"]).set(self.desired.len() as i64 - statics);
    }

    /// An event for each refusal and each duplicate, once.
    fn say(&mut self, merged: &Merged) {
        let mut said = BTreeSet::new();
        for pod in merged.pods.values() {
            let Some(refusal) = &pod.rejected else { continue };
            let once = (pod.pod_ref.uid.clone(), refusal.reason.clone());
            if !self.said.contains(&once) {
                self.deps.metrics.rejections.with_label_values(&[refusal.reason.as_str()]).inc();
                self.warn(&pod.pod_ref, &refusal.reason, &refusal.message);
            }
            said.insert(once);
        }
        for duplicate in &merged.duplicates {
            let once = (duplicate.pod.uid.clone(), "FailedValidation".to_owned());
            if !self.said.contains(&once) {
                let source = duplicate.source.as_str();
                let message = format!(
                    "Error validating pod {}.{} from {source}, ignoring: metadata.name: Duplicate value: {:?}",
                    duplicate.pod.name, duplicate.pod.namespace, duplicate.pod.name
                );
                self.warn(&duplicate.pod, "FailedValidation", &message);
            }
            said.insert(once);
        }
        self.said = said;
    }

    fn warn(&self, pod: &PodRef, reason: &str, message: &str) {
        let object = EventObject::Pod { pod: pod.clone(), field_path: Arc::from("") };
        let event = RecordEvent {
            object,
            event_type: EventType::Warning,
            reason: Arc::from(reason),
            message: Arc::from(message),
        };
        let _ = self.deps.events.tell(event);
    }

    fn ask_workers(&self, ctx: &mut Ctx<Self>) {
        let asked = self.deps.workers.ask(GetWorkers, WORKERS_DEADLINE);
        ctx.effect("ask workers", None, asked, |actor, answer, ctx| match answer {
            Ok(reports) => {
                let pods = reports.into_iter().filter(|(_, report)| !report.released);
                actor.leaving.extend(pods.map(|(uid, report)| (uid, report.pod.clone())));
                actor.merge();
                actor.tell();
            }
            Err(_) => ctx.set_timer(Timer::AskWorkers, WORKERS_DEADLINE),
        });
    }
}

/// PodManager's timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Ask the pool again.
    AskWorkers,
}

impl Actor for PodManager {
    type Context = Ctx<Self>;
}

impl Subsystem for PodManager {
    const NAME: &'static str = pod_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.ask_workers(ctx);
        let _ = self.deps.sources.tell(ResendPods);
        // With no source configured the empty set is complete at once.
        self.tell();
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::AskWorkers => self.ask_workers(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.desired.len(),
            "rejected": self.desired.values().filter(|pod| pod.rejected.is_some()).count(),
            "waitingForPredecessor": self.waiting,
            "sourcesReady": self.sources.heard_all(&self.deps.config.sources),
        })
    }
}

impl Handler<PodsChanged> for PodManager {
    type Result = ();
    fn handle(&mut self, changed: PodsChanged, _ctx: &mut Ctx<Self>) {
        self.sources.set(changed.source, changed.pods);
        self.merge();
        self.tell();
    }
}

impl Handler<WorkerReported> for PodManager {
    type Result = ();
    fn handle(&mut self, reported: WorkerReported, _ctx: &mut Ctx<Self>) {
        if !reported.report.released {
            self.leaving.insert(reported.uid, reported.report.pod.clone());
        } else if self.leaving.remove(&reported.uid).is_some() && self.waiting > 0 {
            self.merge();
            self.tell();
        }
    }
}

impl Handler<ResendDesired> for PodManager {
    type Result = ();
    fn handle(&mut self, _: ResendDesired, _ctx: &mut Ctx<Self>) {
        self.tell();
    }
}

impl Handler<GetPods> for PodManager {
    type Result = MessageResult<GetPods>;
    fn handle(&mut self, _: GetPods, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.fact())
    }
}
