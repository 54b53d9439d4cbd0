//! PodManager alone: sources name pods, the pool, StatusManager and Pleg answer for the past, and PodManager
//! tells the desired pods.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::eviction_manager::ResendPressure;
use messages::facts::{
    DesiredPod, DesiredPodsChanged, NodeObserved, NodeResourcesConfigured, Pressure, PressureObserved,
    Source, SourcePod, WorkerState,
};
use messages::node_status::ResendNode;
use messages::pleg::{GetHeldPods, ResendObserved};
use messages::pod_manager::{ApiPodsChanged, PodsChanged, ResendDesired};
use messages::pod_set::{GonePod, PodSetUpdate};
use messages::pod_sources::ResendPods;
use messages::pod_worker::{EvictPod, GetWorkers, ResendReports};
use messages::runtime::HeldPod;
use messages::status_manager::{GetKnownStatuses, MirrorPods};
use messages::supervision::Fault as ActorFault;
use pod_manager::admission::NodeView;
use pod_manager::{PodManager, PodManagerConfig, PodManagerDeps, PodManagerMetrics};
use pod_rules::reasons::REJECTED_PREFIX;
use pod_set::PodSet;
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use stage::{Neighbour, Reports, Stage, alone, api_pod, pod, report, uid};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    api: FakeApi,
    pool: Neighbour<DesiredPodsChanged>,
    probes: Neighbour<DesiredPodsChanged>,
    status: Neighbour<DesiredPodsChanged>,
    sources: Neighbour<ResendPods>,
    workers: Neighbour<GetWorkers>,
    reports: Neighbour<ResendReports>,
    statuses: Neighbour<GetKnownStatuses>,
    held: Neighbour<GetHeldPods>,
    observed: Neighbour<ResendObserved>,
    pressure: Neighbour<ResendPressure>,
    node: Neighbour<ResendNode>,
    configuration: Neighbour<ResendConfiguration>,
    evict: Neighbour<EvictPod>,
    mirrors: Neighbour<MirrorPods>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new(stage: &Stage<'_>) -> Self {
        Self {
            api: FakeApi::new(stage.fakes.clock.clone()),
            pool: Neighbour::new("PodWorkerPool"),
            probes: Neighbour::new("ProbeManager"),
            status: Neighbour::new("StatusManager"),
            sources: Neighbour::new("PodSources"),
            workers: Neighbour::answering("PodWorkerPool", |_| BTreeMap::new()),
            reports: Neighbour::new("PodWorkerPool"),
            statuses: Neighbour::answering("StatusManager", |_| BTreeMap::new()),
            held: Neighbour::answering("Pleg", |_| Arc::default()),
            observed: Neighbour::new("Pleg"),
            pressure: Neighbour::new("EvictionManager"),
            node: Neighbour::new("NodeStatus"),
            configuration: Neighbour::new("ConfigManager"),
            evict: Neighbour::new("PodWorkerPool"),
            mirrors: Neighbour::new("StatusManager"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<PodManager> {
        stage.start(self.deps(), PodManager::new)
    }

    fn deps(&self) -> PodManagerDeps {
        PodManagerDeps {
            config: PodManagerConfig {
                sources: vec![Source::File, Source::Api],
                node: NodeView { name: "node".to_owned(), pods_max: 110, ..NodeView::default() },
            },
            observers: vec![self.pool.address(), self.probes.address()],
            status_observer: self.status.address(),
            sources: self.sources.address(),
            workers: self.workers.asked(),
            reports: self.reports.address(),
            statuses: self.statuses.asked(),
            held_pods: self.held.asked(),
            observed: self.observed.address(),
            pressure: self.pressure.address(),
            node: Some(self.node.address()),
            configuration: self.configuration.address(),
            evict: self.evict.address(),
            mirrors: self.mirrors.address(),
            api: Some(Arc::new(self.api.client(&Io::current()))),
            events: self.events.address(),
            metrics: PodManagerMetrics::new().unwrap(),
        }
    }
}

/// The file source names `count` pods, the API server none.
fn tell_pods(actor: &Supervised<PodManager>, count: usize) {
    let pods = (0..count).map(|number| from_source(pod(number).pod.clone()));
    actor.address().tell(PodsChanged { source: Source::File, pods: Arc::new(pods.collect()) }).unwrap();
    actor.address().tell(ApiPodsChanged(pod_set::snapshot(1, [], true))).unwrap();
}

/// The Node as the API server has it.
fn node(api: &FakeApi) -> NodeObserved {
    let node = serde_json::json!({ "metadata": { "name": "node" } });
    NodeObserved(Some(Arc::new(api.put::<Node>(&serde_json::from_value(node).unwrap()))))
}

/// How many pods an observer knows of, and whether absence means removal to it; nothing before it has heard of any.
fn told(neighbour: &Neighbour<DesiredPodsChanged>) -> Option<(usize, bool)> {
    let set = heard(neighbour);
    set.is_known().then(|| (set.len(), set.is_complete()))
}

fn heard(neighbour: &Neighbour<DesiredPodsChanged>) -> PodSet<Arc<DesiredPod>> {
    let mut set = PodSet::default();
    for DesiredPodsChanged(update) in neighbour.heard() {
        set.take(update);
    }
    set
}

fn from_source(pod: Arc<Pod>) -> SourcePod {
    SourcePod { pod, refused: None, made_anew: None }
}

/// The pod, with the name of another one.
fn named(pod: &DesiredPod, other: &DesiredPod) -> SourcePod {
    let mut pod = (*pod.pod).clone();
    pod.metadata.name = other.pod.metadata.name.clone();
    from_source(Arc::new(pod))
}

#[test]
fn pods_are_desired_once_the_past_is_known() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.held.fall_silent();
        let actor = near.start(stage);
        stage
            .until("the past to be asked for", || near.statuses.count() == 1 && near.workers.count() == 1)
            .await;
        assert_eq!((near.sources.count(), near.node.count() > 0), (1, true));
        assert_eq!(
            (near.observed.count(), near.pressure.count()),
            (0, 0),
            "at a first start all tell of themselves"
        );
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 2);
        stage.pass(4 * SECOND).await;
        assert_eq!(told(&near.pool), None, "the runtime has not told which pods it has");
        near.held.answer(|_| Arc::default());
        stage.until("the pods to be desired", || told(&near.pool) == Some((2, true))).await;
        assert_eq!([&near.probes, &near.status].map(told), [Some((2, true)); 2], "every observer is told");
        stage.until("the mirrors", || near.api.list::<Pod>().len() == 2).await;
        assert_eq!((near.evict.count(), near.events.count()), (0, 0));
    });
}

