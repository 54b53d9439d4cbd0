//! Shares of NFS servers (row 10.10), on a server and a disk in memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_kube::fake::FakeApi;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, member, settings};
use testkit::sandbox;

use crate::csi::{PODS, pod, pod_with};
use crate::csi_nodes::node_ready;
use crate::life::world;
use crate::objects::{NS, clustered, object, ready, until};

/// Where a pod has a share with this name of its volume.
fn place(uid: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumes/kubernetes.io~nfs").join(name)
}

fn mounts_at(world: &World, path: &Path) -> Vec<MountPoint> {
    world.disk.mounts().into_iter().filter(|mount| mount.path == path).collect()
}

/// A share as a PersistentVolume, with the claim of pods that is bound to it.
fn claimed(api: &FakeApi) {
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim-1", "namespace": "default"},
        "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    })));
    api.put(&object::<PersistentVolume>(json!({
        "metadata": {"name": "pv-1"},
        "spec": {
            "nfs": {"server": "files", "path": "/data"}, "mountOptions": ["soft", "nfsvers=4.2"],
            "accessModes": ["ReadWriteMany"],
            "claimRef": {"namespace": "default", "name": "claim-1", "uid": bound.metadata.uid},
        },
    })));
}

#[test]
fn a_share_is_mounted_as_its_volume_says_and_kept_by_the_next_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(431);
        claimed(&api);
        let uid = pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || ready(&api, "web")).await;
        let v = place(&uid, "pv-1");
        let mount = mounts_at(&world, &v).pop().expect("it is mounted");
        assert_eq!((mount.fs_type.as_str(), mount.source.as_str()), ("nfs", "files:/data"));
        assert_eq!(mount.options, ["nfsvers=4.2", "soft"]);
        let seen = |world: &World| {
            let containers = world.runtime.containers();
            let mounts = containers.iter().flat_map(|container| container.mounts.iter());
            mounts.filter(|mount| Some(mount.host_path.as_str()) == v.to_str()).count()
        };
        assert_eq!(seen(&world), 1, "the container has it");

        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(ready(&api, "web"));
        assert_eq!(mounts_at(&world, &v).len(), 1, "it is found, and mounted no second time");
        api.delete::<Pod>(NS, "web", None);
        until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
        assert!(mounts_at(&world, &v).is_empty());
        node.stop().await;
    });
}

#[test]
fn a_static_pod_may_have_a_share() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(432);
        let manifest = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    volumeMounts: [{{name: share, mountPath: /share}}]
  volumes: [{{name: share, nfs: {{server: 'fd00::1', path: /data, readOnly: true}}}}]
"
        );
        world.manifest("web.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("web to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
        let mounts = world.disk.mounts();
        let share = mounts.iter().find(|mount| mount.fs_type == "nfs").expect("it is mounted");
        assert_eq!(share.source, "[fd00::1]:/data");
        assert_eq!(share.options, ["ro"]);
        let containers = world.runtime.containers();
        assert!(containers[0].mounts.iter().any(|mount| mount.container_path == "/share" && mount.readonly));
        world.remove_manifest("web.yaml");
        node.until_empty().await;
        node.until("web to be forgotten", |pods| pods.is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn a_server_that_has_gone_holds_up_its_pod_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(433);
        let share = |path: &str| json!({"nfs": {"server": "files", "path": path}});
        let uid = pod_with(&api, "hangs", share("/gone"));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "hangs")).await;
        let v = place(&uid, "v");
        world.disk.hang("unmount");
        api.delete::<Pod>(NS, "hangs", None);
        until("its unmount to hang", || world.disk.hung() == [v.clone()]).await;

        pod_with(&api, "other", share("/there"));
        until("another pod to be Ready", || ready(&api, "other")).await;
        api.delete::<Pod>(NS, "other", None);
        until("it to be gone", || api.get::<Pod>(NS, "other").is_none()).await;
        sandbox.pass(Duration::from_secs(30)).await;
        let node_is = node_ready(&api).expect("it has conditions");
        assert_eq!(node_is.status, "True");
        assert!(api.get::<Pod>(NS, "hangs").is_some(), "its volume is not undone");

        world.disk.go_on();
        until("it to be gone", || api.get::<Pod>(NS, "hangs").is_none()).await;
        until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn a_program_that_cannot_mount_a_share_is_quoted() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(434);
        world.disk.fail("mount_by_helper", PODS, 3, "you might need a /sbin/mount.<type> helper program");
        pod_with(&api, "web", json!({"nfs": {"server": "files", "path": "/data"}}));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || ready(&api, "web")).await;
        let events = node.events().await;
        let said = events.iter().filter(|event| &*event.reason == "FailedMount");
        let said: Vec<&str> = said.map(|event| &*event.message).collect();
        let is_quoted = |said: &&str| {
            said.starts_with("MountVolume.SetUp failed for volume \"v\"")
                && said.ends_with("you might need a /sbin/mount.<type> helper program")
        };
        assert!(said.iter().any(is_quoted), "{said:?}");
        node.stop().await;
    });
}
