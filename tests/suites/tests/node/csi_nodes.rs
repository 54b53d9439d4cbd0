//! What the cluster is told of drivers, and what follows from it (rows 10.16, 10.17 and 10.28): the CSINode, how many volumes the
//! node takes, and volumes of plugins that drivers have replaced.

use std::time::Duration;

use bridge_csi::fake::{FakeDriver, Fault};
use bridge_csi::{CsiErrorKind, Rpc};
use bridge_kube::fake::{FakeApi, Fault as ApiFault, On, Verb};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, member};
use testkit::{driver_on, sandbox};

use crate::csi::{
    DRIVER, in_use, metric, pod, pod_of, pod_with, target, told, unique, until_nothing_is_left, volume,
    with_driver,
};
use crate::objects::{NS, clustered, object, ready, until};

pub fn node_ready(api: &FakeApi) -> Option<NodeCondition> {
    let conditions = api.get::<Node>(None, "node")?.status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == "Ready")
}

fn room(api: &FakeApi) -> Option<i32> {
    let node = api.get::<CSINode>(None, "node")?;
    node.spec.drivers.iter().find(|driver| driver.name == DRIVER)?.allocatable.as_ref()?.count
}

#[test]
fn a_new_node_is_ready_once_it_has_its_csi_node() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(221);
        api.fault(On::call(Verb::Create, "csinodes"), 6, ApiFault::code(500));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let why = || node_ready(&api).and_then(|ready| ready.message).unwrap_or_default();
        until("the Node to say why", || why().starts_with("failed to initialize CSINode: ")).await;
        until("the Node to be ready", || node_ready(&api).is_some_and(|ready| ready.status == "True")).await;
        assert_eq!(api.count(Verb::Create, "csinodes"), 7);
        assert!(api.get::<CSINode>(None, "node").is_some());
        // A node that was ready stays so while the next kubelet looks its CSINode up.
        api.fault(On::call(Verb::Get, "csinodes"), 3, ApiFault::code(500));
        let node = node.restart(&member().await, Policy::default()).await;
        for _ in 0..100 {
            sandbox.pass(Duration::from_millis(100)).await;
            assert_eq!(node_ready(&api).map(|ready| ready.status).as_deref(), Some("True"));
        }
        node.stop().await;
    });
}

#[test]
fn the_drivers_stand_in_the_csi_node_of_a_node_that_registers_anew() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(222, json!({"attachRequired": true}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        world.plugins.show_driver(&driver);
        let named = || {
            let found = api.get::<CSINode>(None, "node");
            found.is_some_and(|found| found.spec.drivers.iter().any(|one| one.name == DRIVER))
        };
        until("the driver to be named", named).await;
        let uid = || api.get::<Node>(None, "node").and_then(|node| node.metadata.uid);
        let before = uid();
        assert!(api.delete::<Node>(None, "node", None));
        assert!(api.delete::<CSINode>(None, "node", None), "as the garbage collector does");
        until("the Node to be there again", || uid().is_some_and(|uid| Some(uid) != before)).await;
        until("the driver to be named again", named).await;
        node.stop().await;
    });
}

#[test]
fn what_the_cluster_knows_of_a_driver_that_cannot_register_is_taken_back() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(226, json!({"attachRequired": true}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        world.plugins.show_driver(&driver);
        let named = || {
            let drivers =
                api.get::<CSINode>(None, "node").map(|found| found.spec.drivers).unwrap_or_default();
            drivers.into_iter().find(|one| one.name == DRIVER).map(|one| one.node_id)
        };
        until("the driver to be named", || named().is_some()).await;
        // Of an entry with another node ID an API server would take no change.
        driver.set_node("i-2", 0, Default::default());
        let refused = Fault::Error(CsiErrorKind::Internal, "no node".to_owned());
        driver.fault(Rpc::NodeGetInfo, 1, refused);
        let node = node.restart(&member().await, Policy::default()).await;
        until("it to be named no longer", || named().is_none()).await;
        until("it to be named as it is now", || named().as_deref() == Some("i-2")).await;
        node.stop().await;
    });
}

