//! Volumes that grow (row 10.25): the test plays the controller that has made them larger and leaves the rest to the node.

use std::time::Duration;

use bridge_csi::fake::{FakeDriver, Fault};
use bridge_csi::wire::node_service_capability::rpc::Type as Can;
use bridge_csi::{CsiErrorKind, Rpc};
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, member};
use testkit::sandbox;

use crate::csi::{metric, pod, told, until_nothing_is_left, volume_of, with_driver};
use crate::objects::{NS, ready, until};

const CLAIM: &str = "claim-1";
const GIB: i64 = 1 << 30;

fn stand(seed: u64, mode: &str) -> (World, FakeApi, FakeDriver) {
    let (world, api, driver) = with_driver(
        seed,
        json!({"attachRequired": false, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"]}),
    );
    driver.set_capabilities(&[Can::StageUnstageVolume, Can::ExpandVolume]);
    world.plugins.show_driver(&driver);
    volume_of(&api, "1", mode, json!({}));
    let size = json!({"spec": {"capacity": {"storage": "1Gi"}}});
    api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(size));
    status(&api, json!({"capacity": {"storage": "1Gi"}}));
    (world, api, driver)
}

pub fn status(api: &FakeApi, status: Value) {
    let patch = Patch::Merge(json!({ "status": status }));
    api.change::<PersistentVolumeClaim>(NS, CLAIM, Some("status"), &patch);
}

/// The controller has made the volume this large, and the node is to follow.
pub fn grow(api: &FakeApi, size: &str) {
    let grown = json!({"spec": {"capacity": {"storage": size}}});
    api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(grown));
    let wanted = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    api.change::<PersistentVolumeClaim>(NS, CLAIM, None, &Patch::Merge(wanted));
    status(
        api,
        json!({
            "allocatedResources": {"storage": size}, "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
        }),
    );
}

/// The size that the claim tells, the step, and the conditions.
pub fn claim(api: &FakeApi) -> (String, Option<String>, Vec<String>) {
    let status =
        api.get::<PersistentVolumeClaim>(NS, CLAIM).and_then(|claim| claim.status).expect("a status");
    let size = status.capacity.as_ref().and_then(|all| all.get("storage")).map(|size| size.0.clone());
    let step = status.allocated_resource_statuses.and_then(|mut all| all.remove("storage"));
    let conditions = status.conditions.unwrap_or_default().into_iter().map(|one| one.type_).collect();
    (size.expect("a size"), step, conditions)
}

fn size(driver: &FakeDriver) -> Option<i64> {
    driver.held().sizes.get("1").copied()
}

#[test]
fn a_volume_in_use_grows_and_its_claim_tells_so() {
    sandbox(Policy::default(), async |sandbox| {
        for (seed, mode) in [(241, "Filesystem"), (242, "Block")] {
            let (world, api, driver) = stand(seed, mode);
            let uid = match mode {
                "Block" => crate::csi_block::pod(&api, "web", "1"),
                _ => pod(&api, "web", "1"),
            };
            let mut node = FakeNode::start(sandbox, &world, &member().await);
            until("the pod to be Ready", || ready(&api, "web")).await;
            sandbox.pass(Duration::from_secs(100)).await;
            assert_eq!(driver.count(Rpc::NodeExpandVolume), 0, "nothing has grown");
            if mode == "Block" {
                // The next kubelet knows from the disk alone that the pod has it.
                node = node.restart(&member().await, Policy::default()).await;
            }

            grow(&api, "2Gi");
            until("the claim to tell its size", || claim(&api) == ("2Gi".to_owned(), None, vec![])).await;
            assert_eq!((size(&driver), driver.count(Rpc::NodeExpandVolume)), (Some(2 * GIB), 1));
            let of_call = driver.calls().into_iter().find(|call| call.rpc == Rpc::NodeExpandVolume);
            let path = of_call.expect("it was called").path;
            let expected =
                if mode == "Block" { format!("/publish/pv-1/{uid}") } else { "/pv-1/mount".to_owned() };
            assert!(path.ends_with(&expected), "{path}");
            let text = "MountVolume.NodeExpandVolume succeeded for volume \"pv-1\" node";
            assert_eq!(told(&api, "FileSystemResizeSuccessful"), [text, text], "of the pod and of the claim");
            let events: Vec<Event> = api.list();
            assert!(events.iter().any(|event| {
                let about = &event.involved_object;
                (about.kind.as_deref(), about.name.as_deref()) == (Some("PersistentVolumeClaim"), Some(CLAIM))
            }));
            sandbox.pass(Duration::from_secs(200)).await;
            assert_eq!(driver.count(Rpc::NodeExpandVolume), 1);
            let labels = [("operation_name", "volume_fs_resize"), ("status", "success")];
            assert_eq!(metric(&node, "storage_operation_duration_seconds", &labels), 1.0);
            api.delete::<Pod>(NS, "web", None);
            until_nothing_is_left(&world, &driver).await;
            assert_eq!(driver.broken_rules(), Vec::<String>::new());
            node.stop().await;
        }
    });
}