#[test]
fn a_new_incarnation_asks_for_everything_and_removes_nothing() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 2);
        stage.until("the pods to be desired", || told(&near.pool) == Some((2, true))).await;
        stage.pass(30 * SECOND).await;
        near.pool.take();
        near.node.take();
        stage.crash::<PodManager>().await;
        stage.until("the sources to be asked", || near.sources.count() == 2).await;
        assert_eq!((near.workers.count(), near.statuses.count()), (2, 2));
        assert_eq!((near.observed.count(), near.pressure.count(), near.node.count() > 0), (1, 1, true));
        actor.address().tell(ResendDesired { receiver: "PodWorkerPool" }).unwrap();
        stage.pass(10 * SECOND).await;
        assert!(told(&near.pool).is_none_or(|(_, is_complete)| !is_complete), "absence means nothing yet");
        tell_pods(&actor, 2);
        stage.until("the pods to be desired", || told(&near.pool) == Some((2, true))).await;
        stage.pass(30 * SECOND).await;
        assert_eq!(near.api.count(Verb::Delete, "pods"), 0, "mirrors stay");
    });
}

/// No static pod, and the first pod of the API server.
fn tell_api_pod(near: &Neighbours, actor: &Supervised<PodManager>) {
    actor.address().tell(node(&near.api)).unwrap();
    actor.address().tell(PodsChanged { source: Source::File, pods: Arc::default() }).unwrap();
    let pods = [(uid(0), from_source(api_pod(0).pod.clone()))];
    actor.address().tell(ApiPodsChanged(pod_set::snapshot(1, pods, true))).unwrap();
}

#[test]
fn a_new_pod_is_not_admitted_before_it_is_known_what_the_node_runs_out_of() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_api_pod(&near, &actor);
        stage.until("the pressure to be asked for", || near.pressure.count() == 1).await;
        stage.until("it to be asked for again", || near.pressure.count() == 2).await;
        assert_eq!(told(&near.pool), Some((0, true)), "the pod waits");
        let pressure = Pressure { disk: true, ..Pressure::default() };
        actor.address().tell(PressureObserved(pressure)).unwrap();
        stage.until("the decision", || told(&near.pool) == Some((1, true))).await;
        let refused = heard(&near.pool).get(&uid(0)).and_then(|pod| pod.rejected.clone());
        assert_eq!(refused.map(|why| why.reason).as_deref(), Some("Evicted"));
        stage.pass(10 * SECOND).await;
        assert_eq!(near.pressure.count(), 2);
    });
}