#[test]
fn files_that_a_driver_writes_anew_are_given_to_the_group_soon_after_a_failure_too() {
    sandbox(Policy::default(), async |sandbox| {
        let spec = json!({"attachRequired": false, "requiresRepublish": true, "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"]});
        let (world, api, driver) = with_driver(227, spec);
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "claim-1"}}]);
        let uid = pod_of(&api, "web", &volumes, &json!({"fsGroup": 1234}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let target = target(&uid, "pv-1");
        let is_given = || world.disk.mode(&target).is_some_and(|mode| mode & 0o2000 != 0);
        assert!(is_given());
        let published = || driver.count(Rpc::NodePublishVolume);
        let before = published();
        driver.fault(Rpc::NodePublishVolume, 1, Fault::Error(CsiErrorKind::Internal, "no".to_owned()));
        until("a publish that fails", || published() > before).await;
        world.disk.set_mode(&target, 0o755);
        assert!(!is_given());
        let failed = tokio::time::Instant::now();
        until("the files to be given to the group", is_given).await;
        assert!(failed.elapsed() < Duration::from_secs(5), "{:?}", failed.elapsed());
        assert_eq!(published(), before + 2);
        let why = "MountVolume.SetUp failed for volume \"pv-1\" : rpc error: code = Internal desc = no";
        assert_eq!(told(&api, "FailedMount"), [why]);
        node.stop().await;
    });
}

