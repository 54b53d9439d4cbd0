//! VolumeManager alone: workers ask it for volumes; mounts and directories are fakes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_csi::fake::{FakePlugins, Fault};
use bridge_csi::plugins::{PluginKind, PluginMetrics, PluginWatcher};
use bridge_csi::{CsiMetrics, Drivers, Rpc};
use bridge_io::Io;
use bridge_kube::fake::FakeApi;
use bridge_node::host::{FakeFlexDrivers, FakeNetworkDisks};
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PodSecurityContext, Volume, VolumeMount,
};
use k8s_openapi::api::storage::v1::CSIDriver;
use messages::PodUid;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::facts::{CsiDriversObserved, DesiredPod, NodeResourcesConfigured, OtherVolumesObserved};
use messages::object_cache::{GetConfigMap, GetSecret, GetToken, PodObjectsChanged};
use messages::pleg::GetHeldPods;
use messages::pod_manager::ResendDesired;
use messages::pod_worker::EvictPod;
use messages::volume_manager::{MountVolumes, MountedVolumes, UnmountVolumes, VolumesNotReady};
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use stage::{Neighbour, Stage, alone, ask, desired, desired_of, desired_so_far, driver_on, pod};
use supervision::{AskError, Supervised};
use volume_manager::{
    Backends, Csi, Flex, Objects, Showing, SweepPolicy, VolumeManager, VolumeManagerDeps, VolumeMetrics,
    VolumeSettings,
};

#[path = "alone/attached.rs"]
mod attached;
#[path = "alone/claims.rs"]
mod claims;
#[path = "alone/drivers.rs"]
mod drivers;
#[path = "alone/figures.rs"]
mod figures;
#[path = "alone/shares.rs"]
mod shares;

const SECOND: Duration = Duration::from_secs(1);

struct Neighbours {
    secrets: Neighbour<GetSecret>,
    config_maps: Neighbour<GetConfigMap>,
    tokens: Neighbour<GetToken>,
    pleg: Neighbour<GetHeldPods>,
    manager: Neighbour<ResendDesired>,
    node_status: Neighbour<OtherVolumesObserved>,
    drivers: Neighbour<CsiDriversObserved>,
    pool: Neighbour<PodObjectsChanged>,
    evict: Neighbour<EvictPod>,
    plugins: FakePlugins,
    flex: FakeFlexDrivers,
    /// The API server, on a member of a cluster.
    api: Option<FakeApi>,
    events: Neighbour<RecordEvent>,
    configuration: Neighbour<ResendConfiguration>,
}

/// A node whose pods may have so many bytes of memory.
fn with_memory(bytes: u64) -> Arc<NodeResources> {
    let allocatable = BTreeMap::from([("memory".to_owned(), Quantity::binary(bytes))]);
    Arc::new(NodeResources { allocatable, ..NodeResources::default() })
}

