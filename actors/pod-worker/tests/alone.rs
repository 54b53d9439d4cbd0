//! PodWorkerPool and its workers alone: the actors that a worker asks are recorded, the runtime is a fake,
//! and Pleg answers each touch with that runtime's state.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{FakeRuntime, Fault, RegistryImage};
use bridge_cri::{CriErrorKind, Rpc, wire};
use bridge_http::probes::FakeProber;
use k8s_openapi::api::core::v1::{Container, EnvFromSource, LocalObjectReference, SecretEnvSource};
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::facts::{
    DesiredPod, Rejection, RuntimeObserved, SeenPod, WorkerReport, WorkerReported, WorkerState,
};
use messages::image_manager::{EnsureImage, PresentImage};
use messages::node_status::ResendNode;
use messages::object_cache::{GetConfigMap, GetRuntimeClass, GetSecret, GetServices, ObjectError};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::{EvictPod, GetWorkers, ResendReports};
use messages::probe_manager::ResendVerdicts;
use messages::resource_manager::{CgroupFailure, EnsurePodCgroup, PodCgroup, RemovePodCgroup};
use messages::runtime::{ContainerState, RuntimePod};
use messages::status_manager::GetPodStatus;
use messages::supervision::Fault as ActorFault;
use messages::volume_manager::{
    MountVolumes, MountedVolumes, PrepareSubpaths, UnmountVolumes, VolumeError, VolumesNotReady,
};
use pod_set::Followed;
use pod_worker::hash::container_hash;
use pod_worker::{PodWorkerConfig, PodWorkerDeps, PodWorkerMetrics, PodWorkerPool, PodWorkerPoolDeps};
use stage::{
    IMAGE, Neighbour, Stage, alone, ask, desired, desired_of, observed, pod, runtime_pod, runtime_well, told,
};
use supervision::{Place, Seated, Supervised, Vitality};

#[path = "alone/ends.rs"]
mod ends;
#[path = "alone/image_volumes.rs"]
mod image_volumes;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    manager: Neighbour<ResendDesired>,
    resend_observed: Neighbour<ResendObserved>,
    verdicts: Neighbour<ResendVerdicts>,
    node: Neighbour<ResendNode>,
    configuration: Neighbour<ResendConfiguration>,
    pleg: Neighbour<PodTouched>,
    mount: Neighbour<MountVolumes>,
    unmount: Neighbour<UnmountVolumes>,
    subpaths: Neighbour<PrepareSubpaths>,
    images: Neighbour<EnsureImage>,
    secrets: Neighbour<GetSecret>,
    config_maps: Neighbour<GetConfigMap>,
    runtime_classes: Neighbour<GetRuntimeClass>,
    services: Neighbour<GetServices>,
    ensure_cgroup: Neighbour<EnsurePodCgroup>,
    remove_cgroup: Neighbour<RemovePodCgroup>,
    status: Neighbour<GetPodStatus>,
    reports: Neighbour<WorkerReported>,
    events: Neighbour<RecordEvent>,
}

