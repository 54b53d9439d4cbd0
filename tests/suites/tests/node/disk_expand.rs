//! File systems of disks that grow (row 10.25): the test plays the controller that has made the disks larger.

use std::path::Path;

use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use bridge_node::mounts::FileKind;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, member};
use testkit::sandbox;

use crate::csi::{PODS, mounted, pod, told};
use crate::csi_expand::{claim, grow, status};
use crate::objects::{NS, clustered, object, ready, until};

/// Where the disk of a local volume is mounted for the node.
const LOCAL_MOUNT: &str = "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv-1";

/// A world with a volume of a gibibyte, which the claim of pods is bound to.
fn stand(seed: u64, source: Value) -> (World, FakeApi) {
    let (world, api) = clustered(seed);
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim-1", "namespace": "default"},
        "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    })));
    let mut spec = source;
    spec["claimRef"] = json!({"namespace": "default", "name": "claim-1", "uid": bound.metadata.uid});
    api.put(&object::<PersistentVolume>(json!({"metadata": {"name": "pv-1"}, "spec": spec})));
    let size = json!({"spec": {"capacity": {"storage": "1Gi"}}});
    api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(size));
    status(&api, json!({"capacity": {"storage": "1Gi"}}));
    (world, api)
}

fn grown_at(world: &World, mount: &str) -> usize {
    world.disk.read(Path::new(mount).join(".grown")).map_or(0, |marks| marks.len())
}

async fn until_told(api: &FakeApi, size: &str) {
    until("the claim to tell its size", || claim(api) == (size.to_owned(), None, vec![])).await;
}

#[test]
fn the_file_system_of_a_local_disk_grows_before_and_while_a_pod_has_it() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(421, json!({"local": {"path": "/dev/sdb"}}));
        world.disk.special("/dev/sdb", FileKind::BlockDevice);
        grow(&api, "2Gi");
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        until_told(&api, "2Gi").await;
        assert_eq!(grown_at(&world, LOCAL_MOUNT), 1, "before it started");
        grow(&api, "3Gi");
        until_told(&api, "3Gi").await;
        assert_eq!(grown_at(&world, LOCAL_MOUNT), 2);
        let text = "MountVolume.NodeExpandVolume succeeded for volume \"pv-1\" node";
        assert!(told(&api, "FileSystemResizeSuccessful").iter().all(|told| told == text));

        world.disk.fail("grow_file_system", LOCAL_MOUNT, 1, "resize2fs is broken");
        grow(&api, "4Gi");
        until("the failure to be told", || !told(&api, "VolumeResizeFailed").is_empty()).await;
        until("it to be tried again", || claim(&api).0 == "4Gi").await;
        api.delete::<Pod>(NS, "web", None);
        until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
        until("the mounts to go", || mounted(&world) == 0).await;
        node.stop().await;
    });
}

#[test]
fn a_local_directory_is_told_to_have_grown_and_left_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(422, json!({"local": {"path": "/mnt/data"}}));
        world.disk.mkdir("/mnt/data", 0o755);
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        grow(&api, "2Gi");
        until_told(&api, "2Gi").await;
        assert!(world.disk.read("/mnt/data/.grown").is_none());
        node.stop().await;
    });
}