impl Neighbours {
    fn new() -> Self {
        Self {
            secrets: Neighbour::new("ObjectCache"),
            config_maps: Neighbour::new("ObjectCache"),
            tokens: Neighbour::new("ObjectCache"),
            pleg: Neighbour::answering("Pleg", |_| Arc::new(BTreeMap::new())),
            manager: Neighbour::new("PodManager"),
            node_status: Neighbour::new("NodeStatus"),
            drivers: Neighbour::new("NodeStatus"),
            pool: Neighbour::new("PodWorkerPool"),
            evict: Neighbour::new("PodWorkerPool"),
            plugins: FakePlugins::default(),
            flex: FakeFlexDrivers::default(),
            api: None,
            events: Neighbour::new("EventRecorder"),
            configuration: Neighbour::new("ConfigManager"),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<VolumeManager> {
        stage.start(self.deps(stage), VolumeManager::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> VolumeManagerDeps {
        let fakes = &stage.fakes;
        VolumeManagerDeps {
            sweep: SweepPolicy { every: 10 * SECOND, quiet: 20 * SECOND },
            backends: Backends {
                mounts: fakes.mounts.clone(),
                pod_dirs: fakes.dirs.clone(),
                events: self.events.address(),
                volume_objects: self.api.as_ref().map(|api| Arc::new(api.client(&Io::current())) as _),
                claim_statuses: self.api.as_ref().map(|api| Arc::new(api.client(&Io::current())) as _),
                clock: fakes.clock.clone(),
                compute: fakes.compute.clone(),
                objects: Objects {
                    showing: Showing::default(),
                    secrets: self.secrets.asked(),
                    config_maps: self.config_maps.asked(),
                    tokens: self.tokens.asked(),
                    in_cluster: false,
                    node: with_memory(8 << 30),
                },
                csi: self.csi(),
                flex: Flex::new(Arc::new(self.flex.clone())),
                network_disks: Arc::new(FakeNetworkDisks::new(fakes.disk.clone())),
                devices: Default::default(),
                attachments: Default::default(),
                selinux: None,
            },
            others_watchers: vec![self.node_status.address()],
            driver_watchers: vec![self.drivers.address()],
            resend_node: None,
            configuration: self.configuration.address(),
            waiters: self.pool.address(),
            evict: self.evict.address(),
            events: self.events.address(),
            held_pods: self.pleg.asked(),
            resend_desired: self.manager.address(),
            metrics: VolumeMetrics::new(),
            rejections: None,
            settings: VolumeSettings::default(),
        }
    }
}

impl Neighbours {
    fn csi(&self) -> Csi {
        let drivers = Drivers::new(Arc::new(self.plugins.clone()), Io::current(), CsiMetrics::new().unwrap());
        let registrar = Arc::new(self.plugins.clone());
        let watcher = PluginWatcher::start(
            &Io::current(),
            Arc::new(self.plugins.clone()),
            registrar,
            [PluginKind::Csi],
            PluginMetrics::new().unwrap(),
        );
        Csi {
            node: "node".to_owned(),
            plugins: Arc::new(watcher),
            registry: Arc::new(drivers.clone()),
            volumes: Arc::new(drivers.clone()),
            figures: Arc::new(drivers),
            tells_health: false,
            csi_nodes: None,
        }
    }
}

type Answer = Result<Result<Arc<MountedVolumes>, VolumesNotReady>, AskError>;

async fn mount(actor: &Supervised<VolumeManager>) -> Answer {
    ask(actor, MountVolumes { pod: pod(0) }, 300 * SECOND).await
}

fn directory() -> String {
    format!("/var/lib/kubelet/pods/{}", pod(0).pod_ref.uid)
}

#[test]
fn volumes_are_there_when_asked_for_and_gone_when_undone() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.until("the desired pods to be asked for", || near.manager.count() == 1).await;
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("volumes of others to be told", || near.node_status.count() > 0).await;
        let volumes = mount(&actor).await.unwrap().unwrap();
        let path = format!("{}/volumes/kubernetes.io~empty-dir/data", directory());
        assert_eq!(volumes.host_paths, [("data".to_owned(), path.clone())].into());
        assert!(stage.fakes.disk.kind(&path).is_some(), "its directory is there");
        let undo = UnmountVolumes { pod: pod(0).pod_ref.clone() };
        ask(&actor, undo, SECOND).await.unwrap().unwrap();
        assert!(stage.fakes.disk.kind(directory()).is_none());
        assert_eq!(near.events.count(), 0);
    });
}

#[test]
fn why_containers_ended_is_kept_until_every_source_lacks_the_pod() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let ending = format!("{}/containers/web/ending", directory());
        // PodManager has restarted, or VolumeManager has, and has heard nothing.
        let unsure = || desired_so_far(&[]);
        for told in [Some(desired(1)), Some(unsure()), None] {
            stage.crash::<VolumeManager>().await;
            if let Some(told) = told {
                actor.address().tell(told).unwrap();
            }
            mount(&actor).await.unwrap().unwrap();
            stage.fakes.disk.write(&ending, "why", 0o644);
            let undo = UnmountVolumes { pod: pod(0).pod_ref.clone() };
            ask(&actor, undo, SECOND).await.unwrap().unwrap();
            actor.address().tell(unsure()).unwrap();
            stage.pass(60 * SECOND).await;
            assert!(stage.fakes.disk.read(&ending).is_some(), "the pod may be listed still");
            actor.address().tell(desired_of(&[])).unwrap();
            stage.until("it to go", || stage.fakes.disk.kind(directory()).is_none()).await;
        }
    });
}

#[test]
fn a_new_incarnation_mounts_what_is_there_already_without_harm() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        actor.address().tell(desired(1)).unwrap();
        let volumes = mount(&actor).await.unwrap().unwrap();
        let kept = format!("{}/kept", volumes.host_paths["data"]);
        stage.fakes.disk.write(&kept, "content", 0o644);
        stage.crash::<VolumeManager>().await;
        stage.until("the desired pods to be asked for", || near.manager.count() == 2).await;
        actor.address().tell(desired(1)).unwrap();
        stage.pass(60 * SECOND).await;
        assert!(stage.fakes.disk.read(&kept).is_some(), "what it was not asked for it leaves alone");
        assert_eq!(mount(&actor).await.unwrap().unwrap(), volumes);
        assert!(stage.fakes.disk.read(&kept).is_some());
    });
}