impl Neighbours {
    /// Neighbours that all answer with success.
    fn new(stage: &Stage<'_>) -> Self {
        let image_ref = stage.fakes.runtime.add_image(IMAGE, RegistryImage::default());
        let image = Arc::new(PresentImage { image_ref, uid: None, username: String::new() });
        Self {
            manager: Neighbour::new("PodManager"),
            resend_observed: Neighbour::new("Pleg"),
            verdicts: Neighbour::new("ProbeManager"),
            node: Neighbour::new("NodeStatus"),
            configuration: Neighbour::new("ConfigManager"),
            pleg: Neighbour::new("Pleg"),
            mount: Neighbour::answering("VolumeManager", |_| Ok(mounted())),
            unmount: Neighbour::answering("VolumeManager", |_| Ok(())),
            subpaths: Neighbour::answering("VolumeManager", |_| Ok(BTreeMap::new())),
            images: Neighbour::answering("ImageManager", move |_| Ok(image.clone())),
            secrets: Neighbour::new("ObjectCache"),
            config_maps: Neighbour::new("ObjectCache"),
            runtime_classes: Neighbour::new("ObjectCache"),
            services: Neighbour::answering("ObjectCache", |_| Ok(Arc::from([]))),
            ensure_cgroup: Neighbour::answering("ResourceManager", |_| Ok(cgroup())),
            remove_cgroup: Neighbour::answering("ResourceManager", |_| Ok(())),
            status: Neighbour::answering("StatusManager", |_| None),
            reports: Neighbour::new("StatusManager"),
            events: Neighbour::new("EventRecorder"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<PodWorkerPool> {
        let seat = stage.tree.seat::<PodWorkerPool>(Vitality::Vital);
        let (runtime, looks) = (stage.fakes.runtime.clone(), seat.address());
        self.pleg.answer(move |touched| {
            let _ = looks.tell(told([look(&runtime, touched)]));
        });
        let deps = self.deps(stage, &seat);
        seat.start(&Place::Here, move || PodWorkerPool::new(deps.clone()))
    }

    fn deps(&self, stage: &Stage<'_>, seat: &Seated<PodWorkerPool>) -> PodWorkerPoolDeps {
        let fakes = &stage.fakes;
        let worker = PodWorkerDeps {
            pleg: self.pleg.address(),
            mount: self.mount.asked(),
            prepare_subpaths: self.subpaths.asked(),
            unmount: self.unmount.asked(),
            images: self.images.asked(),
            secrets: self.secrets.asked(),
            config_maps: self.config_maps.asked(),
            runtime_classes: self.runtime_classes.asked(),
            services: self.services.asked(),
            status: self.status.asked(),
            resend: seat.address(),
            reports: seat.address(),
            events: self.events.address(),
            runtime: fakes.operations.clone(),
            pods: fakes.operations.clone(),
            exec: fakes.operations.clone(),
            dirs: fakes.dirs.clone(),
            ensure_cgroup: self.ensure_cgroup.asked(),
            remove_cgroup: self.remove_cgroup.asked(),
            prober: Arc::new(FakeProber::new()),
            epoch: tokio::time::Instant::now(),
            clock: fakes.clock.clone(),
            compute: fakes.compute.clone(),
            resolv_conf: None,
            config: Arc::new(PodWorkerConfig::default()),
            metrics: PodWorkerMetrics::new().unwrap(),
            fault_point: None,
        };
        PodWorkerPoolDeps {
            worker,
            resend_desired: self.manager.address(),
            resend_observed: self.resend_observed.address(),
            report_followers: vec![self.reports.address()],
            resend_verdicts: self.verdicts.address(),
            resend_node: Some(self.node.address()),
            configuration: self.configuration.address(),
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.events.heard().iter().map(|event| event.reason.to_string()).collect()
    }

    /// The newest report of the pod's worker: its state, and whether the pod is released.
    fn report(&self) -> Option<(WorkerState, bool)> {
        let mut followed = Followed::default();
        self.reports.heard().into_iter().for_each(|told| drop(followed.take(told.0)));
        followed.get(&pod(0).pod_ref.uid).map(|report| (report.state, report.released))
    }
}

fn mounted() -> Arc<MountedVolumes> {
    let path = format!("/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/data", pod(0).pod_ref.uid);
    Arc::new(MountedVolumes { host_paths: [("data".to_owned(), path)].into(), ..MountedVolumes::default() })
}

fn cgroup() -> Arc<PodCgroup> {
    Arc::new(PodCgroup { name: Arc::from("/kubepods/besteffort/pod0") })
}

/// The pod with so many containers in the place of its one.
fn crowd(containers: usize) -> DesiredPod {
    let mut crowd = (*pod(0)).clone();
    let spec = Arc::make_mut(&mut crowd.pod).spec.as_mut().unwrap();
    spec.image_pull_secrets = Some(vec![LocalObjectReference { name: "registry".to_owned() }]);
    let web = spec.containers.remove(0);
    let one = |number| Container { name: format!("web{number:02}"), ..web.clone() };
    spec.containers = (0..containers).map(one).collect();
    crowd
}

/// Pleg's observation of the pod, or of its crowd.
fn look(runtime: &FakeRuntime, touched: &PodTouched) -> SeenPod {
    let pod = pod(0);
    let mut seen = runtime_pod(&pod.pod_ref, 0);
    let (sandbox, container) = (seen.sandboxes.remove(0), seen.containers.remove(0));
    let sandboxes = runtime.sandboxes().into_iter().map(|found| messages::runtime::RuntimeSandbox {
        id: Arc::from(found.id),
        attempt: found.metadata.map_or(0, |metadata| metadata.attempt),
        ready: found.state == wire::PodSandboxState::SandboxReady as i32,
        ..sandbox.clone()
    });
    let sandboxes: Vec<_> = sandboxes.collect();
    let web = &pod.pod.spec.as_ref().unwrap().containers[0];
    let containers = runtime.containers().into_iter().map(|found| {
        let name = found.metadata.as_ref().map_or("", |metadata| metadata.name.as_str()).to_owned();
        let state = match found.state() {
            wire::ContainerState::ContainerCreated => ContainerState::Created,
            wire::ContainerState::ContainerRunning => ContainerState::Running,
            wire::ContainerState::ContainerExited => ContainerState::Exited,
            wire::ContainerState::ContainerUnknown => ContainerState::Unknown,
        };
        messages::runtime::RuntimeContainer {
            id: Arc::from(found.id),
            name: Arc::from(name.as_str()),
            sandbox_id: sandboxes.first().map_or(Arc::from(""), |sandbox| sandbox.id.clone()),
            attempt: found.metadata.map_or(0, |metadata| metadata.attempt),
            state,
            hash: Some(container_hash(&Container { name, ..web.clone() })),
            exit_code: found.exit_code,
            ..container.clone()
        }
    });
    let mut containers: Vec<_> = containers.collect();
    containers.sort_by(|a, b| (&a.name, b.attempt).cmp(&(&b.name, a.attempt)));
    let state = Arc::new(RuntimePod { pod: pod.pod_ref.clone(), sandboxes, containers });
    SeenPod { state, touch: touched.token }
}

fn tell_facts(actor: &Supervised<PodWorkerPool>) {
    actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
    actor.address().tell(desired(1)).unwrap();
}

fn calls(stage: &Stage<'_>, rpc: Rpc) -> u64 {
    stage.fakes.runtime.counts().get(&rpc).copied().unwrap_or(0)
}

/// How many sandboxes were asked for, and how many containers were started.
fn started(stage: &Stage<'_>) -> (u64, u64) {
    (calls(stage, Rpc::RunPodSandbox), calls(stage, Rpc::StartContainer))
}

fn runs(stage: &Stage<'_>) -> bool {
    let running = wire::ContainerState::ContainerRunning;
    stage.fakes.runtime.containers().iter().any(|container| container.state() == running)
}

#[test]
fn a_desired_pod_is_started_with_what_its_neighbours_give() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let asked =
            || (near.manager.count(), near.resend_observed.count(), near.verdicts.count(), near.node.count());
        stage.until("all facts to be asked for", || asked() == (1, 1, 1, 1)).await;
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.pass(30 * SECOND).await;
        assert_eq!(started(stage), (1, 1));
        assert_eq!(
            (near.ensure_cgroup.count() > 0, near.mount.count() > 0, near.images.count()),
            (true, true, 1)
        );
        assert_eq!((near.unmount.count(), near.remove_cgroup.count()), (0, 0));
        assert_eq!(near.report(), Some((WorkerState::Syncing, false)));
        let workers = ask(&actor, GetWorkers, SECOND).await.unwrap();
        assert_eq!(workers.keys().collect::<Vec<_>>(), [&pod(0).pod_ref.uid]);
    });
}

#[test]
fn a_new_pool_asks_for_all_facts_and_its_workers_live_on() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.crash::<PodWorkerPool>().await;
        let asked =
            || (near.manager.count(), near.resend_observed.count(), near.verdicts.count(), near.node.count());
        stage.until("all facts to be asked for", || asked() == (2, 2, 2, 2)).await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
        tell_facts(&actor);
        stage.pass(120 * SECOND).await;
        assert_eq!((started(stage), runs(stage)), ((1, 1), true));
        assert_eq!((near.unmount.count(), calls(stage, Rpc::StopContainer)), (0, 0));
    });
}

