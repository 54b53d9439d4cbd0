//! EvictionManager alone: it measures a fake node, tells its pressure and has pods evicted.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_node::stats::{FakeStats, PodUsage};
use eviction_manager::{
    Backends, EvictionConfig, EvictionManager, EvictionManagerDeps, EvictionMetrics, Thresholds,
};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::{RecordAnnotatedEvent, RecordEvent};
use messages::eviction_manager::{EvictionConfigured, EvictionSettings, ResendPressure};
use messages::facts::{DesiredPod, Pressure, PressureObserved, WorkerState};
use messages::garbage_collector::RemoveDeadContainers;
use messages::image_manager::DeleteUnusedImages;
use messages::pod_manager::{GetPressure, ResendDesired};
use messages::pod_worker::{EvictPod, ResendReports};
use messages::supervision::Fault;
use stage::{Neighbour, Reports, Stage, alone, api_pod, desired_of, reported};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

struct Neighbours {
    configuration: Neighbour<ResendConfiguration>,
    stats: FakeStats,
    manager_pressure: Neighbour<GetPressure>,
    manager: Neighbour<ResendDesired>,
    reports: Neighbour<ResendReports>,
    node_status: Neighbour<PressureObserved>,
    pool: Neighbour<EvictPod>,
    garbage: Neighbour<RemoveDeadContainers>,
    images: Neighbour<DeleteUnusedImages>,
    events: Neighbour<RecordEvent>,
    annotated: Neighbour<RecordAnnotatedEvent>,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            stats: FakeStats::default(),
            manager_pressure: Neighbour::answering("PodManager", |_| None),
            manager: Neighbour::new("PodManager"),
            reports: Neighbour::new("PodWorkerPool"),
            node_status: Neighbour::new("NodeStatus"),
            pool: Neighbour::new("PodWorkerPool"),
            garbage: Neighbour::answering("GarbageCollector", |_| ()),
            images: Neighbour::answering("ImageManager", |_| 0),
            configuration: Neighbour::new("ConfigManager"),
            events: Neighbour::new("EventRecorder"),
            annotated: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<EvictionManager> {
        stage.start(self.deps(stage), EvictionManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> EvictionManagerDeps {
        let fakes = &stage.fakes;
        let text = |(signal, value): (&str, &str)| (signal.to_owned(), value.to_owned());
        let thresholds = Thresholds {
            hard: &[("memory.available", "100Mi"), ("nodefs.available", "10%")].map(text).into(),
            soft: &BTreeMap::new(),
            soft_grace: &BTreeMap::new(),
            min_reclaim: &BTreeMap::new(),
            pods_enforced: false,
        };
        EvictionManagerDeps {
            config: Arc::new(EvictionConfig {
                thresholds: thresholds.parse().unwrap(),
                transition: 300 * SECOND,
                soft_grace_seconds_max: 0,
                local_storage: true,
            }),
            backends: Backends {
                stats: Arc::new(self.stats.clone()),
                runtime: fakes.operations.clone(),
                dirs: fakes.dirs.clone(),
                cgroups: fakes.cgroups.clone(),
                containers: self.garbage.asked(),
                images: self.images.asked(),
            },
            observers: vec![self.node_status.address()],
            pressure: self.manager_pressure.asked(),
            evict: self.pool.address(),
            manager: self.manager.address(),
            pool: self.reports.address(),
            configuration: self.configuration.address(),
            events: self.events.address(),
            annotated: self.annotated.address(),
            metrics: EvictionMetrics::new().unwrap(),
        }
    }

    /// The pressure that NodeStatus was last told.
    fn pressure(&self) -> Option<Pressure> {
        self.node_status.last().map(|told| told.0)
    }
}

/// Tells that one pod of the API server runs.
fn tell_facts(actor: &Supervised<EvictionManager>) {
    actor.address().tell(desired_of(&[api_pod(0)])).unwrap();
    tell_workers(actor, &[api_pod(0)]);
}

/// Tells that the workers of these pods run them, and that there are no others.
fn tell_workers(actor: &Supervised<EvictionManager>, pods: &[Arc<DesiredPod>]) {
    let reports = Reports::complete();
    pods.iter().for_each(|pod| drop(reports.of(pod, WorkerState::Syncing, false)));
    actor.address().tell(reports.all()).unwrap();
}

const LOW: Pressure = Pressure { memory: true, disk: false, pid: false };

#[test]
fn the_node_is_measured_and_its_pressure_told_when_it_changes() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the pressure to be told", || near.pressure() == Some(Pressure::default())).await;
        assert_eq!((near.manager_pressure.count(), near.manager.count(), near.reports.count()), (1, 1, 1));
        stage.pass(50 * SECOND).await;
        assert!((5..=7).contains(&near.stats.looks()), "every 10 s: {}", near.stats.looks());
        assert_eq!(near.node_status.count(), 1, "nothing new is nothing to tell");
        actor.address().tell(ResendPressure { receiver: "NodeStatus" }).unwrap();
        stage.until("it to be told again", || near.node_status.count() == 2).await;
        stage.pass(70 * SECOND).await;
        assert_eq!(near.node_status.count(), 3, "it may have been lost, and is told every minute");
    });
}