#[test]
fn a_driver_that_does_not_give_its_volume_back_keeps_no_other_drivers() {
    sandbox(Policy::default(), async |sandbox| {
        let spec =
            json!({"attachRequired": false, "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"]});
        let (world, api, driver) = with_driver(228, spec.clone());
        api.put(&object::<CSIDriver>(json!({"metadata": {"name": "bad.example"}, "spec": spec})));
        let bad = driver_on(&world.disk, "bad.example");
        [&driver, &bad].into_iter().for_each(|driver| world.plugins.show_driver(driver));
        volume(&api, "1", json!({}));
        volume(&api, "2", json!({"driver": "bad.example"}));
        let both = json!([
            {"name": "v", "persistentVolumeClaim": {"claimName": "claim-1"}},
            {"name": "w", "persistentVolumeClaim": {"claimName": "claim-2"}},
        ]);
        pod_of(&api, "web", &both, &json!({}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let staged = |driver: &FakeDriver| driver.held().staged.len();
        assert_eq!((staged(&driver), staged(&bad)), (1, 1));
        bad.fault(Rpc::NodeUnpublishVolume, 3, Fault::Error(CsiErrorKind::Internal, "busy".to_owned()));
        api.delete::<Pod>(NS, "web", None);
        until("the good driver to have its volume back", || staged(&driver) == 0).await;
        assert_eq!((staged(&bad), bad.held().published.len()), (1, 1));
        until_nothing_is_left(&world, &bad).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn a_pod_that_a_full_node_cannot_have_fails_and_the_driver_is_asked_anew() {
    sandbox(Policy::default(), async |sandbox| {
        let spec = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": 36000,
            "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent"]});
        let (world, api, driver) = with_driver(222, spec);
        driver.set_node("i-1", 7, Default::default());
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let name = bridge_csi::rules::attachment::name("1", DRIVER, "node");
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the volume to be told in use", || in_use(&api) == [unique("1")]).await;
        until("the driver to be told", || room(&api) == Some(7)).await;
        // Another client of the storage has taken the room.
        driver.set_node("i-1", 3, Default::default());
        api.put(&object::<VolumeAttachment>(json!({
            "metadata": {"name": name},
            "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv-1"}},
            "status": {"attached": false, "attachError": {"errorCode": 8, "message": "no slot is free"}},
        })));
        let failed = || {
            let status = api.get::<Pod>(NS, "web")?.status?;
            Some((status.phase?, status.reason?, status.message?))
        };
        until("the pod to fail", || failed().is_some_and(|(phase, ..)| phase == "Failed")).await;
        let why = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], unattached \
                   volumes=[v], failed to process volumes=[]: context deadline exceeded";
        let reason = "VolumeAttachmentLimitExceeded";
        let message = format!("Pod was rejected: {why}");
        assert_eq!(failed(), Some(("Failed".to_owned(), reason.to_owned(), message)));
        assert_eq!(told(&api, reason), [why]);
        assert_eq!(metric(&node, "kubelet_admission_rejections_total", &[("reason", reason)]), 1.0);
        assert_eq!(room(&api), Some(3), "the scheduler learns of it");
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        until("the volume to be in use no longer", || in_use(&api).is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn a_driver_is_asked_again_how_many_volumes_the_node_takes() {
    sandbox(Policy::default(), async |sandbox| {
        let spec = |period: Option<u32>| json!({"attachRequired": false, "nodeAllocatableUpdatePeriodSeconds": period});
        let (world, api, driver) = with_driver(223, spec(Some(60)));
        driver.set_node("i-1", 7, Default::default());
        world.plugins.show_driver(&driver);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the driver to be told", || room(&api) == Some(7)).await;
        driver.set_node("i-1", 5, Default::default());
        sandbox.pass(Duration::from_secs(50)).await;
        assert_eq!(room(&api), Some(7), "not before its period is over");
        sandbox.pass(Duration::from_secs(20)).await;
        assert_eq!(room(&api), Some(5));
        api.put(&object::<CSIDriver>(json!({"metadata": {"name": DRIVER}, "spec": spec(None)})));
        driver.set_node("i-1", 9, Default::default());
        sandbox.pass(Duration::from_secs(900)).await;
        assert_eq!(room(&api), Some(5), "it does not want to be asked any longer");
        // A driver that is registered anew tells all that has changed.
        world.plugins.hide_driver(DRIVER);
        until("the CSINode to lose it", || room(&api).is_none()).await;
        driver.set_node("i-2", 9, Default::default());
        world.plugins.show_driver(&driver);
        until("the CSINode to have it again", || room(&api) == Some(9)).await;
        let told = api.get::<CSINode>(None, "node").map(|node| node.spec.drivers[0].node_id.clone());
        assert_eq!(told.as_deref(), Some("i-2"));
        node.stop().await;
    });
}

#[test]
fn volumes_of_plugins_that_drivers_have_replaced_are_their_drivers() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(224);
        let mut drivers = Vec::new();
        for name in ["ebs.csi.aws.com", "disk.csi.azure.com"] {
            let spec = json!({"attachRequired": false, "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent"]});
            api.put(&object::<CSIDriver>(json!({"metadata": {"name": name}, "spec": spec})));
            let driver = driver_on(&world.disk, name);
            world.plugins.show_driver(&driver);
            drivers.push(driver);
        }
        let disk = "/subscriptions/s/disks/d";
        pod_with(
            &api,
            "ebs",
            json!({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1", "fsType": "ext4"}}),
        );
        pod_with(&api, "azure", json!({"azureDisk": {"diskName": "d", "diskURI": disk}}));
        pod_with(&api, "shared", json!({"azureDisk": {"diskName": "d", "diskURI": disk, "kind": "Shared"}}));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("both to be Ready", || ready(&api, "ebs") && ready(&api, "azure")).await;
        let shown = |driver: usize| drivers[driver].held().published.into_keys().collect::<Vec<_>>();
        assert!(
            shown(0)[0].ends_with("/volumes/kubernetes.io~csi/ebs.csi.aws.com-vol-1/mount"),
            "{:?}",
            shown(0)
        );
        assert!(shown(1)[0].ends_with("/kubernetes.io~csi/~subscriptions~s~disks~d/mount"), "{:?}", shown(1));
        let why = "kind(Shared) is not supported in csi migration";
        until("the third to say why", || told(&api, "FailedMount").iter().any(|text| text.contains(why)))
            .await;
        for name in ["ebs", "azure", "shared"] {
            api.delete::<Pod>(NS, name, None);
        }
        for driver in &drivers {
            until_nothing_is_left(&world, driver).await;
            assert_eq!(driver.broken_rules(), Vec::<String>::new());
        }
        node.stop().await;
    });
}