#[test]
fn what_is_left_of_a_pod_stays_while_pleg_does_not_answer() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.pleg.lose_answers();
        stage.fakes.disk.mkdir(format!("{}/volumes", directory()), 0o750);
        let actor = near.start(stage);
        actor.address().tell(desired_of(&[])).unwrap();
        stage.pass(120 * SECOND).await;
        assert!(near.pleg.count() >= 2, "Pleg is asked again");
        assert!(stage.fakes.disk.kind(directory()).is_some(), "its containers may run");
        near.pleg.answer(|_| Arc::new(BTreeMap::new()));
        stage.until("it to go", || stage.fakes.disk.kind(directory()).is_none()).await;
    });
}

#[test]
fn a_disk_that_fails_is_told_of_with_the_time_of_the_next_try() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.fakes.disk.fail("make_empty_dir", directory(), 1, "No space left on device");
        let failed = mount(&actor).await.unwrap().unwrap_err();
        assert_eq!(failed.unmounted, ["data"]);
        assert!(failed.error.message.contains("No space left on device"), "{}", failed.error.message);
        assert_eq!(&*near.events.last().unwrap().reason, "FailedMount");
        mount(&actor).await.unwrap().unwrap_err();
        assert_eq!(near.events.count(), 1, "before its time it is not tried again");
        stage.pass(Duration::from_millis(failed.retry_after_ms)).await;
        mount(&actor).await.unwrap().unwrap();
    });
}

#[test]
fn a_volume_that_hangs_is_told_in_its_time_and_its_pod_alone_waits() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        stage.fakes.disk.hang("make_empty_dir");
        let failed = mount(&actor).await.unwrap().unwrap_err();
        assert_eq!(failed.unmounted, ["data"]);
        assert!(failed.error.message.contains("timed out"), "{}", failed.error.message);
        for _ in 0..10 {
            stage.pass(60 * SECOND).await;
            mount(&actor).await.unwrap().unwrap_err();
        }
        let other = ask(&actor, MountVolumes { pod: pod(1) }, SECOND).await;
        assert_eq!(other.unwrap().unwrap().host_paths.len(), 1);
        let report = stage.actor::<VolumeManager>().await;
        assert_eq!((report.incarnation, report.effects_overdue), (1, 0), "no other pod notices");
        stage.fakes.disk.go_on();
        stage.pass(300 * SECOND).await;
        mount(&actor).await.unwrap().unwrap();
    });
}

/// The pod with so many volumes, each used by its container.
fn with_volumes(desired: &DesiredPod, count: usize) -> Arc<DesiredPod> {
    let mut pod = (*desired.pod).clone();
    let spec = pod.spec.as_mut().unwrap();
    let volume = spec.volumes.as_ref().unwrap()[0].clone();
    let mount = spec.containers[0].volume_mounts.as_ref().unwrap()[0].clone();
    let names: Vec<String> = (0..count).map(|number| format!("data-{number}")).collect();
    let mounted =
        |name: &String| VolumeMount { name: name.clone(), mount_path: format!("/{name}"), ..mount.clone() };
    spec.containers[0].volume_mounts = Some(names.iter().map(mounted).collect());
    spec.volumes = Some(names.into_iter().map(|name| Volume { name, ..volume.clone() }).collect());
    Arc::new(DesiredPod { pod: Arc::new(pod), ..desired.clone() })
}

#[test]
fn a_pod_with_many_slow_volumes_takes_its_time_without_a_restart() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let disk = &stage.fakes.disk;
        disk.hang("make_empty_dir");
        let ask_for = MountVolumes { pod: with_volumes(&pod(0), 5) };
        let mut mounting = Box::pin(ask(&actor, ask_for.clone(), SECOND));
        assert!(futures::poll!(&mut mounting).is_pending());
        for hung in 1..=5 {
            stage.until("the next volume to hang", || disk.hung().len() == hung).await;
            disk.hang("make_empty_dir");
            stage.pass(100 * SECOND).await;
        }
        disk.go_on();
        let report = stage.actor::<VolumeManager>().await;
        assert_eq!((report.incarnation, report.effects_overdue), (1, 0), "in spite of eight minutes");
    });
}

