//! What pods that share a volume of a driver wait for: for what is done once for all of them, and for no call that is about
//! another pod (row 10.2).

use std::time::Duration;

use bridge_csi::Rpc;
use bridge_csi::fake::Fault;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::Pod;
use messages::volume_manager::{GetVolumeStats, VolumeStats};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, member};
use testkit::sandbox;

use crate::csi::{metric, pod, until_nothing_is_left, volume_of, with_driver};
use crate::objects::{NS, ready, until};

fn unattached() -> Value {
    json!({"attachRequired": false, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"]})
}

#[test]
fn a_publish_and_an_unpublish_that_hang_hold_up_their_pod_alone() {
    sandbox(Policy::default(), async |sandbox| {
        for (seed, mode) in [(261, "Filesystem"), (262, "Block")] {
            let (world, api, driver) = with_driver(seed, unattached());
            world.plugins.show_driver(&driver);
            volume_of(&api, "1", mode, json!({}));
            let pod = |name| match mode {
                "Block" => crate::csi_block::pod(&api, name, "1"),
                _ => pod(&api, name, "1"),
            };
            driver.fault(Rpc::NodePublishVolume, 1, Fault::Hang);
            pod("hangs");
            let node = FakeNode::start(sandbox, &world, &member().await);
            until("its publish to hang", || driver.count(Rpc::NodePublishVolume) == 1).await;
            pod("second");
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(ready(&api, "second") && !ready(&api, "hangs"), "{mode}");
            until("the first to be Ready", || ready(&api, "hangs")).await;

            driver.fault(Rpc::NodeUnpublishVolume, 1, Fault::Hang);
            api.delete::<Pod>(NS, "hangs", None);
            until("its unpublish to hang", || driver.count(Rpc::NodeUnpublishVolume) == 1).await;
            pod("third");
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(ready(&api, "third") && api.get::<Pod>(NS, "hangs").is_some(), "{mode}");
            api.delete::<Pod>(NS, "second", None);
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(
                api.get::<Pod>(NS, "second").is_none() && api.get::<Pod>(NS, "hangs").is_some(),
                "{mode}"
            );
            assert_eq!(driver.count(Rpc::NodeStageVolume), 1, "once for all of them");
            api.delete::<Pod>(NS, "third", None);
            until_nothing_is_left(&world, &driver).await;
            assert_eq!(driver.count(Rpc::NodeUnstageVolume), 1);
            assert_eq!(driver.broken_rules(), Vec::<String>::new());
            let done = |operation: &str| {
                let labels = [("operation_name", operation), ("status", "success")];
                metric(&node, "storage_operation_duration_seconds", &labels)
            };
            let names = [["volume_mount", "volume_unmount"], ["map_volume", "unmap_volume"]];
            let counts = names.map(|pair| pair.map(done));
            let expected = if mode == "Block" { [[0.0; 2], [3.0; 2]] } else { [[3.0; 2], [0.0; 2]] };
            assert_eq!(counts, expected);
            node.stop().await;
        }
    });
}

#[test]
fn a_volume_that_is_mounted_elsewhere_stays_staged() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(263, unattached());
        world.plugins.show_driver(&driver);
        volume_of(&api, "1", "Filesystem", json!({}));
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let mounts = world.disk.mounts();
        let staged = mounts.iter().find(|mount| mount.path.ends_with("globalmount")).expect("it is staged");
        let elsewhere = MountPoint { path: "/mnt/people".into(), ..staged.clone() };
        world.disk.add_mount(elsewhere);
        api.delete::<Pod>(NS, "web", None);
        until("the pod to go", || api.get::<Pod>(NS, "web").is_none()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!(driver.count(Rpc::NodeUnstageVolume), 0, "people use it");
        world.disk.remove_mounts_at("/mnt/people");
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.count(Rpc::NodeUnstageVolume), 1);
        node.stop().await;
    });
}

#[test]
fn the_figures_of_claims_outlive_the_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        for (seed, mode) in [(264, "Filesystem"), (265, "Block")] {
            let (world, api, driver) = with_driver(seed, unattached());
            world.plugins.show_driver(&driver);
            volume_of(&api, "1", mode, json!({}));
            match mode {
                "Block" => crate::csi_block::pod(&api, "web", "1"),
                _ => pod(&api, "web", "1"),
            };
            let mut node = FakeNode::start(sandbox, &world, &member().await);
            until("the pod to be Ready", || ready(&api, "web")).await;
            for life in 0..2 {
                sandbox.pass(Duration::from_secs(10)).await;
                let told = node.node.volume_stats.ask(GetVolumeStats, Duration::from_secs(5)).await;
                let told = told.expect("figures");
                let figures = told.values().next().and_then(|of_pod| of_pod.get("v"));
                let capacity =
                    |figures: &VolumeStats| figures.usage.as_ref().map(|usage| usage.capacity_bytes);
                let claim = figures.map(|figures| (figures.claim.as_deref(), capacity(figures)));
                assert_eq!(claim, Some((Some("claim-1"), Some(1 << 30))), "{mode}, life {life}");
                node = node.restart(&member().await, Policy::default()).await;
            }
            api.delete::<Pod>(NS, "web", None);
            until_nothing_is_left(&world, &driver).await;
            node.stop().await;
        }
    });
}
