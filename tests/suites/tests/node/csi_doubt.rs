//! Volumes of drivers of which a kubelet cannot know what was done (rows 10.2 and 10.16).

use std::time::Duration;

use bridge_csi::fake::Fault;
use bridge_csi::{CsiErrorKind, Rpc};
use bridge_kube::Patch;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, member};
use testkit::sandbox;

use crate::csi::{pod, target, told, until_nothing_is_left, volume, with_driver};
use crate::objects::{NS, ready, until};

fn unattached() -> Value {
    json!({"attachRequired": false, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"]})
}

#[test]
fn a_driver_that_mounts_and_fails_is_not_taken_for_done() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(221, unattached());
        world.plugins.show_driver(&driver);
        for (handle, rpc) in [("1", Rpc::NodeStageVolume), ("2", Rpc::NodePublishVolume)] {
            volume(&api, handle, json!({}));
            driver.fault(rpc, 3, Fault::ActsAndFails);
            pod(&api, handle, handle);
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        for (handle, rpc) in [("1", Rpc::NodeStageVolume), ("2", Rpc::NodePublishVolume)] {
            until("the driver to be asked a second time", || driver.count(rpc) >= 2).await;
            assert!(!ready(&api, handle), "{rpc:?} has failed");
        }
        // Nor by the next kubelet, to which the mount is all that shows.
        let node = node.restart(&member().await, Policy::default()).await;
        until("both to be Ready", || ready(&api, "1") && ready(&api, "2")).await;
        let text = "rpc error: code = Internal desc = it is mounted, and its mode cannot be set";
        assert!(told(&api, "FailedMount").iter().any(|told| told.ends_with(text)));
        for name in ["1", "2"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn what_an_earlier_kubelet_may_have_mounted_is_not_forgotten_after_a_failure() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(222, unattached());
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let uid = pod(&api, "web", "1");
        driver.fault(Rpc::NodePublishVolume, 1, Fault::ActsLate(Duration::from_secs(60)));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the driver to be asked", || driver.count(Rpc::NodePublishVolume) == 1).await;
        let refused = Fault::Error(CsiErrorKind::Internal, "no".to_owned());
        driver.fault(Rpc::NodePublishVolume, 1000, refused);
        let node = node.restart(&member().await, Policy::default()).await;
        until("the next kubelet to be refused", || driver.count(Rpc::NodePublishVolume) == 2).await;
        sandbox.pass(Duration::from_millis(100)).await;
        let note = target(&uid, "pv-1").with_file_name("vol_data.json");
        assert!(world.disk.read(&note).is_some(), "the earlier call may act still");
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        assert!(driver.count(Rpc::NodeUnpublishVolume) >= 1, "its driver undoes it");
        node.stop().await;
    });
}

#[test]
fn a_torn_note_is_written_anew() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(223, unattached());
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let uid = pod(&api, "web", "1");
        let note = target(&uid, "pv-1").with_file_name("vol_data.json");
        world.disk.write(&note, "", 0o600);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let text = String::from_utf8(world.disk.read(&note).expect("a note")).expect("a text");
        assert!(text.contains(r#""volumeHandle":"1""#) && !text.contains("Unfinished"), "{text}");
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}

#[test]
fn of_two_pods_that_come_at_once_one_has_a_volume_for_one_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(224, unattached());
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let one = json!({"spec": {"accessModes": ["ReadWriteOncePod"]}});
        api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(one));
        // Both find nothing mounted while the first of them waits for its driver.
        driver.fault(Rpc::NodeStageVolume, 1, Fault::Latency(Duration::from_secs(20)));
        for name in ["a", "b"] {
            pod(&api, name, "1");
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("one to be Ready", || ready(&api, "a") || ready(&api, "b")).await;
        sandbox.pass(Duration::from_secs(30)).await;
        let (first, second) = if ready(&api, "a") { ("a", "b") } else { ("b", "a") };
        assert!(!ready(&api, second) && driver.held().published.len() == 1);
        let text = "MountVolume.SetUp failed for volume \"pv-1\" : volume uses the ReadWriteOncePod access mode and is already in use by another pod";
        assert!(told(&api, "FailedMount").iter().any(|told| told == text), "{:?}", told(&api, "FailedMount"));
        api.delete::<Pod>(NS, first, None);
        until("the other to have it", || ready(&api, second)).await;
        api.delete::<Pod>(NS, second, None);
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}
