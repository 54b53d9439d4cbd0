//! Block devices of pods (row 10.19): of CSI drivers, of the node itself, and those that a Go kubelet has left.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_csi::Rpc;
use bridge_csi::fake::{FakeDriver, Fault};
use bridge_kube::fake::FakeApi;
use bridge_node::mounts::{FileKind, MountPoint};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use messages::volume_manager::GetVolumeStats;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, member};
use testkit::sandbox;

use crate::csi::{
    DRIVER, PODS, attach, in_use, mounted, told, unique, until_nothing_is_left, volume_of, with_driver,
};
use crate::objects::{NS, container, object, ready, until};

const DEVICES: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices";

fn unattached() -> Value {
    json!({"attachRequired": false, "fsGroupPolicy": "File", "volumeLifecycleModes": ["Persistent"]})
}

/// A pod that has the claim of this handle in `field` of its container.
fn pod_with(api: &FakeApi, name: &str, handle: &str, field: &str) -> String {
    let used = if field == "volumeDevices" {
        json!({"name": "v", "devicePath": "/dev/x"})
    } else {
        json!({"name": "v", "mountPath": "/v"})
    };
    let pod = api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default",
            "securityContext": {"fsGroup": 7},
            "containers": [container("main", json!({field: [used]}))],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": format!("claim-{handle}")}}],
        },
    })));
    pod.metadata.uid.expect("a UID")
}

/// A pod that has the device of this handle.
pub fn pod(api: &FakeApi, name: &str, handle: &str) -> String {
    pod_with(api, name, handle, "volumeDevices")
}

fn link(uid: &str, plugin: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumeDevices").join(plugin).join(name)
}

fn publish(name: &str, uid: &str) -> PathBuf {
    Path::new(DEVICES).join("publish").join(name).join(uid)
}

fn map(name: &str, uid: &str) -> PathBuf {
    Path::new(DEVICES).join(name).join("dev").join(uid)
}

fn loops(world: &World) -> Vec<String> {
    let files = world.disk.files_below("/sys/block").into_values();
    files.map(|file| String::from_utf8(file).expect("a path")).collect()
}

fn counts(driver: &FakeDriver) -> [u64; 4] {
    use Rpc::{NodePublishVolume, NodeStageVolume, NodeUnpublishVolume, NodeUnstageVolume};
    [NodeStageVolume, NodePublishVolume, NodeUnpublishVolume, NodeUnstageVolume].map(|rpc| driver.count(rpc))
}