#[test]
fn a_node_of_which_no_pressure_is_known_takes_pods_after_some_seconds() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.pressure.refuse();
        let actor = near.start(stage);
        tell_api_pod(&near, &actor);
        stage.pass(4 * SECOND).await;
        assert_eq!(told(&near.pool), Some((0, true)));
        stage.pass(2 * SECOND).await;
        let admitted = heard(&near.pool).get(&uid(0)).is_some_and(|pod| pod.rejected.is_none());
        assert!(admitted, "EvictionManager may be down for long");
        assert_eq!(near.pressure.refused().len(), 5);
    });
}

/// A node with room for one pod, whose runtime holds the API server's first pod, of which PodSources has told only that it cannot
/// read it yet; and a second one, which is new.
fn with_an_unread_pod(
    near: &Neighbours,
    stage: &Stage<'_>,
) -> (Supervised<PodManager>, pod_set::Journal<SourcePod>) {
    let held = HeldPod { pod: api_pod(0).pod_ref.clone(), source: Some(Source::Api) };
    near.held.answer(move |_| Arc::new(BTreeMap::from([(uid(0), held.clone())])));
    let mut deps = near.deps();
    deps.config.node.pods_max = 1;
    let actor = stage.start(deps, PodManager::new);
    actor.address().tell(node(&near.api)).unwrap();
    actor.address().tell(PressureObserved::default()).unwrap();
    actor.address().tell(PodsChanged { source: Source::File, pods: Arc::default() }).unwrap();
    let mut journal = pod_set::Journal::new(1);
    journal.unread(&uid(0));
    journal.put(&uid(1), from_source(api_pod(1).pod.clone()));
    journal.completed();
    actor.address().tell(ApiPodsChanged(journal.snapshot())).unwrap();
    (actor, journal)
}

#[test]
fn a_new_pod_takes_no_place_of_one_that_runs_and_cannot_be_read_yet() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let (actor, mut journal) = with_an_unread_pod(&near, stage);
        stage.pass(3 * SECOND).await;
        assert_eq!(told(&near.pool), Some((0, true)), "the new pod waits");
        let read = journal.put(&uid(0), from_source(api_pod(0).pod.clone()));
        actor.address().tell(ApiPodsChanged(read)).unwrap();
        stage.until("the decisions", || told(&near.pool) == Some((2, true))).await;
        let set = heard(&near.pool);
        let is_refused = [0, 1].map(|number| set.get(&uid(number)).is_some_and(|pod| pod.rejected.is_some()));
        assert_eq!(is_refused, [false, true]);
    });
}

#[test]
fn new_pods_wait_some_seconds_for_one_that_runs_and_cannot_be_read() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let (_actor, _journal) = with_an_unread_pod(&near, stage);
        stage.pass(10 * SECOND).await;
        assert_eq!(told(&near.pool), Some((1, true)));
        assert!(heard(&near.pool).get(&uid(1)).is_some_and(|pod| pod.rejected.is_none()));
    });
}

#[test]
fn a_node_that_is_configured_for_fewer_pods_refuses_further_ones_and_ends_none() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        actor.address().tell(PressureObserved::default()).unwrap();
        tell_pods(&actor, 2);
        stage.until("the pods to be desired", || told(&near.pool) == Some((2, true))).await;
        let one: BTreeMap<String, Quantity> = [("pods".to_owned(), Quantity::decimal(1))].into();
        let settings = Arc::new(NodeResources { capacity: one.clone(), allocatable: one });
        actor.address().tell(NodeResourcesConfigured { settings }).unwrap();
        tell_pods(&actor, 3);
        stage.until("the third pod to be judged", || told(&near.pool) == Some((3, true))).await;
        let set = heard(&near.pool);
        let refused =
            |number| set.get(&uid(number)).and_then(|pod| pod.rejected.clone()).map(|why| why.reason);
        // A static pod is critical, and of no other could its place be had.
        assert_eq!([0, 1, 2].map(refused), [None, None, Some("UnexpectedAdmissionError".to_owned())]);
        assert_eq!((near.evict.count(), near.configuration.count()), (0, 0));
        stage.crash::<PodManager>().await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
    });
}