#[test]
fn a_volume_that_has_grown_before_its_pod_came_grows_before_it_starts() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(243, "Filesystem");
        grow(&api, "2Gi");
        driver.fault(Rpc::NodeExpandVolume, 1, Fault::Error(CsiErrorKind::Internal, "no room".to_owned()));
        driver.fault(Rpc::NodeExpandVolume, 1, Fault::BrokenConnection);
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the first try", || driver.count(Rpc::NodeExpandVolume) == 1).await;
        until("the claim to tell of it", || claim(&api).2.iter().any(|one| one == "NodeResizeError")).await;
        assert_eq!((ready(&api, "web"), claim(&api).1.as_deref()), (false, Some("NodeResizeInProgress")));
        until("the pod to be Ready", || ready(&api, "web")).await;
        assert_eq!(claim(&api), ("2Gi".to_owned(), None, vec![]));
        assert_eq!((size(&driver), driver.count(Rpc::NodePublishVolume)), (Some(2 * GIB), 1));
        let why = "MountVolume.Setup failed while expanding volume for volume \"pv-1\" : Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = no room";
        assert!(told(&api, "FailedMount").iter().any(|text| text == why), "{:?}", told(&api, "FailedMount"));
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}

#[test]
fn what_cannot_be_is_told_once_and_what_cannot_be_yet_waits_for_the_pods_end() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(244, "Filesystem");
        driver.set_bytes_max(3 * GIB);
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        grow(&api, "9Gi");
        until("the claim to tell that it cannot be", || {
            claim(&api).1.as_deref() == Some("NodeResizeInfeasible")
        })
        .await;
        assert!(claim(&api).2.contains(&"NodeResizeError".to_owned()), "{:?}", claim(&api));
        let why = "NodeExpandVolume.NodeExpandVolume failed for volume \"pv-1\" : Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = ";
        until("the pod to be told", || {
            told(&api, "VolumeResizeFailed").iter().any(|text| text.starts_with(why))
        })
        .await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!(driver.count(Rpc::NodeExpandVolume), 1, "it is of no use to ask again");

        // The controller settles for less, and the driver does not do it under a pod.
        let in_use = Fault::Error(CsiErrorKind::FailedPrecondition, "in use".to_owned());
        driver.fault(Rpc::NodeExpandVolume, 1, in_use);
        grow(&api, "2Gi");
        until("the driver to be asked", || driver.count(Rpc::NodeExpandVolume) == 2).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!(
            (driver.count(Rpc::NodeExpandVolume), ready(&api, "web")),
            (2, true),
            "not while it is in use"
        );
        api.delete::<Pod>(NS, "web", None);
        until("the pod to go", || api.get::<Pod>(NS, "web").is_none()).await;
        pod(&api, "next", "1");
        until("the next pod to be Ready", || ready(&api, "next")).await;
        assert_eq!((claim(&api).0.as_str(), size(&driver)), ("2Gi", Some(2 * GIB)));
        api.delete::<Pod>(NS, "next", None);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn a_driver_that_is_not_asked_to_expand_and_one_that_dies_meanwhile() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(245, "Filesystem");
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        // A controller from before the steps were told has done it all.
        driver.set_capabilities(&[Can::StageUnstageVolume]);
        let grown = json!({"spec": {"capacity": {"storage": "2Gi"}}});
        api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(grown));
        status(&api, json!({"capacity": {"storage": "2Gi"}}));
        sandbox.pass(Duration::from_secs(150)).await;
        assert_eq!((driver.count(Rpc::NodeExpandVolume), told(&api, "VolumeResizeFailed").len()), (0, 0));

        driver.set_capabilities(&[Can::StageUnstageVolume, Can::ExpandVolume]);
        driver.fault(Rpc::NodeExpandVolume, 1, Fault::BrokenConnection);
        grow(&api, "3Gi");
        until("the answer to be lost", || driver.count(Rpc::NodeExpandVolume) == 1).await;
        // The next kubelet asks again: the claim tells that it was begun.
        let node = node.restart(&member().await, Policy::default()).await;
        until("the claim to tell its size", || claim(&api) == ("3Gi".to_owned(), None, vec![])).await;
        assert_eq!(size(&driver), Some(3 * GIB));
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}

#[test]
fn a_claim_that_changes_while_its_volume_grows_is_told_all_the_same() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(246, "Block");
        for name in ["one", "other"] {
            crate::csi_block::pod(&api, name, "1");
        }
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pods to be Ready", || ["one", "other"].iter().all(|name| ready(&api, name))).await;

        // A fresh kubelet looks at all volumes, between the two writes of the controller.
        let grown = json!({"spec": {"capacity": {"storage": "2Gi"}}});
        api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(grown));
        driver.fault(Rpc::NodeExpandVolume, 1, Fault::Latency(Duration::from_secs(20)));
        driver.fault(Rpc::NodeExpandVolume, 1, Fault::Latency(Duration::from_secs(20)));
        node = node.restart(&member().await, Policy::default()).await;
        until("the driver to be asked", || driver.count(Rpc::NodeExpandVolume) == 1).await;
        grow(&api, "2Gi");
        until("the claim to tell its size", || claim(&api) == ("2Gi".to_owned(), None, vec![])).await;
        assert_eq!(size(&driver), Some(2 * GIB));
        for name in ["one", "other"] {
            assert!(ready(&api, name));
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}