#[test]
fn the_files_of_all_volumes_of_a_pod_have_one_bound() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut greedy = (*pod(0)).clone();
        let of_pod = Arc::make_mut(&mut greedy.pod);
        of_pod.metadata.annotations = Some(BTreeMap::from([("a".to_owned(), "x".repeat(1 << 20))]));
        let spec = of_pod.spec.as_mut().unwrap();
        // Either fits alone.
        let items: Vec<_> = (0..40)
            .map(|n| serde_json::json!({"path": format!("f{n}"), "fieldRef": {"fieldPath": "metadata.annotations['a']"}}))
            .collect();
        for name in ["first", "second"] {
            spec.volumes
                .get_or_insert_default()
                .push(object(serde_json::json!({"name": name, "downwardAPI": {"items": items}})));
            let mount =
                VolumeMount { name: name.into(), mount_path: format!("/{name}"), ..Default::default() };
            spec.containers[0].volume_mounts.get_or_insert_default().push(mount);
        }
        let greedy = Arc::new(greedy);
        actor.address().tell(desired_of(std::slice::from_ref(&greedy))).unwrap();
        let refused =
            ask(&actor, MountVolumes { pod: greedy.clone() }, 300 * SECOND).await.unwrap().unwrap_err();
        assert_eq!(refused.unmounted, ["second"]);
        let text = "the files of the pod's volumes would have more than 67108864 bytes";
        assert!(refused.error.message.contains(text), "{}", refused.error.message);
    });
}

#[test]
fn changed_resources_of_the_node_are_shown_at_the_next_look_and_asked_for_by_a_new_incarnation() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut told = (*pod(0)).clone();
        let spec = Arc::make_mut(&mut told.pod).spec.as_mut().unwrap();
        let memory = serde_json::json!({"containerName": "web", "resource": "limits.memory", "divisor": "1"});
        let items = [serde_json::json!({"path": "memory", "resourceFieldRef": memory})];
        let volume = object(serde_json::json!({"name": "info", "downwardAPI": {"items": items}}));
        spec.volumes.get_or_insert_default().push(volume);
        let at = VolumeMount { name: "info".into(), mount_path: "/info".into(), ..Default::default() };
        spec.containers[0].volume_mounts.get_or_insert_default().push(at);
        let told = Arc::new(told);
        actor.address().tell(desired_of(std::slice::from_ref(&told))).unwrap();
        ask(&actor, MountVolumes { pod: told.clone() }, 300 * SECOND).await.unwrap().unwrap();
        let volume = format!("{}/volumes/kubernetes.io~downward-api/info", directory());
        let shown = || {
            let files = stage.fakes.disk.files_below(&volume);
            let file = files.into_iter().find(|(path, _)| path.ends_with("memory"));
            file.map(|(_, content)| String::from_utf8(content).unwrap()).unwrap_or_default()
        };
        assert_eq!(shown(), (8_u64 << 30).to_string());
        let settings = with_memory(4 << 30);
        actor.address().tell(NodeResourcesConfigured { settings }).unwrap();
        stage.until("the new amount", || shown() == (4_u64 << 30).to_string()).await;
        assert_eq!(near.configuration.count(), 0, "the first incarnation has that of the start");
        stage.crash::<VolumeManager>().await;
        stage.until("ConfigManager to be asked", || near.configuration.count() == 1).await;
    });
}

#[test]
fn a_removal_that_lasts_for_hours_is_waited_for() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        mount(&actor).await.unwrap().unwrap();
        actor.address().tell(desired_of(&[])).unwrap();
        stage.fakes.disk.hang("remove_pod_dir");
        let undo = UnmountVolumes { pod: pod(0).pod_ref.clone() };
        ask(&actor, undo.clone(), 200 * SECOND).await.unwrap().unwrap_err();
        stage.pass(7200 * SECOND).await;
        let report = stage.actor::<VolumeManager>().await;
        assert_eq!((report.incarnation, report.effects_overdue), (1, 0));
        stage.fakes.disk.go_on();
        ask(&actor, undo, SECOND).await.unwrap().unwrap();
    });
}

#[test]
fn an_event_that_is_refused_holds_up_no_volume() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.events.refuse();
        let actor = near.start(stage);
        stage.fakes.disk.fail("make_empty_dir", directory(), 1, "No space left on device");
        let failed = mount(&actor).await.unwrap().unwrap_err();
        assert_eq!(near.events.refused().len(), 1);
        stage.pass(Duration::from_millis(failed.retry_after_ms)).await;
        mount(&actor).await.unwrap().unwrap();
    });
}