#[test]
fn a_pool_that_refuses_or_loses_the_question_is_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.workers.refuse();
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 1);
        stage.pass(3 * SECOND).await;
        assert!(near.workers.refused().len() >= 3, "every half second: {}", near.workers.refused().len());
        near.workers.lose_answers();
        stage.pass(3 * SECOND).await;
        assert!(near.workers.count() >= 3);
        assert_eq!(told(&near.pool), None);
        near.workers.answer(|_| BTreeMap::new());
        stage.until("the pods to be desired", || told(&near.pool) == Some((1, true))).await;
    });
}

#[test]
fn a_worker_that_came_to_its_end_while_its_pod_was_left_alone_keeps_no_name() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let old = pod(1);
        let ends = Arc::new(report(&old.pod_ref, WorkerState::Terminating));
        let of = old.pod_ref.uid.clone();
        near.workers.answer(move |_| BTreeMap::from([(of.clone(), ends.clone())]));
        let actor = near.start(stage);
        let bad = old.pod_ref.uid.clone();
        stage.inject::<PodManager>(ActorFault::PoisonPod { pod: bad.clone(), times: 3 });
        while !stage.actor::<PodManager>().await.quarantined.contains_key(&bad) {
            stage.pass(Duration::from_millis(100)).await;
        }
        // Another pool has begun, which has no such worker.
        actor.address().tell(Reports::complete().all()).unwrap();
        let new = named(&pod(2), &old);
        actor.address().tell(PodsChanged { source: Source::File, pods: Arc::new(vec![new]) }).unwrap();
        actor.address().tell(ApiPodsChanged(pod_set::snapshot(1, [], true))).unwrap();
        stage.until("the sources to be heard", || told(&near.pool) == Some((0, true))).await;
        stage.pass(5 * SECOND).await;
        assert_eq!(told(&near.pool), Some((0, true)), "the name is taken as far as is known");
        stage.until("the new pod to have the name", || told(&near.pool) == Some((1, true))).await;
    });
}

#[test]
fn an_answer_that_came_while_its_pod_was_left_alone_is_asked_for_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let bad = pod(0).pod_ref.uid.clone();
        let refused = Arc::new(PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some("OutOfcpu".to_owned()),
            message: Some(format!("{REJECTED_PREFIX}there was no room")),
            ..PodStatus::default()
        });
        let of = bad.clone();
        near.statuses.answer(move |_| BTreeMap::from([(of.clone(), refused.clone())]));
        let actor = near.start(stage);
        // The fourth time the pod is in quarantine, and its step is left out.
        stage.inject::<PodManager>(ActorFault::PoisonPod { pod: bad.clone(), times: 4 });
        while !stage.actor::<PodManager>().await.quarantined.contains_key(&bad) {
            stage.pass(Duration::from_millis(100)).await;
        }
        stage.pass(SECOND).await;
        let asked = near.statuses.count();
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 1);
        stage.pass(5 * SECOND).await;
        assert!(!heard(&near.pool).contains(&bad), "nothing is decided about it");
        stage.until("the decision", || heard(&near.pool).contains(&bad)).await;
        assert_eq!(near.statuses.count(), asked + 1);
        let why = heard(&near.pool).get(&bad).and_then(|pod| pod.rejected.clone());
        assert_eq!(why.map(|why| why.reason).as_deref(), Some("OutOfcpu"), "it was refused and stays so");
    });
}

