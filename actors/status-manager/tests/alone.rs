//! StatusManager alone: the test tells it facts; it tells the API server and the disk, and asks for the facts that it
//! lacks.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_kube::fake::{FakeApi, Fault, On, Verb};
use bridge_metrics::Registry;
use k8s_openapi::api::core::v1::Pod;
use messages::event_recorder::RecordEvent;
use messages::facts::{DesiredPod, Rejection, RuntimeObserved, SeenPod, WorkerState};
use messages::node_status::ResendNode;
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendReports;
use messages::probe_manager::ResendVerdicts;
use messages::runtime::RuntimePod;
use messages::status_manager::{GetKnownStatuses, GetPodStatus};
use stage::{
    Looks, Neighbour, Reports, Stage, alone, api_pod, ask, desired_of, observed, reported, runtime_well, told,
};
use status_manager::{StatusManager, StatusManagerDeps, StatusMetrics};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    api: FakeApi,
    manager: Neighbour<ResendDesired>,
    pool: Neighbour<ResendReports>,
    pleg: Neighbour<ResendObserved>,
    touched: Neighbour<PodTouched>,
    probes: Neighbour<ResendVerdicts>,
    node: Neighbour<ResendNode>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    fn new(stage: &Stage<'_>) -> Self {
        let api = FakeApi::new(stage.fakes.clock.clone());
        api.put(&*api_pod(0).pod);
        Self {
            api,
            manager: Neighbour::new("PodManager"),
            pool: Neighbour::new("PodWorkerPool"),
            pleg: Neighbour::new("Pleg"),
            touched: Neighbour::new("Pleg"),
            probes: Neighbour::new("ProbeManager"),
            node: Neighbour::new("NodeStatus"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<StatusManager> {
        stage.start(self.deps(stage), StatusManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> StatusManagerDeps {
        StatusManagerDeps {
            host_ips: vec!["192.0.2.10".to_owned()],
            ready_to_start_condition: true,
            stop_signals: false,
            image_volume_digests: false,
            checkpoints: stage.fakes.checkpoints.clone(),
            clock: stage.fakes.clock.clone(),
            desired: self.manager.address(),
            reports: self.pool.address(),
            observed: self.pleg.address(),
            touched: self.touched.address(),
            verdicts: self.probes.address(),
            node: Some(self.node.address()),
            api: Some(Arc::new(self.api.client(&Io::current()))),
            events: self.events.address(),
            metrics: StatusMetrics::new().unwrap(),
        }
    }

    fn patches(&self) -> u64 {
        self.api.count(Verb::Patch, "pods/status")
    }

    /// The pod's phase as the API server has it.
    fn phase(&self) -> Option<String> {
        let pod = api_pod(0);
        let there = self.api.get::<Pod>(Some("default"), &pod.pod_ref.name).unwrap();
        there.status.and_then(|status| status.phase)
    }

    async fn until_running(&self, stage: &Stage<'_>) {
        stage.until("the API server to be told", || self.phase().as_deref() == Some("Running")).await;
    }
}

/// Tells every fact that StatusManager needs about a running pod of the API server.
fn tell_facts(actor: &Supervised<StatusManager>, pod: &Arc<DesiredPod>) {
    actor.address().tell(desired_of(std::slice::from_ref(pod))).unwrap();
    actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
    actor.address().tell(observed(pod, 1)).unwrap();
    actor.address().tell(reported(pod, WorkerState::Syncing, false)).unwrap();
}

#[test]
fn it_asks_for_all_facts_and_tells_the_server_and_the_disk_what_follows() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        stage.until("the pool to be asked", || near.pool.count() == 1).await;
        let asked = (near.manager.count(), near.pleg.count(), near.probes.count(), near.node.count());
        assert_eq!(asked, (1, 1, 1, 1));
        tell_facts(&actor, &api_pod(0));
        near.until_running(stage).await;
        let uid = api_pod(0).pod_ref.uid.clone();
        let status = ask(&actor, GetPodStatus { uid, made_anew: None }, SECOND).await.unwrap().unwrap();
        assert_eq!(
            (status.phase.as_deref(), status.host_ip.as_deref()),
            (Some("Running"), Some("192.0.2.10"))
        );
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(60 * SECOND).await;
        assert_eq!(near.patches(), 1, "what is told is told once");
        assert_eq!(near.manager.count(), 1, "what is known is not asked for again");
        assert_eq!(near.events.count(), 0);
    });
}

#[test]
fn a_new_incarnation_asks_for_all_facts_again_and_repeats_no_patch() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor, &api_pod(0));
        near.until_running(stage).await;
        let saves = stage.fakes.checkpoints.saves();
        stage.crash::<StatusManager>().await;
        stage.until("the pool to be asked again", || near.pool.count() == 2).await;
        assert_eq!((near.manager.count(), near.pleg.count(), near.probes.count()), (2, 2, 2));
        // The checkpoint says what was, before any fact has come.
        let known = ask(&actor, GetKnownStatuses, SECOND).await.unwrap();
        let status = known.get(&api_pod(0).pod_ref.uid).unwrap();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        // The watch has shown the patch to PodManager, which tells the pod as the server has it.
        let mut pod = (*api_pod(0)).clone();
        pod.pod = near.api.get::<Pod>(Some("default"), &pod.pod_ref.name).unwrap().into();
        tell_facts(&actor, &Arc::new(pod));
        stage.pass(60 * SECOND).await;
        assert_eq!(near.patches(), 1, "the server has it already");
        assert_eq!(stage.fakes.checkpoints.saves(), saves, "and so has the disk");
    });
}

