//! Volumes that another kubelet has left on the node: those of plugins that this kubelet lacks are reported in use, and
//! neither unmounted nor deleted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_kube::fake::FakeApi;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, World, member, settings};
use testkit::sandbox;

use crate::cluster::within;
use crate::csi_nodes::node_ready;
use crate::desired::inject;
use crate::levels::faults;
use crate::objects::{NS, clustered, object, pod, told_ready, until};

const PODS: &str = "/var/lib/kubelet/pods";

/// Makes a volume as the Go kubelet does through CSI; returns the path of its mount.
fn csi(world: &World, uid: &str, volume: &str, handle: &str) -> PathBuf {
    let dir = Path::new(PODS).join(uid).join("volumes/kubernetes.io~csi").join(volume);
    let data = json!({
        "driverName": "disk.example", "volumeHandle": handle, "specVolID": volume,
        "volumeLifecycleMode": "Persistent", "nodeName": "node",
    });
    world.disk.write(dir.join("vol_data.json"), data.to_string(), 0o600);
    let path = dir.join("mount");
    world.disk.mkdir(&path, 0o750);
    mount(world, &path);
    path
}

fn mount(world: &World, path: &Path) {
    world.disk.add_mount(MountPoint {
        path: path.to_path_buf(),
        root: "/".into(),
        fs_type: "ext4".to_owned(),
        source: "/dev/disk".to_owned(),
        options: vec!["rw".to_owned()],
        fs_options: Vec::new(),
        device: (8, 1),
    });
}

/// Makes a volume as a kubelet does through a plugin that this one does not have; returns the path of its mount.
fn foreign(world: &World, uid: &str, volume: &str) -> PathBuf {
    let path = Path::new(PODS).join(uid).join("volumes/kubernetes.io~other").join(volume);
    world.disk.mkdir(&path, 0o750);
    mount(world, &path);
    path
}

fn is_mounted(world: &World, path: &Path) -> bool {
    world.disk.mounts().iter().any(|mount| mount.path == path)
}

/// The messages of all events of this reason.
fn told(api: &FakeApi, reason: &str) -> Vec<String> {
    let events: Vec<Event> = api.list();
    let events = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    events.filter_map(|event| event.message).collect()
}

fn in_use(api: &FakeApi) -> Option<Vec<String>> {
    api.get::<Node>(None, "node")?.status?.volumes_in_use
}

#[test]
fn volumes_of_another_kubelet_are_in_use_until_they_are_gone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(85);
        let name = |handle: &str| format!("kubernetes.io/csi/disk.example^{handle}");
        api.put(&object::<Node>(json!({
            "metadata": {"name": "node"},
            "status": {
                "volumesInUse": [name("gone"), name("1")],
                "volumesAttached": [{"name": name("2"), "devicePath": ""}],
            },
        })));
        let paths = [csi(&world, "u1", "pvc-1", "1"), csi(&world, "u2", "pvc-2", "2")];
        csi(&world, "u2", "pvc-3", "of-no-node");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the Node to tell what is here", || in_use(&api) == Some(vec![name("1"), name("2")])).await;
        // These pods are not desired, and still nothing of them is removed.
        sandbox.pass(Duration::from_secs(600)).await;
        assert!(paths.iter().all(|path| is_mounted(&world, path)));
        let orphans = told(&api, "FailedOrphanedPodCleanup");
        assert!(
            orphans.iter().any(|text| text.contains("driver name disk.example not found in the list")),
            "by its driver alone: {orphans:?}"
        );
        assert_eq!(in_use(&api), Some(vec![name("1"), name("2")]));

        world.disk.remove_mounts_at(&paths[0]);
        world.disk.remove(Path::new(PODS).join("u1/volumes/kubernetes.io~csi/pvc-1"));
        until("the Node to tell that one is gone", || in_use(&api) == Some(vec![name("2")])).await;
        until("what is left of its pod to go", || {
            !world.disk.children(PODS).contains(&Path::new(PODS).join("u1"))
        })
        .await;
        node.stop().await;
    });
}

#[test]
fn what_is_in_use_may_be_lost_at_nodestatus() {
    for fault in faults("OtherVolumesObserved") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (world, api) = clustered(87);
            let name = "kubernetes.io/csi/disk.example^1".to_owned();
            api.put(&object::<Node>(json!({
                "metadata": {"name": "node"}, "status": {"volumesInUse": [name.clone()]},
            })));
            let path = csi(&world, "u1", "pvc-1", "1");
            let node = FakeNode::start(sandbox, &world, &member().await);
            let is_ready = || node_ready(&api).is_some_and(|ready| ready.status == "True");
            until("a Node that is ready", is_ready).await;
            sandbox.pass(Duration::from_secs(5)).await;
            assert_eq!(in_use(&api), Some(vec![name.clone()]));
            inject(&node, "NodeStatus", fault.clone());
            world.disk.remove_mounts_at(&path);
            world.disk.remove(Path::new(PODS).join("u1/volumes/kubernetes.io~csi/pvc-1"));
            // The volumes that are here are looked for every minute.
            let is_gone = || in_use(&api).is_none_or(|names| names.is_empty());
            within(150, "the Node to tell that it is gone", is_gone).await;
            node.stop().await;
        });
    }
}

#[test]
fn a_pod_with_such_a_volume_waits_with_its_end_and_says_why() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(86);
        let uid = pod(&api, json!({}), json!([])).metadata.uid.expect("a UID");
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let path = foreign(&world, &uid, "disk-1");
        api.delete::<Pod>(NS, "web", None);
        until("word of the volume", || !told(&api, "FailedUnMount").is_empty()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(is_mounted(&world, &path));
        assert!(api.get::<Pod>(NS, "web").is_some(), "it is not over");

        world.disk.remove_mounts_at(&path);
        world.disk.remove(&path);
        until("the pod to go", || api.get::<Pod>(NS, "web").is_none()).await;
        assert!(world.disk.children(PODS).is_empty());
        node.stop().await;
    });
}