#[test]
fn a_new_incarnation_withdraws_no_pressure_that_was_told() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        stage.until("the pressure to be told", || near.node_status.count() == 1).await;
        near.manager_pressure.answer(|_| Some(LOW));
        near.node_status.take();
        stage.crash::<EvictionManager>().await;
        stage.until("PodManager to be asked", || near.manager_pressure.count() == 2).await;
        assert_eq!((near.manager.count(), near.reports.count()), (2, 2));
        stage.until("the pressure to be told", || near.pressure() == Some(LOW)).await;
        stage.pass(290 * SECOND).await;
        assert_eq!(near.pressure(), Some(LOW), "though memory is free: it holds for the time of transition");
        stage.pass(20 * SECOND).await;
        assert_eq!(near.pressure(), Some(Pressure::default()));
    });
}

/// Hard thresholds of memory, as ConfigManager tells them.
fn configured(memory: &[&str]) -> EvictionConfigured {
    let hard = memory.iter().map(|text| ("memory.available".to_owned(), (*text).to_owned()));
    let settings =
        EvictionSettings { hard: hard.collect(), transition: 60 * SECOND, ..EvictionSettings::default() };
    EvictionConfigured { settings: Arc::new(settings) }
}

#[test]
fn changed_thresholds_hold_from_the_next_measurement_on() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        near.stats.set_memory(500 * MIB);
        stage.pass(30 * SECOND).await;
        assert_eq!(near.pressure(), Some(Pressure::default()));
        actor.address().tell(configured(&["1Gi"])).unwrap();
        stage.until("the pressure to be told", || near.pressure() == Some(LOW)).await;
        actor.address().tell(configured(&["nonsense"])).unwrap();
        stage.pass(120 * SECOND).await;
        assert_eq!(near.pressure(), Some(LOW), "what cannot be used changes nothing");
        actor.address().tell(configured(&["200Mi"])).unwrap();
        stage.pass(90 * SECOND).await;
        assert_eq!(near.pressure(), Some(Pressure::default()), "after the time of transition");
    });
}

#[test]
fn a_node_that_gets_its_first_threshold_is_measured() {
    alone(async |stage| {
        let near = Neighbours::new();
        let mut deps = near.deps(stage);
        deps.config = Arc::new(EvictionConfig::default());
        let actor = stage.start(deps, EvictionManager::new);
        near.stats.set_memory(500 * MIB);
        stage.pass(30 * SECOND).await;
        assert_eq!((near.stats.looks(), near.configuration.count()), (0, 0));
        actor.address().tell(configured(&["1Gi"])).unwrap();
        stage.until("the pressure to be told", || near.pressure() == Some(LOW)).await;
        stage.crash::<EvictionManager>().await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
    });
}

#[test]
fn nothing_is_told_before_pod_manager_has_answered() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.manager_pressure.refuse();
        near.start(stage);
        stage.pass(3 * SECOND).await;
        assert!(near.manager_pressure.refused().len() >= 3, "it is asked twice a second");
        near.manager_pressure.lose_answers();
        stage.pass(3 * SECOND).await;
        assert!(near.manager_pressure.count() >= 3);
        assert_eq!(near.pressure(), None);
        near.manager_pressure.answer(|_| None);
        stage.until("the pressure to be told", || near.pressure().is_some()).await;
    });
}

#[test]
fn a_pod_ends_when_memory_runs_out_and_is_waited_for() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pressure to be told", || near.pressure().is_some()).await;
        near.stats.set_memory(50 * MIB);
        stage.until("the pod to be ended", || near.pool.count() == 1).await;
        let order = near.pool.last().unwrap();
        assert_eq!((order.uid, order.why.reason.as_str()), (api_pod(0).pod_ref.uid.clone(), "Evicted"));
        assert_eq!((near.pressure(), near.annotated.count()), (Some(LOW), 1));
        let looks = near.stats.looks();
        stage.pass(5 * SECOND).await;
        assert_eq!(near.stats.looks(), looks, "while it is waited for nothing is measured");
        actor.address().tell(reported(&api_pod(0), WorkerState::Terminated, true)).unwrap();
        stage.until("another look", || near.stats.looks() > looks).await;
    });
}

#[test]
fn an_order_that_is_lost_is_given_again_until_the_pod_has_ended() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        tell_facts(&actor);
        near.stats.set_memory(50 * MIB);
        stage.until("the pod to be ended", || near.pool.count() == 1).await;
        stage.pass(6 * SECOND).await;
        assert_eq!(near.pool.count(), 2, "the first order may be lost");
        let (first, again) = (near.pool.heard().remove(0), near.pool.last().unwrap());
        assert_eq!((again.uid, again.grace_seconds, again.why), (first.uid, first.grace_seconds, first.why));
        near.pool.refuse();
        stage.until("the order to be refused", || !near.pool.refused().is_empty()).await;
        near.pool.fall_silent();
        stage.pass(6 * SECOND).await;
        assert_eq!((near.pool.count(), near.annotated.count()), (3, 1), "it is one eviction");
        actor.address().tell(reported(&api_pod(0), WorkerState::Terminated, false)).unwrap();
        stage.pass(20 * SECOND).await;
        assert_eq!(near.pool.count(), 3, "it has ended");
    });
}