#[test]
fn a_device_is_laid_out_as_the_go_kubelet_does_and_gone_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            221,
            json!({"attachRequired": true, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent"]}),
        );
        world.plugins.show_driver(&driver);
        volume_of(&api, "1", "Block", json!({"volumeAttributes": {"share": "x"}}));
        let uid = pod(&api, "raw", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the volume to be told in use", || in_use(&api) == [unique("1")]).await;
        attach(&api, "1");
        until("the pod to be Ready", || ready(&api, "raw")).await;

        let (link, publish, map) =
            (link(&uid, "kubernetes.io~csi", "pv-1"), publish("pv-1", &uid), map("pv-1", &uid));
        assert_eq!(world.disk.link_target(&link).as_deref(), Some(publish.as_path()));
        assert_eq!(loops(&world), [map.to_str().expect("a text")]);
        let held = driver.held();
        assert_eq!(held.staged["1"].path, format!("{DEVICES}/staging/pv-1"));
        let published = &held.published[publish.to_str().expect("a text")];
        assert!(held.staged["1"].is_block && published.is_block, "{held:?}");
        assert_eq!(published.context["csi.storage.k8s.io/pod.uid"], uid);
        let note = world.disk.read(format!("{DEVICES}/pv-1/data/vol_data.json")).expect("it is noted");
        let note = String::from_utf8(note).expect("a text");
        assert!(note.contains(r#""specVolID":"pv-1""#) && !note.contains("volumeLifecycleMode"), "{note}");
        for place in ["globalMapPath", "volumeMapPath"] {
            let text = format!("MapVolume.MapPodDevice succeeded for volume \"pv-1\" {place} ");
            assert!(told(&api, "SuccessfulMountVolume").iter().any(|told| told.starts_with(&text)));
        }
        let told = node.node.volume_stats.ask(GetVolumeStats, Duration::from_secs(5)).await.expect("figures");
        let usage = told.values().next().expect("of the pod")["v"].usage.clone();
        assert_eq!(usage.map(|usage| usage.capacity_bytes), Some(1 << 30));

        api.delete::<Pod>(NS, "raw", None);
        until_nothing_is_left(&world, &driver).await;
        until("the volume to be in use no longer", || in_use(&api).is_empty()).await;
        assert_eq!((counts(&driver), driver.broken_rules()), ([1; 4], vec![]));
        assert_eq!(
            world.disk.children(DEVICES).len(),
            1,
            "only the directory of staged devices, which is empty"
        );
        node.stop().await;
    });
}

#[test]
fn a_device_of_two_pods_is_staged_once_and_a_new_kubelet_touches_nothing() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(222, unattached());
        world.plugins.show_driver(&driver);
        volume_of(&api, "1", "Block", json!({}));
        for name in ["a", "b"] {
            pod(&api, name, "1");
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("both to be Ready", || ready(&api, "a") && ready(&api, "b")).await;
        assert_eq!((counts(&driver), loops(&world).len()), ([1, 2, 0, 0], 2));
        let node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(ready(&api, "a") && ready(&api, "b"));
        assert_eq!((counts(&driver), loops(&world).len()), ([1, 2, 0, 0], 2), "nothing is mapped anew");

        api.delete::<Pod>(NS, "a", None);
        until("it to go", || api.get::<Pod>(NS, "a").is_none()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert_eq!((counts(&driver), loops(&world).len()), ([1, 2, 1, 0], 1));
        pod(&api, "c", "1");
        until("a third to be Ready", || ready(&api, "c")).await;
        assert_eq!(counts(&driver), [1, 3, 1, 0], "it is staged still");
        for name in ["b", "c"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        assert_eq!((counts(&driver), driver.broken_rules()), ([1, 3, 3, 1], vec![]));
        node.stop().await;
    });
}

#[test]
fn what_fails_is_told_in_upstreams_words_and_cleared_away() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(223, unattached());
        volume_of(&api, "1", "Block", json!({}));
        volume_of(&api, "2", "Filesystem", json!({}));
        pod_with(&api, "mounts", "1", "volumeMounts");
        pod(&api, "device", "2");
        pod(&api, "raw", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        sandbox.pass(Duration::from_secs(10)).await;
        let events = |reason: &str, text: &str| told(&api, reason).iter().any(|told| told.contains(text));
        assert!(events("FailedMount", "volume v has volumeMode Block, but is specified in volumeMounts"));
        assert!(events(
            "FailedMount",
            "volume v has volumeMode Filesystem, but is specified in volumeDevices"
        ));
        let missing = "MapVolume.SetUpDevice failed for volume \"pv-1\" : kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: driver name disk.example not found in the list of registered CSI drivers";
        assert!(events("FailedMapVolume", missing), "{:?}", told(&api, "FailedMapVolume"));

        let refused = |what: &str| Fault::Error(bridge_csi::CsiErrorKind::Internal, what.to_owned());
        driver.fault(Rpc::NodeStageVolume, 1, refused("no disk"));
        driver.fault(Rpc::NodePublishVolume, 1, refused("no path"));
        world.disk.fail("map_device", DEVICES, 1, "losetup -f failed");
        world.plugins.show_driver(&driver);
        until("the pod to be Ready", || ready(&api, "raw")).await;
        for text in [
            "MapVolume.SetUpDevice failed for volume \"pv-1\" : rpc error: code = Internal desc = no disk",
            "MapVolume.MapPodDevice failed for volume \"pv-1\" : rpc error: code = Internal desc = no path",
            "MapVolume.MapBlockVolume failed for volume \"pv-1\" : ",
        ] {
            assert!(events("FailedMapVolume", text), "{text}: {:?}", told(&api, "FailedMapVolume"));
        }
        for name in ["mounts", "device", "raw"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn what_a_kubelet_left_half_way_the_next_one_goes_on_with() {
    sandbox(Policy::default(), async |sandbox| {
        for (seed, rpc) in
            [(224, Rpc::NodePublishVolume), (225, Rpc::NodeUnpublishVolume), (226, Rpc::NodeUnstageVolume)]
        {
            let (world, api, driver) = with_driver(seed, unattached());
            world.plugins.show_driver(&driver);
            volume_of(&api, "1", "Block", json!({}));
            pod(&api, "raw", "1");
            driver.fault(rpc, 1, Fault::ActsLate(Duration::from_secs(20)));
            let mut node = FakeNode::start(sandbox, &world, &member().await);
            if rpc == Rpc::NodePublishVolume {
                until("it to be published", || driver.count(rpc) == 1).await;
                node = node.restart(&member().await, Policy::default()).await;
            }
            until("the pod to be Ready", || ready(&api, "raw")).await;
            // No mount tells the next kubelet that it is staged: it asks again.
            let staged = if rpc == Rpc::NodePublishVolume { 2 } else { 1 };
            assert_eq!(driver.count(Rpc::NodeStageVolume), staged);
            api.delete::<Pod>(NS, "raw", None);
            if rpc != Rpc::NodePublishVolume {
                until("it to be undone", || driver.count(rpc) == 1).await;
                node = node.restart(&member().await, Policy::default()).await;
            }
            until_nothing_is_left(&world, &driver).await;
            node.stop().await;
        }
    });
}

/// Lays a published device out as the Go kubelet does.
fn of_go(world: &World, driver: &FakeDriver, uid: &str) {
    let publish = publish("pv-9", uid);
    let data = json!({
        "specVolID": "pv-9", "volumeHandle": "9", "driverName": DRIVER, "nodeName": "node", "attachmentID": "csi-9",
    });
    world.disk.write(format!("{DEVICES}/pv-9/data/vol_data.json"), data.to_string(), 0o644);
    world.disk.mkdir(format!("{DEVICES}/staging/pv-9"), 0o750);
    world.disk.special(&publish, FileKind::BlockDevice);
    let mount = |path: &Path, root: &Path| MountPoint {
        path: path.to_path_buf(),
        root: root.to_path_buf(),
        fs_type: "devtmpfs".to_owned(),
        source: "devtmpfs".to_owned(),
        options: vec!["rw".to_owned()],
        fs_options: Vec::new(),
        device: (0, 6),
    };
    world.disk.add_mount(mount(&publish, Path::new("/sdb")));
    world.disk.write(map("pv-9", uid), "", 0o750);
    world.disk.add_mount(mount(&map("pv-9", uid), &publish));
    world.disk.write("/sys/block/loop7/loop/backing_file", map("pv-9", uid).display().to_string(), 0o444);
    world.disk.symlink(link(uid, "kubernetes.io~csi", "pv-9"), publish);
    // A loop device of another program on the same machine.
    world.disk.write("/sys/block/loop8/loop/backing_file", "/srv/image.iso", 0o444);
    assert_eq!(driver.held(), Default::default());
}

#[test]
fn a_device_of_the_go_kubelet_stays_with_its_driver() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(227, unattached());
        of_go(&world, &driver, "u9");
        api.put(&object::<Node>(json!({
            "metadata": {"name": "node"},
            "status": {"volumesInUse": [unique("9")], "volumesAttached": [{"name": unique("9"), "devicePath": ""}]},
        })));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("it to be reported in use", || in_use(&api) == [unique("9")]).await;
        sandbox.pass(Duration::from_secs(120)).await;
        // Its driver is not there: nothing is torn out behind the driver's back, and the pod's directory stays.
        let of_driver = publish("pv-9", "u9");
        assert!(world.disk.mounts().iter().any(|mount| mount.path == of_driver));
        assert!(world.disk.kind(link("u9", "kubernetes.io~csi", "pv-9")).is_some());
        world.plugins.show_driver(&driver);
        until("the pod's directory to go", || world.disk.children(PODS).is_empty()).await;
        until("the device to be unstaged", || driver.count(Rpc::NodeUnstageVolume) == 1).await;
        until("the notes to go", || world.disk.kind(format!("{DEVICES}/pv-9")).is_none()).await;
        assert_eq!((mounted(&world), counts(&driver)), (0, [0, 0, 1, 1]));
        assert_eq!(loops(&world), ["/srv/image.iso"], "what is not the kubelet's stays");
        node.stop().await;
    });
}