#[test]
fn a_new_pool_knows_of_its_workers_before_they_report() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        near.reports.take();
        stage.crash::<PodWorkerPool>().await;
        let workers = tokio::spawn(ask(&actor, GetWorkers, 10 * SECOND));
        stage.until("the pool to begin anew", || near.manager.count() == 2).await;
        stage.pass(SECOND).await;
        assert!(!workers.is_finished(), "the worker has not reported to this pool");
        let mut followed: Followed<Arc<WorkerReport>> = Followed::default();
        near.reports.heard().into_iter().for_each(|told| drop(followed.take(told.0)));
        let [known, other] = [0, 1].map(|number| followed.is_removed(&pod(number).pod_ref.uid));
        assert_eq!((known, other), (false, true), "it is there, and there is no other");
        tell_facts(&actor);
        stage.until("the answer", || workers.is_finished()).await;
        let workers = workers.await.unwrap().unwrap();
        assert_eq!(workers.keys().collect::<Vec<_>>(), [&pod(0).pod_ref.uid]);
    });
}

#[test]
fn a_pod_that_no_source_knows_is_counted_and_ended() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let seat = stage.tree.seat::<PodWorkerPool>(Vitality::Vital);
        let deps = near.deps(stage, &seat);
        let metrics = deps.worker.metrics.clone();
        let actor = seat.start(&Place::Here, move || PodWorkerPool::new(deps.clone()));
        tell_facts(&actor);
        actor.address().tell(observed(&pod(1), 1)).unwrap();
        stage.until("a worker for the pod", || metrics.orphaned_pods.get() == 1).await;
        stage.pass(SECOND).await;
        assert_eq!(metrics.orphaned_pods.get(), 1);
    });
}