#[test]
fn a_pod_that_is_left_out_for_its_name_has_no_others_decided_about_with_each_change() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        let statics = vec![from_source(pod(0).pod.clone()), named(&pod(1), &pod(0))];
        actor.address().tell(PodsChanged { source: Source::File, pods: Arc::new(statics) }).unwrap();
        let mut journal = pod_set::Journal::new(1);
        for number in 2..5 {
            journal.put(&uid(number), from_source(api_pod(number).pod.clone()));
        }
        journal.completed();
        let tell = |update| actor.address().tell(ApiPodsChanged(update)).unwrap();
        tell(journal.snapshot());
        stage.until("the pods to be desired", || told(&near.pool) == Some((4, true))).await;
        let rounds = async || stage.observed::<PodManager>().await["rounds"].as_u64().unwrap();
        let before = rounds().await;
        let mut changed = (*api_pod(2).pod).clone();
        changed.metadata.labels = None;
        tell(journal.put(&uid(2), from_source(Arc::new(changed.clone()))));
        tell(journal.put(&uid(5), from_source(api_pod(5).pod.clone())));
        stage.until("the new pod", || told(&near.pool) == Some((5, true))).await;
        tell(journal.remove(&uid(3), GonePod::default()).unwrap());
        stage.until("the end of a pod", || told(&near.pool) == Some((4, true))).await;
        assert_eq!(heard(&near.pool).get(&uid(2)).unwrap().pod.metadata, changed.metadata);
        assert_eq!(rounds().await, before, "each is decided about alone");
        tell(journal.unread(&uid(7)).unwrap());
        let is_unread = || [&near.pool, &near.status].iter().all(|one| heard(one).is_unread(&uid(7)));
        stage.until("a pod that cannot be read", is_unread).await;
        tell(journal.remove(&uid(7), GonePod::default()).unwrap());
        stage.until("its end", || !heard(&near.pool).is_unread(&uid(7))).await;
        assert_eq!(rounds().await, before, "of one of which nothing is known nothing is decided");
        // One that has the name of another pod of the API server waits until that has gone.
        tell(journal.put(&uid(6), named(&api_pod(6), &api_pod(5))));
        stage.pass(SECOND).await;
        assert_eq!((told(&near.pool), rounds().await), (Some((4, true)), before + 1));
        tell(journal.remove(&uid(5), GonePod::default()).unwrap());
        stage.until("the name to be free", || heard(&near.pool).contains(&uid(6))).await;
        assert_eq!(rounds().await, before + 2);
    });
}

#[test]
fn an_observer_whose_mailbox_is_full_is_told_when_it_asks_or_has_room() {
    for asks in [true, false] {
        alone(async move |stage| {
            let near = Neighbours::new(stage);
            near.probes.refuse();
            let actor = near.start(stage);
            tell_pods(&actor, 1);
            stage.until("the pods to be desired", || told(&near.pool) == Some((1, true))).await;
            near.probes.fall_silent();
            let heard = near.pool.count();
            if asks {
                actor.address().tell(ResendDesired { receiver: "ProbeManager" }).unwrap();
            }
            stage.until("it to be told", || told(&near.probes) == Some((1, true))).await;
            let all = |told: &DesiredPodsChanged| matches!(told.0, PodSetUpdate::All(_));
            let again = near.pool.heard().split_off(heard).iter().filter(|told| all(told)).count();
            assert_eq!(again, 0, "no other actor is told again");
        });
    }
}

#[test]
fn a_mirror_whose_namespace_is_gone_is_tried_more_and_more_rarely() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::Create, "pods"), usize::MAX, Fault::code(404));
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 1);
        stage.until("the try", || near.api.count(Verb::Create, "pods") == 1).await;
        stage.pass(600 * SECOND).await;
        // After 10, 30, 70 and 150 s, and then every 80 s.
        assert_eq!(near.api.count(Verb::Create, "pods"), 10);
    });
}

#[test]
fn a_mirror_that_the_server_fails_to_make_is_made_ten_seconds_later() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.api.fault(On::call(Verb::Create, "pods"), 1, Fault::code(500));
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 1);
        stage.until("the try", || near.api.count(Verb::Create, "pods") == 1).await;
        assert_eq!(told(&near.pool), Some((1, true)), "the pod does not wait for its mirror");
        stage.pass(9 * SECOND).await;
        assert_eq!(near.api.count(Verb::Create, "pods"), 1);
        stage.until("the mirror", || near.api.list::<Pod>().len() == 1).await;
        stage
            .until("StatusManager to be told", || near.mirrors.last().is_some_and(|m| m.pods.len() == 1))
            .await;
    });
}

#[test]
fn a_mirror_that_is_gone_before_the_watch_tells_of_it_is_made_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        actor.address().tell(node(&near.api)).unwrap();
        tell_pods(&actor, 1);
        stage.until("the mirror", || near.api.list::<Pod>().len() == 1).await;
        assert!(near.api.delete::<Pod>(Some("default"), &pod(0).pod_ref.name, Some(0)));
        assert_eq!(near.api.list::<Pod>().len(), 0);
        stage.pass(30 * SECOND).await;
        assert_eq!(near.api.count(Verb::Create, "pods"), 1, "the watch may be late");
        stage.pass(40 * SECOND).await;
        assert_eq!((near.api.list::<Pod>().len(), near.api.count(Verb::Create, "pods")), (1, 2));
    });
}