/// A disk that only a link names, a volume of this spec for it, and the claim that the volume is bound to.
fn disk_of_the_node(world: &World, api: &FakeApi, mut spec: Value) {
    world.disk.special("/dev/sdc", FileKind::BlockDevice);
    world.disk.symlink("/dev/disk/by-id/c", "/dev/sdc");
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim-l", "namespace": "default"},
        "spec": {"volumeName": "pv-l"}, "status": {"phase": "Bound"},
    })));
    spec["claimRef"] = json!({"namespace": "default", "name": "claim-l", "uid": bound.metadata.uid});
    api.put(&object::<PersistentVolume>(json!({"metadata": {"name": "pv-l"}, "spec": spec})));
}

#[test]
fn a_disk_of_the_node_is_mounted_once_for_all_of_its_pods() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(229, unattached());
        disk_of_the_node(
            &world,
            &api,
            json!({
                    "accessModes": ["ReadWriteOnce"], "local": {"path": "/dev/disk/by-id/c", "fsType": "xfs"},
            }),
        );
        let uids = ["one", "two"].map(|name| pod_with(&api, name, "l", "volumeMounts"));
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pods to be Ready", || ["one", "two"].iter().all(|name| ready(&api, name))).await;
        let place = Path::new("/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv-l");
        let mounted = || -> Vec<PathBuf> {
            let mounts = world.disk.mounts().into_iter().filter(|mount| mount.source == "/dev/sdc");
            mounts.map(|mount| mount.path).collect()
        };
        let of_pod = |uid: &String| Path::new(PODS).join(uid).join("volumes/kubernetes.io~local-volume/pv-l");
        let seen = mounted();
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert!(seen[0] == place && uids.iter().all(|uid| seen.contains(&of_pod(uid))), "{seen:?}");
        let types = world.disk.mounts();
        assert!(types.iter().any(|mount| mount.path == place && mount.fs_type == "xfs"));

        api.delete::<Pod>(NS, "one", None);
        until("the first to go", || api.get::<Pod>(NS, "one").is_none()).await;
        node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!(mounted(), [place.to_path_buf(), of_pod(&uids[1])], "the other has it still");
        api.delete::<Pod>(NS, "two", None);
        until_nothing_is_left(&world, &driver).await;
        until("the place to go", || world.disk.kind(place).is_none()).await;
        assert!(world.disk.kind("/dev/sdc").is_some());
        node.stop().await;
    });
}