#[test]
fn a_pod_that_does_not_end_in_its_time_keeps_no_other_from_being_evicted() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let pods = [api_pod(0), api_pod(1)];
        actor.address().tell(desired_of(&pods)).unwrap();
        tell_workers(&actor, &pods);
        near.stats.set_memory(50 * MIB);
        let uids = pods.each_ref().map(|pod| pod.pod_ref.uid.clone());
        let told = |number: usize| near.pool.last().is_some_and(|order| order.uid == uids[number]);
        stage.until("the first pod to be ended", || told(0)).await;
        stage.pass(30 * SECOND).await;
        assert!(told(0), "it has its time");
        stage.until("the other pod to be ended", || told(1)).await;
        stage.pass(60 * SECOND).await;
        assert!(told(1), "both go on ending");
        stage.until("the first pod to be told again", || told(0)).await;
    });
}

#[test]
fn no_pod_ends_before_it_is_known_which_ones_end_already() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let pods = [api_pod(0), api_pod(1)];
        actor.address().tell(desired_of(&pods)).unwrap();
        actor.address().tell(reported(&pods[0], WorkerState::Syncing, false)).unwrap();
        near.stats.set_memory(50 * MIB);
        stage.until("the pressure to be told", || near.pressure() == Some(LOW)).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(near.pool.count(), 0, "the pool has yet to tell of the other");
        tell_workers(&actor, &pods);
        stage.until("a pod to be ended", || near.pool.count() == 1).await;
    });
}

#[test]
fn a_pool_that_refuses_to_end_a_pod_is_told_in_the_next_round() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.pool.refuse();
        let actor = near.start(stage);
        tell_facts(&actor);
        near.stats.set_memory(50 * MIB);
        stage.until("the refusal", || near.pool.refused().len() == 1).await;
        assert_eq!(near.annotated.count(), 0, "it is not said to be evicted");
        near.pool.fall_silent();
        stage.until("the order", || near.pool.count() == 1).await;
        assert_eq!(near.annotated.count(), 1);
    });
}

#[test]
fn a_pod_that_cannot_be_measured_for_its_panics_ends_before_its_neighbours() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let (poison, good) = (api_pod(1), api_pod(0));
        stage.expect_crashes();
        // The fourth panic comes after the first quarantine; the second one outlasts the next look.
        for wait in [SECOND, SECOND, 11 * SECOND, SECOND] {
            let tell = desired_of(&[good.clone(), poison.clone()]);
            let pod = poison.pod_ref.uid.clone();
            stage.tree.inject("EvictionManager", Fault::PoisonPod { pod, times: 1 }).unwrap();
            actor.address().tell(tell).unwrap();
            stage.pass(wait).await;
        }
        let left_alone = stage.actor::<EvictionManager>().await.quarantined;
        assert!(left_alone.contains_key(&poison.pod_ref.uid), "{left_alone:?}");
        actor.address().tell(desired_of(&[good.clone(), poison.clone()])).unwrap();
        tell_workers(&actor, &[good.clone(), poison.clone()]);
        let little = PodUsage { memory_bytes: Some(MIB), ..PodUsage::default() };
        near.stats.set_pod(good.pod_ref.uid.as_str(), little);
        near.stats.set_memory(50 * MIB);
        stage.until("a pod to be ended", || near.pool.count() == 1).await;
        assert_eq!(near.pool.last().unwrap().uid, poison.pod_ref.uid);
        let left_alone = stage.actor::<EvictionManager>().await.quarantined;
        assert!(left_alone.contains_key(&poison.pod_ref.uid), "while it is left alone");
    });
}

#[test]
fn what_nobody_needs_goes_before_a_pod_however_long_others_take() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.garbage.fall_silent();
        near.images.lose_answers();
        let actor = near.start(stage);
        tell_facts(&actor);
        near.stats.set_disk(1 << 30);
        stage.until("GarbageCollector to be asked", || near.garbage.count() == 1).await;
        stage.pass(100 * SECOND).await;
        assert_eq!((near.images.count(), near.pool.count()), (0, 0), "it has two minutes");
        stage.until("ImageManager to be asked", || near.images.count() == 1).await;
        stage.until("a pod to be ended for want of both", || near.pool.count() == 1).await;
        assert_eq!(near.events.heard().iter().filter(|e| &*e.reason == "EvictionThresholdMet").count(), 1);
    });
}

#[test]
fn a_runtime_that_does_not_tell_where_images_are_keeps_nobody_from_measuring() {
    alone(async |stage| {
        let near = Neighbours::new();
        stage.fakes.runtime.set_down(true);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the pressure to be told", || near.pressure().is_some()).await;
        let problems = stage.observed::<EvictionManager>().await["problems"].to_string();
        assert!(problems.contains("connection refused"), "{problems}");
        near.stats.set_memory(50 * MIB);
        stage.until("the pod to be ended", || near.pool.count() == 1).await;
    });
}
