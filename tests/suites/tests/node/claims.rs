//! Pods with persistent volume claims (rows 10.13 and 10.18), on a server and a disk in memory.

use std::time::Duration;

use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::sandbox;

use crate::objects::{NS, clustered, mounts_v, object, pod, told_ready, until};

/// A claim for 1 GiB that is bound to `pv`, or to none yet.
fn claim(api: &FakeApi, phase: &str) -> String {
    let claim = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": phase},
    })));
    claim.metadata.uid.expect("the server gives one")
}

/// The PersistentVolume `pv` with this source, bound to the claim of this UID.
fn persistent_volume(api: &FakeApi, uid: &str, source: Value) {
    let mut spec = json!({"claimRef": {"namespace": "default", "name": "claim", "uid": uid}});
    spec.as_object_mut().expect("a map").extend(source.as_object().expect("a map").clone());
    api.put(&object::<PersistentVolume>(json!({"metadata": {"name": "pv"}, "spec": spec})));
}

fn of_claim() -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}])
}

#[test]
fn a_claim_leads_to_its_volume_and_says_why_it_does_not_yet() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(91);
        world.disk.mkdir("/disks/a", 0o755);
        world.disk.write("/disks/a/kept", *b"data", 0o644);
        let uid = claim(&api, "Pending");
        persistent_volume(&api, &uid, json!({"local": {"path": "/disks/a"}}));
        pod(&api, mounts_v(), of_claim());
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(5)).await;
        let why = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: error processing PVC default/claim: PVC is not bound";
        let events = node.events().await;
        let told = events.iter().filter(|event| &*event.reason == "FailedMount");
        let told: Vec<&str> = told.map(|event| &*event.message).collect();
        assert!(
            !told.is_empty() && told.iter().all(|message| *message == why),
            "{told:?} of {events:?} {:?}",
            api.get::<Pod>(NS, "web").and_then(|pod| pod.status)
        );
        assert!(!told_ready(&api));

        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        api.change::<PersistentVolumeClaim>(NS, "claim", Some("status"), &bound);
        until("the pod to be Ready", || told_ready(&api)).await;
        let pods = world.disk.children("/var/lib/kubelet/pods");
        let path = pods[0].join("volumes/kubernetes.io~local-volume/pv");
        let mounts = world.disk.mounts();
        let mount = mounts.iter().find(|mount| mount.path == path).expect("it is mounted");
        assert_eq!(mount.root, std::path::Path::new("/disks/a"));
        let containers = world.runtime.containers();
        let seen = containers[0].mounts.iter().find(|mount| mount.container_path == "/v");
        assert_eq!(seen.map(|mount| mount.host_path.as_str()), path.to_str());

        api.delete::<Pod>(NS, "web", None);
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(world.disk.children("/var/lib/kubelet/pods").is_empty());
        assert!(world.disk.mounts().iter().all(|mount| mount.path != path));
        assert_eq!(world.disk.read("/disks/a/kept"), Some(b"data".to_vec()), "it outlives the pod");
        node.stop().await;
    });
}

#[test]
fn a_volume_of_another_claim_and_one_of_an_unknown_kind_are_refused() {
    for (seed, other, source, expected) in [
        (
            92,
            true,
            json!({"local": {"path": "/disks/a"}}),
            "error processing PVC default/claim: found PV object pv but its pv.Spec.ClaimRef.UID stranger does not point to claim.UID ",
        ),
        (
            93,
            false,
            json!({"cephfs": {"monitors": ["a"]}}),
            "failed to process volumes=[v]: failed to get Plugin from volumeSpec for volume \"pv\" err=no volume plugin matched",
        ),
    ] {
        sandbox(Policy::default(), async move |sandbox| {
            let (world, api) = clustered(seed);
            let uid = claim(&api, "Bound");
            persistent_volume(&api, if other { "stranger" } else { &uid }, source);
            pod(&api, mounts_v(), of_claim());
            let node = FakeNode::start(sandbox, &world, &settings());
            sandbox.pass(Duration::from_secs(5)).await;
            let events = node.events().await;
            let told: Vec<&str> = events
                .iter()
                .filter(|event| &*event.reason == "FailedMount")
                .map(|event| &*event.message)
                .collect();
            assert!(told.iter().any(|message| message.contains(expected)), "{told:?}");
            assert!(!told_ready(&api));
            node.stop().await;
        });
    }
}

#[test]
fn a_volume_of_the_node_is_used_in_place() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(94);
        let uid = claim(&api, "Bound");
        persistent_volume(&api, &uid, json!({"hostPath": {"path": "/disks/b", "type": "DirectoryOrCreate"}}));
        pod(&api, mounts_v(), of_claim());
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let containers = world.runtime.containers();
        let seen = containers[0].mounts.iter().find(|mount| mount.container_path == "/v");
        assert_eq!(seen.map(|mount| mount.host_path.as_str()), Some("/disks/b"));
        assert!(world.disk.mounts().iter().all(|mount| mount.path != std::path::Path::new("/disks/b")));
        node.stop().await;
    });
}

/// A claim that is bound to a PersistentVolume with this spec and these annotations.
fn claimed(api: &FakeApi, spec: Value, annotations: Value) {
    let claim = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim", "namespace": "default"},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    })));
    let uid = claim.metadata.uid.expect("the server gives one");
    let mut spec = spec;
    spec["claimRef"] = json!({"namespace": "default", "name": "claim", "uid": uid});
    let metadata = json!({"name": "pv", "annotations": annotations});
    api.put(&object::<PersistentVolume>(json!({"metadata": metadata, "spec": spec})));
}

#[test]
fn a_volume_that_may_not_be_used_says_why() {
    let elsewhere = MountPoint {
        path: "/var/lib/kubelet/pods/other/volumes/kubernetes.io~local-volume/pv".into(),
        root: "/disks/a".into(),
        fs_type: "ext4".to_owned(),
        source: "/dev/disk".to_owned(),
        options: vec!["rw".to_owned()],
        fs_options: Vec::new(),
        device: (8, 1),
    };
    for (seed, spec, expected) in [
        (
            113,
            json!({"local": {"path": "/disks/a"}, "accessModes": ["ReadWriteOncePod"]}),
            "MountVolume.SetUp failed for volume \"pv\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod",
        ),
        (
            114,
            json!({"hostPath": {"path": "/disks/a"}, "mountOptions": ["noexec"]}),
            "MountVolume.MountOptionSupport check failed for volume \"pv\" : mount options are not supported for this volume type",
        ),
        (
            116,
            json!({"local": {"path": "/disks/a"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            ]}}}),
            "MountVolume.NodeAffinity check failed for volume \"pv\" : no matching NodeSelectorTerms",
        ),
    ] {
        let elsewhere = elsewhere.clone();
        sandbox(Policy::default(), async move |sandbox| {
            let (world, api) = clustered(seed);
            world.disk.mkdir("/disks/a", 0o755);
            world.disk.mkdir(&elsewhere.path, 0o750);
            world.disk.add_mount(elsewhere);
            claimed(&api, spec, json!({}));
            pod(&api, mounts_v(), of_claim());
            let node = FakeNode::start(sandbox, &world, &settings());
            // The Node is waited for, and this kubelet follows none.
            sandbox.pass(Duration::from_secs(15)).await;
            let events = node.events().await;
            let told: Vec<&str> = events.iter().map(|event| &*event.message).collect();
            assert!(told.iter().any(|message| message.ends_with(expected)), "{told:?}");
            assert!(!told_ready(&api));
            node.stop().await;
        });
    }
}