/// The value of a series; `None` if the page has no such series.
fn value(registry: &Registry, series: &str) -> Option<f64> {
    let page = String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).unwrap();
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn the_start_of_a_pod_and_what_the_server_knows_of_it_are_timed_once() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let (deps, registry) = (near.deps(stage), Registry::new());
        deps.metrics.register(&registry).unwrap();
        let actor = stage.start(deps, StatusManager::new);
        let mut pod = (*api_pod(0)).clone();
        pod.pod = near.api.get::<Pod>(Some("default"), &pod.pod_ref.name).unwrap().into();
        let pod = Arc::new(pod);
        tell_facts(&actor, &pod);
        near.until_running(stage).await;
        let started = || value(&registry, "kubelet_pod_start_total_duration_seconds_count");
        stage.until("the start to be timed", || started() == Some(1.0)).await;
        assert_eq!(value(&registry, "kubelet_pod_start_sli_duration_seconds_count"), Some(1.0));
        assert!(value(&registry, "kubelet_first_network_pod_start_sli_duration_seconds").is_some());
        assert_eq!(value(&registry, "kubelet_pod_status_sync_duration_seconds_count"), Some(1.0));
        stage.crash::<StatusManager>().await;
        let mut pod = (*pod).clone();
        pod.pod = near.api.get::<Pod>(Some("default"), &pod.pod_ref.name).unwrap().into();
        tell_facts(&actor, &Arc::new(pod));
        stage.pass(60 * SECOND).await;
        assert_eq!(started(), Some(1.0), "it had been begun before");
    });
}

#[test]
fn facts_that_do_not_come_are_asked_for_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        near.manager.refuse();
        near.pleg.refuse();
        near.pool.refuse();
        stage.pass(SECOND).await;
        assert_eq!((near.manager.refused().len(), near.pool.refused().len()), (1, 1));
        stage.pass(10 * SECOND).await;
        assert_eq!((near.manager.refused().len(), near.pleg.refused().len()), (2, 2), "10 s later");
        near.manager.fall_silent();
        stage.until("PodManager to be asked", || near.manager.count() == 1).await;
        tell_facts(&actor, &api_pod(0));
        near.until_running(stage).await;
    });
}

#[test]
fn a_server_that_answers_429_for_30_s_is_asked_again_when_it_said() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        near.api.fault(On::call(Verb::Patch, "pods/status"), 1, Fault::too_many(30));
        tell_facts(&actor, &api_pod(0));
        stage.until("the first try", || near.patches() == 1).await;
        stage.pass(29 * SECOND).await;
        assert_eq!(
            (near.patches(), near.phase().as_deref()),
            (1, Some("Pending")),
            "no try before the server's time"
        );
        let uid = api_pod(0).pod_ref.uid.clone();
        let status = ask(&actor, GetPodStatus { uid, made_anew: None }, SECOND).await.unwrap();
        assert_eq!(status.unwrap().phase.as_deref(), Some("Running"), "here it is known all the while");
        stage.pass(5 * SECOND).await;
        assert_eq!((near.patches(), near.phase().as_deref()), (2, Some("Running")));
    });
}