#[test]
fn a_disk_of_the_node_is_given_to_its_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(228, unattached());
        disk_of_the_node(
            &world,
            &api,
            json!({
                    "accessModes": ["ReadWriteOncePod"], "volumeMode": "Block", "local": {"path": "/dev/disk/by-id/c"},
            }),
        );
        let uid = pod(&api, "raw", "l");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "raw")).await;
        let link = link(&uid, "kubernetes.io~local-volume", "pv-l");
        assert_eq!(world.disk.link_target(&link).as_deref(), Some(Path::new("/dev/sdc")));
        let maps = "/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pv-l";
        assert_eq!(loops(&world), [format!("{maps}/{uid}")]);
        // It is for one pod alone.
        pod(&api, "other", "l");
        sandbox.pass(Duration::from_secs(5)).await;
        let text = "MapVolume.SetUpDevice failed for volume \"pv-l\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
        assert!(
            told(&api, "FailedMapVolume").iter().any(|told| told == text),
            "{:?}",
            told(&api, "FailedMapVolume")
        );
        let node = node.restart(&member().await, Policy::default()).await;
        api.delete::<Pod>(NS, "raw", None);
        until("the other to be Ready", || ready(&api, "other")).await;
        api.delete::<Pod>(NS, "other", None);
        until_nothing_is_left(&world, &driver).await;
        assert!(world.disk.kind(maps).is_none() && world.disk.kind("/dev/sdc").is_some());
        node.stop().await;
    });
}
