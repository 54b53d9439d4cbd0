//! Volumes of FlexVolume drivers (row 10.15), whose programs are fakes that mount on a disk in memory. The test plays the
//! controller that attaches volumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use bridge_node::host::{FakeFlexDrivers, FlexAnswer, FlexCall};
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, member, settings};
use testkit::sandbox;

use crate::csi::{PODS, in_use, pod, pod_of, pod_with};
use crate::objects::{NS, clustered, object, ready, until};

const DRIVER: &str = "vendor/tool";
/// Where a driver that mounts devices has the PersistentVolume for the node.
const PLACE: &str = "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/vendor/tool/mounts/pv-1";

fn says(answer: &Value) -> FlexAnswer {
    let failed = (answer["status"] != "Success").then(|| "exit status 1".to_owned());
    FlexAnswer { failed, out: answer.to_string().into_bytes(), err: Vec::new() }
}

/// A driver that mounts on the disk of the world, and tells that it can do this.
fn install(world: &World, capabilities: Value) {
    let disk = world.disk.clone();
    let mount = move |dir: &str, minor: u32| {
        disk.add_mount(MountPoint {
            path: dir.into(),
            root: "/".into(),
            fs_type: "fuse.tool".to_owned(),
            source: "tool".to_owned(),
            options: vec!["rw".to_owned()],
            fs_options: Vec::new(),
            device: (0, minor),
        });
    };
    let disk = world.disk.clone();
    world.flex_drivers.install(DRIVER, move |call: &FlexCall| {
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        match args.as_slice() {
            ["init"] => return says(&json!({"status": "Success", "capabilities": capabilities})),
            ["waitforattach", device, _] => {
                return says(&json!({"status": "Success", "device": format!("{device}1")}));
            }
            ["mount", dir, _] => mount(dir, 201),
            ["mountdevice", dir, _, _] => mount(dir, 202),
            ["unmount" | "unmountdevice", dir] => drop(disk.remove_mounts_at(dir)),
            _ => return says(&json!({"status": "Not supported"})),
        }
        says(&json!({"status": "Success"}))
    });
}

/// The calls of this command, with their arguments.
fn calls(drivers: &FakeFlexDrivers, command: &str) -> Vec<Vec<String>> {
    let calls = drivers.calls().into_iter().map(|call| call.args);
    let of_command = calls.filter(|args| args[0] == command);
    of_command.map(|args| args[1..].to_vec()).collect()
}

fn place(uid: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumes/vendor~tool").join(name)
}

fn is_mounted(world: &World, path: &Path) -> bool {
    world.disk.mounts().iter().any(|mount| mount.path == path)
}

fn own() -> Value {
    json!({"flexVolume": {"driver": DRIVER}})
}

/// What was told of volumes that cannot be mounted.
async fn failures(node: &FakeNode) -> Vec<String> {
    let events = node.events().await;
    let told = events.iter().filter(|event| &*event.reason == "FailedMount");
    told.map(|event| event.message.to_string()).collect()
}

#[test]
fn a_driver_mounts_with_what_it_is_told_and_undoes_its_volume() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(441);
        install(&world, json!({"attach": false}));
        api.put(&object::<Secret>(json!({
            "metadata": {"name": "s", "namespace": "default"}, "type": DRIVER, "data": {"key": "dmFsdWU="},
        })));
        let source = json!([{"name": "v", "flexVolume": {
            "driver": DRIVER, "fsType": "ext4", "options": {"share": "x"}, "secretRef": {"name": "s"},
        }}]);
        let uid = pod_of(&api, "web", &source, &json!({"fsGroup": 7}));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || ready(&api, "web")).await;
        let v = place(&uid, "v");
        let mounts = calls(&world.flex_drivers, "mount");
        assert_eq!((mounts.len(), Path::new(&mounts[0][0])), (1, v.as_path()));
        let told: Value = serde_json::from_str(&mounts[0][1]).expect("JSON");
        let expected = json!({
            "kubernetes.io/fsType": "ext4", "kubernetes.io/readwrite": "rw", "kubernetes.io/pvOrVolumeName": "v",
            "kubernetes.io/pod.name": "web", "kubernetes.io/pod.namespace": "default", "kubernetes.io/pod.uid": uid,
            "kubernetes.io/serviceAccount.name": "default", "kubernetes.io/mounterArgs.FsGroup": "7",
            "kubernetes.io/secret/key": "dmFsdWU=", "share": "x",
        });
        assert_eq!(told, expected);
        assert_eq!(world.disk.mode(&v), Some(0o2770), "it is given to the pod's group");
        let containers = world.runtime.containers();
        assert!(containers[0].mounts.iter().any(|mount| Some(mount.host_path.as_str()) == v.to_str()));

        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(ready(&api, "web"));
        assert_eq!(calls(&world.flex_drivers, "mount").len(), 1, "it is found by its mount");
        api.delete::<Pod>(NS, "web", None);
        until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
        let unmounts = calls(&world.flex_drivers, "unmount");
        assert_eq!((unmounts.len(), Path::new(&unmounts[0][0])), (1, v.as_path()));
        assert!(!is_mounted(&world, &v));
        node.stop().await;
    });
}