#[test]
fn what_an_earlier_incarnation_mounted_is_found_before_it_is_unmounted() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut in_memory = (*pod(0)).clone();
        let volumes = Arc::make_mut(&mut in_memory.pod).spec.as_mut().and_then(|spec| spec.volumes.as_mut());
        volumes.unwrap()[0].empty_dir.as_mut().unwrap().medium = Some("Memory".to_owned());
        let in_memory = Arc::new(in_memory);
        let desired = || desired_of(std::slice::from_ref(&in_memory));
        actor.address().tell(desired()).unwrap();
        let mount = MountVolumes { pod: in_memory.clone() };
        ask(&actor, mount, 300 * SECOND).await.unwrap().unwrap();
        let mounted =
            || stage.fakes.disk.mounts().iter().filter(|at| at.path.starts_with(directory())).count();
        assert_eq!(mounted(), 1);
        stage.crash::<VolumeManager>().await;
        actor.address().tell(desired()).unwrap();
        stage.pass(60 * SECOND).await;
        assert_eq!(mounted(), 1, "the pod goes on");
        // Asked before the next incarnation has looked at anything.
        stage.crash::<VolumeManager>().await;
        let undo = UnmountVolumes { pod: in_memory.pod_ref.clone() };
        ask(&actor, undo, 10 * SECOND).await.unwrap().unwrap();
        assert_eq!(mounted(), 0);
        actor.address().tell(desired_of(&[])).unwrap();
        stage.until("its directory to go", || stage.fakes.disk.kind(directory()).is_none()).await;
    });
}

#[test]
fn a_change_of_ownership_that_takes_long_is_told_of() {
    alone(async |stage| {
        let near = Neighbours::new();
        let actor = near.start(stage);
        let mut grouped = (*pod(0)).clone();
        let spec = Arc::make_mut(&mut grouped.pod).spec.as_mut().unwrap();
        spec.security_context =
            Some(PodSecurityContext { fs_group: Some(7), ..PodSecurityContext::default() });
        stage.fakes.disk.hang("set_group");
        let mut mounting = Box::pin(ask(&actor, MountVolumes { pod: Arc::new(grouped) }, 300 * SECOND));
        assert!(futures::poll!(&mut mounting).is_pending());
        stage.pass(29 * SECOND).await;
        assert_eq!(near.events.count(), 0);
        stage.pass(70 * SECOND).await;
        let told: Vec<String> = near.events.heard().iter().map(|event| event.message.to_string()).collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].contains("is taking longer than expected, consider using OnRootMismatch"),
            "{told:?}"
        );
        assert!(told[1].ends_with("/volumes/kubernetes.io~empty-dir/data, processed 1 files."), "{told:?}");
        stage.fakes.disk.go_on();
        mounting.await.unwrap().unwrap();
        stage.pass(200 * SECOND).await;
        assert_eq!(near.events.count(), 2, "it is over");
    });
}

#[test]
fn what_an_earlier_kubelet_left_of_a_pod_that_is_gone_goes_soon() {
    alone(async |stage| {
        let near = Neighbours::new();
        let left = "/var/lib/kubelet/pods/gone/volumes/kubernetes.io~empty-dir/data";
        stage.fakes.disk.mkdir(left, 0o777);
        let deps = VolumeManagerDeps { sweep: SweepPolicy::default(), ..near.deps(stage) };
        let actor = stage.start(deps, VolumeManager::new);
        stage.pass(30 * SECOND).await;
        assert!(stage.fakes.disk.kind(left).is_some(), "no source has been heard");
        actor.address().tell(desired_of(&[])).unwrap();
        stage.pass(10 * SECOND).await;
        assert!(stage.fakes.disk.kind(left).is_some(), "its pod may have been known a moment ago");
        stage.pass(5 * SECOND).await;
        assert!(stage.fakes.disk.kind(left).is_none());
    });
}