#[test]
fn a_new_worker_starts_nothing_twice() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        stage.pass(5 * SECOND).await;
        stage.expect_crashes();
        let touches = near.pleg.count();
        stage.tree.kill(&format!("PodWorker/{}", pod(0).pod_ref.uid)).unwrap();
        stage.until("Pleg to be asked for a look", || near.pleg.count() > touches).await;
        stage.pass(120 * SECOND).await;
        assert_eq!((started(stage), runs(stage)), ((1, 1), true));
        near.reports.take();
        actor.address().tell(ResendReports { receiver: "StatusManager" }).unwrap();
        stage.pass(SECOND).await;
        assert_eq!(near.report(), Some((WorkerState::Syncing, false)));
    });
}

#[test]
fn a_pod_that_goes_is_stopped_before_its_volumes_and_its_cgroup_are() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        let runtime = stage.fakes.runtime.clone();
        near.unmount.answer(move |_| {
            let running = wire::ContainerState::ContainerRunning;
            assert!(runtime.containers().iter().all(|container| container.state() != running));
            Ok(())
        });
        actor.address().tell(desired_of(&[])).unwrap();
        stage
            .until("everything to be given back", || near.report() == Some((WorkerState::Terminated, true)))
            .await;
        assert_eq!((near.unmount.count(), near.remove_cgroup.count()), (1, 1));
    });
}

