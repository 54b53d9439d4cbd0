//! Disks of Fibre Channel (row 10.12), on a server, a fabric and a disk in memory.

use std::path::Path;
use std::time::Duration;

use bridge_node::host::NetworkDisks;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, member};
use testkit::sandbox;

use crate::csi::{PODS, in_use, pod, pod_with};
use crate::csi_block;
use crate::iscsi::{attach, claimed, is_told, mounts_of};
use crate::objects::{NS, clustered, ready, until};

const PLUGIN: &str = "/var/lib/kubelet/plugins/kubernetes.io/fc";

#[test]
fn all_ways_to_a_disk_are_found_joined_and_removed_with_its_last_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(471);
        for link in ["pci-0000:05:00.0-fc-0x50a-lun-1", "fc-0x50b-lun-1"] {
            world.network_disks.add_fabric(link, "w1");
        }
        world.network_disks.join_ways();
        let reported = "kubernetes.io/fc/[50a 50b]:1".to_owned();
        attach(&api, std::slice::from_ref(&reported));
        claimed(
            &api,
            json!({"fc": {"targetWWNs": ["50a", "50b"], "lun": 1, "fsType": "ext4"}, "accessModes": ["ReadWriteOnce"]}),
        );
        for name in ["one", "two"] {
            pod(&api, name, "1");
        }
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pods to be Ready", || ready(&api, "one") && ready(&api, "two")).await;
        assert_eq!(in_use(&api), [reported]);
        let place = Path::new(PLUGIN).join("50a-50b-lun-1");
        let mounts = world.disk.mounts();
        let mount = mounts.iter().find(|mount| mount.path == place).expect("it is mounted");
        assert!(mount.source.starts_with("/dev/dm-"), "{mount:?}");
        assert_eq!(mounts_of(&world, &mount.source).len(), 3, "for the node and for each pod");

        api.delete::<Pod>(NS, "one", None);
        until("the first to go", || api.get::<Pod>(NS, "one").is_none()).await;
        node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(ready(&api, "two") && world.network_disks.removed().is_empty());
        api.delete::<Pod>(NS, "two", None);
        until("the volume to leave the node", || in_use(&api).is_empty()).await;
        until("the disk to go", || world.network_disks.names().is_empty()).await;
        assert_eq!(world.network_disks.removed(), ["sdb", "sdc"]);
        until("its directory to go", || world.disk.kind(PLUGIN).is_none()).await;
        assert!(world.disk.children(PODS).is_empty());
        node.stop().await;
    });
}

#[test]
fn a_disk_that_the_node_had_before_stays_and_one_that_it_uses_is_no_volume() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(472);
        for (link, wwid) in [("fc-0x50a-lun-1", "idle"), ("fc-0x50a-lun-2", "swap")] {
            world.network_disks.add_fabric(link, wwid);
        }
        world.network_disks.scan(0, None).await.expect("the host looks for disks");
        world.network_disks.swap_to("/dev/sdc");
        attach(&api, &["kubernetes.io/fc/[idle]".to_owned(), "kubernetes.io/fc/[swap]".to_owned()]);
        pod_with(&api, "idle", json!({"fc": {"wwids": ["idle"]}}));
        pod_with(&api, "swap", json!({"fc": {"wwids": ["swap"]}}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "idle")).await;
        let why = "disk sdc is in use on this node: the node swaps to /dev/sdc";
        until("the other to be told", || is_told(&api, why)).await;
        assert!(!ready(&api, "swap"));
        for name in ["idle", "swap"] {
            api.delete::<Pod>(NS, name, None);
        }
        until("the volumes to leave the node", || in_use(&api).is_empty()).await;
        assert_eq!(world.network_disks.names(), ["sdb", "sdc"]);
        assert!(mounts_of(&world, "/dev/sdb").is_empty());
        node.stop().await;
    });
}

#[test]
fn a_disk_that_is_not_there_is_waited_for_and_may_be_a_block_device() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(473);
        attach(&api, &["kubernetes.io/fc/[w1]".to_owned()]);
        claimed(
            &api,
            json!({"fc": {"wwids": ["w1"]}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}),
        );
        let uid = csi_block::pod(&api, "raw", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        let why = "MapVolume.WaitForAttach failed for volume \"pv-1\" : no fc disk found";
        until("the pod to be told", || is_told(&api, why)).await;
        world.network_disks.add_fabric("fc-0x50a-lun-1", "w1");
        until("the pod to be Ready", || ready(&api, "raw")).await;
        let link = Path::new(PODS).join(&uid).join("volumeDevices/kubernetes.io~fc/pv-1");
        assert_eq!(world.disk.link_target(link).as_deref(), Some(Path::new("/dev/sdb")));
        api.delete::<Pod>(NS, "raw", None);
        until("the volume to leave the node", || in_use(&api).is_empty()).await;
        until("the disk to go", || world.network_disks.names().is_empty()).await;
        assert!(world.disk.children(PODS).is_empty());
        node.stop().await;
    });
}