#[test]
fn a_volume_waits_for_its_driver_and_a_driver_that_fails_is_quoted() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(442);
        pod_with(&api, "web", own());
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(5)).await;
        let missing =
            "err=no volume plugin matched: flexVolume driver vendor/tool: it is not in /volume-plugins";
        let told = failures(&node).await;
        assert!(told.iter().any(|said| said.contains(missing)), "{told:?}");
        world.flex_drivers.install(DRIVER, |call| match call.args[0].as_str() {
            "init" => says(&json!({"status": "Success", "capabilities": {"attach": false}})),
            _ => says(&json!({"status": "Failure", "message": "the share is away"})),
        });
        sandbox.pass(Duration::from_secs(120)).await;
        let fails =
            "flexVolume driver vendor/tool: mount command failed, status: Failure, reason: the share is away";
        let told = failures(&node).await;
        assert!(told.iter().any(|said| said.contains(fails)), "{told:?}");
        assert!(!ready(&api, "web"));
        install(&world, json!({"attach": false}));
        until("the pod to be Ready", || ready(&api, "web")).await;
        assert_eq!(calls(&world.flex_drivers, "init").len(), 2, "each program says once what it can do");
        node.stop().await;
    });
}

#[test]
fn a_driver_that_hangs_or_is_gone_holds_up_its_pod_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(443);
        install(&world, json!({"attach": false}));
        let uid = pod_with(&api, "hangs", own());
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || ready(&api, "hangs")).await;
        world.flex_drivers.hang("unmount");
        api.delete::<Pod>(NS, "hangs", None);
        until("its unmount to hang", || calls(&world.flex_drivers, "unmount").len() == 1).await;
        pod_with(&api, "other", own());
        until("another pod to be Ready", || ready(&api, "other")).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(api.get::<Pod>(NS, "hangs").is_some() && is_mounted(&world, &place(&uid, "v")));
        world.flex_drivers.go_on();
        until("it to be gone", || api.get::<Pod>(NS, "hangs").is_none()).await;

        world.flex_drivers.remove(DRIVER);
        api.delete::<Pod>(NS, "other", None);
        sandbox.pass(Duration::from_secs(120)).await;
        assert!(api.get::<Pod>(NS, "other").is_some(), "nothing is unmounted behind the driver's back");
        install(&world, json!({"attach": false}));
        until("it to be gone", || api.get::<Pod>(NS, "other").is_none()).await;
        until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
        node.stop().await;
    });
}

/// The PersistentVolume of the driver, and the claim that is bound to it.
fn claimed(api: &FakeApi) {
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim-1", "namespace": "default"},
        "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    })));
    api.put(&object::<PersistentVolume>(json!({
        "metadata": {"name": "pv-1"},
        "spec": {
            "flexVolume": {"driver": DRIVER, "fsType": "xfs"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "claim-1", "uid": bound.metadata.uid},
        },
    })));
}

#[test]
fn a_volume_that_a_controller_attaches_is_mounted_once_for_its_pods() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(444);
        install(&world, json!({}));
        claimed(&api);
        let first = pod(&api, "first", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        let name = "vendor/tool/pv-1".to_owned();
        until("the volume to be in use", || in_use(&api) == [name.clone()]).await;
        assert!(calls(&world.flex_drivers, "mountdevice").is_empty(), "it is not attached");
        let attached = json!({"status": {"volumesAttached": [{"name": name, "devicePath": "/dev/sdq"}]}});
        api.change::<Node>(None, "node", Some("status"), &Patch::Merge(attached));
        until("the pod to be Ready", || ready(&api, "first")).await;
        let second = pod(&api, "second", "1");
        until("the other pod to be Ready", || ready(&api, "second")).await;
        let devices = calls(&world.flex_drivers, "mountdevice");
        assert_eq!((devices.len(), &devices[0][..2]), (1, &[PLACE.to_owned(), "/dev/sdq1".to_owned()][..]));
        assert!(devices[0][2].contains(r#""kubernetes.io/fsType":"xfs""#), "{devices:?}");
        for uid in [&first, &second] {
            assert!(is_mounted(&world, &place(uid, "pv-1")));
        }
        assert_eq!(calls(&world.flex_drivers, "getvolumename").len(), 1, "it has no such command");

        api.delete::<Pod>(NS, "first", None);
        until("it to be gone", || api.get::<Pod>(NS, "first").is_none()).await;
        sandbox.pass(Duration::from_secs(30)).await;
        assert!(is_mounted(&world, Path::new(PLACE)) && in_use(&api) == [name.clone()]);
        api.delete::<Pod>(NS, "second", None);
        until("the volume to leave the node", || in_use(&api).is_empty()).await;
        assert_eq!(calls(&world.flex_drivers, "unmountdevice"), [[PLACE.to_owned()]]);
        assert!(!is_mounted(&world, Path::new(PLACE)) && world.disk.children(PODS).is_empty());
        node.stop().await;
    });
}