#[test]
fn a_full_disk_is_tried_again_until_the_status_is_safe() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        stage.fakes.checkpoints.set_disk_full(true);
        tell_facts(&actor, &api_pod(0));
        near.until_running(stage).await;
        stage.pass(5 * SECOND).await;
        assert_eq!(stage.observed::<StatusManager>().await["checkpointsFailed"], 1);
        assert_eq!(stage.fakes.checkpoints.saves(), 0);
        stage.fakes.checkpoints.set_disk_full(false);
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        assert_eq!(stage.observed::<StatusManager>().await["checkpointsFailed"], 0);
    });
}

#[test]
fn what_is_told_of_a_pod_before_it_is_known_to_be_desired_counts() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let mut deleted = (*api_pod(0)).clone();
        let mut object = (*deleted.pod).clone();
        object.metadata.deletion_timestamp = serde_json::from_value("2026-05-01T12:00:00Z".into()).unwrap();
        object.metadata.deletion_grace_period_seconds = Some(30);
        deleted.pod = Arc::new(object);
        let absent = SeenPod { state: Arc::new(RuntimePod::absent(deleted.pod_ref.clone())), touch: 1 };
        actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
        actor.address().tell(reported(&deleted, WorkerState::Terminated, true)).unwrap();
        actor.address().tell(told([absent])).unwrap();
        stage.pass(SECOND).await;
        actor.address().tell(desired_of(&[Arc::new(deleted)])).unwrap();
        stage.until("its end to be told", || near.phase().as_deref() == Some("Failed")).await;
    });
}

#[test]
fn what_is_known_of_a_pod_stays_until_pleg_and_the_pool_have_said_all() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor, &api_pod(0));
        near.until_running(stage).await;
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(SECOND).await;
        stage.crash::<StatusManager>().await;
        stage.until("the pool to be asked again", || near.pool.count() == 2).await;
        let is_known = async || {
            stage.pass(SECOND).await;
            let known = ask(&actor, GetKnownStatuses, SECOND).await.unwrap();
            known.contains_key(&api_pod(0).pod_ref.uid)
        };
        actor.address().tell(desired_of(&[])).unwrap();
        actor.address().tell(Reports::complete().all()).unwrap();
        assert!(is_known().await, "Pleg has yet to tell what the runtime holds of it");
        actor.address().tell(Looks::complete().all()).unwrap();
        assert!(!is_known().await);
    });
}

#[test]
fn a_checkpoint_that_is_corrupt_is_told_and_left_out() {
    alone(async |stage| {
        stage.fakes.checkpoints.corrupt("pod-status/x", "checksum");
        let near = Neighbours::new(stage);
        let _actor = near.start(stage);
        stage.pass(SECOND).await;
        let unusable = stage.observed::<StatusManager>().await["unusableCheckpoints"].clone();
        let reasons: Vec<_> = near.events.heard().into_iter().map(|event| event.reason.to_string()).collect();
        assert_eq!((unusable.as_u64(), reasons), (Some(1), vec!["CorruptPodStatus".to_owned()]));
        assert_eq!(near.touched.count(), 0, "no pod's end waits for a look");
    });
}

#[test]
fn a_refusal_that_the_server_does_not_know_outlives_a_crash_and_not_the_process() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        near.api.set_down(true);
        let why = Rejection::new("OutOfcpu", "there is no room");
        let refused = DesiredPod { rejected: Some(why), ..(*api_pod(0)).clone() };
        actor.address().tell(desired_of(&[Arc::new(refused)])).unwrap();
        stage.until("the checkpoint", || stage.fakes.checkpoints.saves() > 0).await;
        stage.pass(SECOND).await;
        stage.crash::<StatusManager>().await;
        let uid = api_pod(0).pod_ref.uid.clone();
        let known = ask(&actor, GetKnownStatuses, SECOND).await.unwrap();
        let status = known.get(&uid).expect("PodManager, which may have crashed, too, asks for it");
        assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("OutOfcpu")));
        actor.stop();
        stage.pass(SECOND).await;
        let next = near.start(stage);
        let known = ask(&next, GetKnownStatuses, SECOND).await.unwrap();
        assert!(!known.contains_key(&uid), "another kubelet judges it anew");
    });
}