#[test]
fn volumes_that_are_not_ready_are_waited_for() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.mount.answer(|_| {
            let error = VolumeError { volume: "data".to_owned(), message: "it is not there".to_owned() };
            Err(VolumesNotReady { error, unmounted: vec!["data".to_owned()], retry_after_ms: 500 })
        });
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.pass(20 * SECOND).await;
        assert!((2..=60).contains(&near.mount.count()), "asked {} times in 20 s", near.mount.count());
        assert_eq!(started(stage), (0, 0));
        near.mount.answer(|_| Ok(mounted()));
        stage.until("the container to run", || runs(stage)).await;
    });
}

#[test]
fn asks_for_a_pods_images_share_what_they_carry_of_the_pod() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.images.fall_silent();
        let actor = near.start(stage);
        actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
        actor.address().tell(desired_of(&[Arc::new(crowd(200))])).unwrap();
        stage.until("images to be asked for", || near.images.count() == 16).await;
        let (asks, first) = (near.images.heard(), near.images.heard().remove(0));
        assert_eq!((first.annotations.len(), first.pull_secrets.len()), (2, 1));
        assert!(asks.iter().all(|ask| Arc::ptr_eq(&ask.annotations, &first.annotations)));
        assert!(asks.iter().all(|ask| Arc::ptr_eq(&ask.pull_secrets, &first.pull_secrets)));
        stage.pass(SECOND).await;
        assert!(near.images.count() < 20, "the others wait for those, and not where other pods' asks do");
    });
}

#[test]
fn of_a_pod_with_many_containers_few_calls_wait_where_others_do() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let (disk, pod) = (&stage.fakes.disk, pod(0).pod_ref.clone());
        let logs = format!("/var/log/pods/{}_{}_{}", pod.namespace, pod.name, pod.uid);
        disk.set_slow(Some(SECOND));
        actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
        actor.address().tell(desired_of(&[Arc::new(crowd(20))])).unwrap();
        stage.until("the first directories", || !disk.children(&logs).is_empty()).await;
        stage.pass(SECOND / 10).await;
        assert_eq!(disk.children(&logs).len(), 8);
        stage.until("the sandbox", || started(stage).0 == 1).await;
        assert_eq!(disk.children(&logs).len(), 20);
        disk.set_slow(None);
        stage.until("all containers to be started", || started(stage).1 == 20).await;
        stage.pass(5 * SECOND).await;
        disk.set_slow(Some(SECOND));
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("the first removals", || calls(stage, Rpc::RemoveContainer) > 0).await;
        stage.pass(SECOND / 10).await;
        assert_eq!(calls(stage, Rpc::RemoveContainer), 8);
        stage.until("the end", || near.report() == Some((WorkerState::Terminated, true))).await;
        assert_eq!((started(stage), calls(stage, Rpc::RemoveContainer)), ((1, 20), 20));
    });
}

#[test]
fn few_of_the_objects_that_a_container_names_are_asked_for_at_once() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let mut eager = crowd(1);
        let spec = Arc::make_mut(&mut eager.pod).spec.as_mut().unwrap();
        let secret = |number| SecretEnvSource { name: format!("secret{number}"), optional: None };
        let source = |number| EnvFromSource { secret_ref: Some(secret(number)), ..EnvFromSource::default() };
        spec.containers[0].env_from = Some((0..20).map(source).collect());
        actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
        actor.address().tell(desired_of(&[Arc::new(eager)])).unwrap();
        stage.until("secrets to be asked for", || near.secrets.count() > 0).await;
        stage.pass(5 * SECOND).await;
        assert_eq!(near.secrets.count(), 8);
        near.secrets.answer(|_| Err(ObjectError { not_found: true, message: "it is not there".to_owned() }));
        stage.until("all secrets to be asked for", || near.secrets.count() >= 20).await;
    });
}