fn object<K: serde::de::DeserializeOwned>(value: serde_json::Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A PersistentVolume of the driver `d`, whose volumes are attached to no node, and its claim; returns a pod with the claim.
fn claimed(api: &FakeApi, mode: &str) -> Arc<DesiredPod> {
    api.put(&object::<CSIDriver>(serde_json::json!({"metadata": {"name": "d"}, "spec": {
        "attachRequired": false, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"],
    }})));
    let mut pod = (*pod(0)).clone();
    let namespace = pod.pod_ref.namespace.to_string();
    let claim = api.put(&object::<PersistentVolumeClaim>(serde_json::json!({
        "metadata": {"name": "c", "namespace": namespace},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    })));
    api.put(&object::<PersistentVolume>(serde_json::json!({
        "metadata": {"name": "pv"},
        "spec": {
            "claimRef": {"uid": claim.metadata.uid}, "csi": {"driver": "d", "volumeHandle": "h"}, "volumeMode": mode,
        },
    })));
    let source = serde_json::json!({"name": "data", "persistentVolumeClaim": {"claimName": "c"}});
    let spec = Arc::make_mut(&mut pod.pod).spec.as_mut().unwrap();
    spec.volumes = Some(vec![object(source)]);
    if mode == "Block" {
        spec.containers[0].volume_mounts = None;
        let device = serde_json::json!({"name": "data", "devicePath": "/dev/x"});
        spec.containers[0].volume_devices = Some(vec![object(device)]);
    }
    Arc::new(pod)
}

#[test]
fn a_crash_at_any_step_of_a_drivers_volume_stages_it_once_and_leaves_nothing() {
    let rpcs =
        [Rpc::NodeStageVolume, Rpc::NodePublishVolume, Rpc::NodeUnpublishVolume, Rpc::NodeUnstageVolume];
    let target = "volumes/kubernetes.io~csi/pv/mount";
    let link = "volumeDevices/kubernetes.io~csi/pv";
    let modes = [("Filesystem", target), ("Block", link)];
    for (rpc, (mode, place)) in rpcs.into_iter().flat_map(|rpc| modes.map(|mode| (rpc, mode))) {
        alone(async move |stage| {
            let api = FakeApi::new(stage.fakes.clock.clone());
            let pod = claimed(&api, mode);
            let near = Neighbours { api: Some(api), ..Neighbours::new() };
            let driver = driver_on(&stage.fakes.disk, "d");
            near.plugins.show_driver(&driver);
            let actor = near.start(stage);
            actor.address().tell(desired_of(std::slice::from_ref(&pod))).unwrap();
            stage.until("the driver to be registered", || near.drivers.count() > 0).await;
            driver.fault(rpc, 1, Fault::ActsLate(5 * SECOND));
            let crash_during = async |what: Rpc| {
                if rpc == what {
                    stage.until("it to be under way", || driver.count(rpc) == 1).await;
                    stage.crash::<VolumeManager>().await;
                    actor.address().tell(desired_of(std::slice::from_ref(&pod))).unwrap();
                }
            };
            let mount = || ask(&actor, MountVolumes { pod: pod.clone() }, 300 * SECOND);
            if matches!(rpc, Rpc::NodeStageVolume | Rpc::NodePublishVolume) {
                let (lost, ()) = futures::join!(mount(), crash_during(rpc));
                lost.unwrap_err();
            }
            let volumes = mount().await.unwrap().unwrap();
            assert_eq!(volumes.host_paths, [("data".to_owned(), format!("{}/{place}", directory()))].into());
            // What the driver has not said to be done is asked for again: no mount tells.
            let expected = |at: Rpc| if rpc == at { 2 } else { 1 };
            let expected = [Rpc::NodeStageVolume, Rpc::NodePublishVolume].map(expected);
            let counts = [Rpc::NodeStageVolume, Rpc::NodePublishVolume].map(|rpc| driver.count(rpc));
            assert_eq!(counts, expected, "{rpc} {mode}");

            let undo = || ask(&actor, UnmountVolumes { pod: pod.pod_ref.clone() }, 300 * SECOND);
            if rpc == Rpc::NodeUnpublishVolume {
                let (lost, ()) = futures::join!(undo(), crash_during(rpc));
                lost.unwrap_err();
            }
            undo().await.unwrap().unwrap();
            crash_during(Rpc::NodeUnstageVolume).await;
            actor.address().tell(desired_of(&[])).unwrap();
            let notes = "/var/lib/kubelet/plugins";
            stage
                .until("nothing to be left", || {
                    let held = driver.held();
                    held.staged.is_empty()
                        && held.published.is_empty()
                        && stage.fakes.disk.files_below(notes).is_empty()
                })
                .await;
            assert_eq!(driver.broken_rules(), Vec::<String>::new());
            assert_eq!(stage.fakes.disk.mounts().len(), 0);
            assert_eq!(stage.fakes.disk.files_below("/sys/block"), [].into(), "every loop device is free");
        });
    }
}