#[test]
fn a_neighbour_that_crashes_over_the_question_is_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.ensure_cgroup.lose_answers();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("ResourceManager to be asked twice", || near.ensure_cgroup.count() >= 2).await;
        assert_eq!(started(stage), (0, 0), "no sandbox before the pod's cgroup");
        near.ensure_cgroup.answer(|_| Err(CgroupFailure { message: "read-only file system".to_owned() }));
        stage.pass(10 * SECOND).await;
        assert_eq!(started(stage), (0, 0));
        near.images.lose_answers();
        near.ensure_cgroup.answer(|_| Ok(cgroup()));
        stage.until("ImageManager to be asked twice", || near.images.count() >= 2).await;
        assert_eq!(started(stage), (1, 0));
        let id = stage.fakes.runtime.add_image(IMAGE, RegistryImage::default());
        let image = Arc::new(PresentImage { image_ref: id, uid: None, username: String::new() });
        near.images.answer(move |_| Ok(image.clone()));
        stage.until("the container to run", || runs(stage)).await;
    });
}

#[test]
fn a_status_manager_that_does_not_answer_holds_back_the_start() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.status.refuse();
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.pass(30 * SECOND).await;
        assert!(!near.status.refused().is_empty());
        assert_eq!(started(stage), (0, 0), "the pod may have ended before");
        near.status.answer(|_| None);
        stage.until("the container to run", || runs(stage)).await;
    });
}

#[test]
fn a_runtime_that_fails_is_told_of_and_asked_again() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let failed = Fault::Error(CriErrorKind::Other, "no network".to_owned());
        stage.fakes.runtime.fault(Rpc::RunPodSandbox, 2, failed);
        let actor = near.start(stage);
        tell_facts(&actor);
        stage.until("the container to run", || runs(stage)).await;
        assert_eq!(started(stage), (3, 1));
        assert!(near.reasons().contains(&"FailedCreatePodSandBox".to_owned()), "{:?}", near.reasons());
    });
}

#[test]
fn nothing_is_done_on_a_look_from_before_the_last_change() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let actor = near.start(stage);
        let (runtime, looks) = (stage.fakes.runtime.clone(), actor.address());
        let in_time = {
            let (runtime, looks) = (runtime.clone(), looks.clone());
            move |touched: &PodTouched| drop(looks.tell(told([look(&runtime, touched)])))
        };
        let late = {
            let (runtime, looks) = (runtime.clone(), looks.clone());
            move |touched: &PodTouched| {
                drop(looks.tell(told([SeenPod { touch: 0, ..look(&runtime, touched) }])));
            }
        };
        near.pleg.answer(late);
        tell_facts(&actor);
        stage.pass(60 * SECOND).await;
        assert!(near.pleg.count() >= 2, "Pleg is asked again");
        assert_eq!(started(stage), (0, 0), "the runtime may have had something meanwhile");
        near.pleg.answer(in_time.clone());
        stage.until("the container to run", || runs(stage)).await;
        stage.pass(5 * SECOND).await;
        // It dies and is started anew; every look from then on shows it as it was when it was dead.
        runtime.exit_container(&runtime.containers()[0].id, 1, false);
        let next = |touched: &PodTouched| PodTouched { token: touched.token + 1, ..touched.clone() };
        let dead = SeenPod { touch: 0, ..look(&runtime, &next(&near.pleg.last().unwrap())) };
        let again = dead.clone();
        near.pleg.answer(move |_| drop(looks.tell(told([again.clone()]))));
        actor.address().tell(told([dead])).unwrap();
        stage.until("the container to be started again", || started(stage) == (1, 2)).await;
        stage.pass(120 * SECOND).await;
        assert_eq!(started(stage), (1, 2), "what is dead there runs by now");
        near.pleg.answer(in_time);
        stage.pass(120 * SECOND).await;
        assert_eq!((started(stage), runs(stage)), ((1, 2), true));
    });
}
