//! Volumes of CSI drivers (rows 10.2, 10.3 and 10.16), on a server and a disk in memory, with a driver that mounts there. The
//! test plays the controller that attaches volumes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_csi::Rpc;
use bridge_csi::fake::{FakeDriver, FakePlugins, Fault};
use bridge_csi::rules::attachment;
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{
    Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, VolumeAttachment};
use messages::volume_manager::GetVolumeStats;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, member};
use testkit::{driver_on, sandbox};

use crate::objects::{NS, clustered, container, object, ready, until};

pub const DRIVER: &str = "disk.example";
pub const PODS: &str = "/var/lib/kubelet/pods";
pub const STAGED: &str = "/var/lib/kubelet/plugins/kubernetes.io/csi";

/// A node with a driver, whose object has this spec.
pub fn with_driver(seed: u64, spec: Value) -> (World, FakeApi, FakeDriver) {
    let (world, api) = clustered(seed);
    api.put(&object::<CSIDriver>(json!({"metadata": {"name": DRIVER}, "spec": spec})));
    let driver = driver_on(&world.disk, DRIVER);
    (world, api, driver)
}

/// A PersistentVolume of this handle, with the claim `claim-<handle>` that is bound to it.
pub fn volume(api: &FakeApi, handle: &str, more: Value) {
    volume_of(api, handle, "Filesystem", more);
}

/// The same with a mode: `Filesystem` or `Block`.
pub fn volume_of(api: &FakeApi, handle: &str, mode: &str, more: Value) {
    let (claim, name) = (format!("claim-{handle}"), format!("pv-{handle}"));
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": claim, "namespace": "default"},
        "spec": {"volumeName": name, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound"},
    })));
    let mut source = json!({"driver": DRIVER, "volumeHandle": handle, "fsType": "ext4"});
    source.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    api.put(&object::<PersistentVolume>(json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "csi": source, "mountOptions": ["noatime"], "volumeMode": mode,
            "claimRef": {"namespace": "default", "name": claim, "uid": bound.metadata.uid},
        },
    })));
}

/// A pod whose container has each of these volumes.
pub fn pod_of(api: &FakeApi, name: &str, volumes: &Value, security: &Value) -> String {
    let names = volumes.as_array().expect("a list").iter().map(|volume| &volume["name"]);
    let mounts =
        names.map(|name| json!({"name": name, "mountPath": format!("/{}", name.as_str().expect("a name"))}));
    let pod = api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default",
            "containers": [container("main", json!({"volumeMounts": mounts.collect::<Vec<_>>()}))],
            "securityContext": security,
            "volumes": volumes,
        },
    })));
    pod.metadata.uid.expect("a UID")
}

pub fn pod_with(api: &FakeApi, name: &str, source: Value) -> String {
    let mut volume = json!({"name": "v"});
    volume.as_object_mut().expect("a map").extend(source.as_object().expect("a map").clone());
    pod_of(api, name, &json!([volume]), &json!({}))
}

/// A pod with the volume of this handle.
pub fn pod(api: &FakeApi, name: &str, handle: &str) -> String {
    pod_with(api, name, json!({"persistentVolumeClaim": {"claimName": format!("claim-{handle}")}}))
}

pub fn unique(handle: &str) -> String {
    attachment::unique_name(DRIVER, handle)
}

pub fn in_use(api: &FakeApi) -> Vec<String> {
    let node = api.get::<Node>(None, "node").and_then(|node| node.status);
    node.and_then(|status| status.volumes_in_use).unwrap_or_default()
}

/// Attaches a volume, as the controller does: the VolumeAttachment says so first, then the Node.
pub fn attach(api: &FakeApi, handle: &str) {
    let name = attachment::name(handle, DRIVER, "node");
    api.put(&object::<VolumeAttachment>(json!({
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": format!("pv-{handle}")}},
        "status": {"attached": true, "attachmentMetadata": {"device": "sdb"}},
    })));
    let attached = json!({"status": {"volumesAttached": [{"name": unique(handle), "devicePath": ""}]}});
    api.change::<Node>(None, "node", Some("status"), &Patch::Merge(attached));
}

pub fn target(uid: &str, name: &str) -> PathBuf {
    Path::new(PODS).join(uid).join("volumes/kubernetes.io~csi").join(name).join("mount")
}

pub fn mounted(world: &World) -> usize {
    world.disk.mounts().iter().filter(|mount| mount.path.starts_with("/var/lib/kubelet")).count()
}

/// Nothing is left of any volume.
pub async fn until_nothing_is_left(world: &World, driver: &FakeDriver) {
    let left = || {
        let loops = world.disk.files_below("/sys/block");
        let notes = world.disk.files_below(STAGED);
        // How large its volumes are the driver may remember.
        let held = bridge_csi::fake::Held { sizes: Default::default(), ..driver.held() };
        (held, world.disk.children(PODS), mounted(world), notes, loops)
    };
    let end = tokio::time::Instant::now() + Duration::from_secs(300);
    while left() != Default::default() {
        assert!(tokio::time::Instant::now() < end, "left for 5 minutes: {:?}", left());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn told(api: &FakeApi, reason: &str) -> Vec<String> {
    let events: Vec<Event> = api.list();
    let events = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    events.filter_map(|event| event.message).collect()
}

/// The value of a metric whose series has these labels: of a histogram how often it was observed.
pub fn metric(node: &FakeNode, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = node.registry.gather();
    let series =
        families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
    let is_it = |series: &&prometheus::proto::Metric| {
        let has = |(label, value): &(&str, &str)| {
            series.get_label().iter().any(|found| (found.name(), found.value()) == (*label, *value))
        };
        labels.iter().all(has)
    };
    let value = |series: &prometheus::proto::Metric| {
        let observed = u32::try_from(series.get_histogram().get_sample_count()).map_or(f64::MAX, f64::from);
        series.get_counter().get_value() + series.get_gauge().get_value() + observed
    };
    series.filter(is_it).map(value).sum()
}

#[test]
fn a_volume_is_reported_attached_staged_published_and_gone_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            201,
            json!({"attachRequired": true, "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        driver.set_node("i-1", 7, [("zone".to_owned(), "a".to_owned())].into());
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({"volumeAttributes": {"share": "x"}}));
        let uid = pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the volume to be told in use", || in_use(&api) == [unique("1")]).await;
        sandbox.pass(Duration::from_secs(30)).await;
        assert_eq!(
            (driver.count(Rpc::NodeStageVolume), ready(&api, "web")),
            (0, false),
            "it is not attached"
        );

        let csi_node = api.get::<CSINode>(None, "node").expect("it is made");
        let entry = &csi_node.spec.drivers[0];
        assert_eq!((entry.name.as_str(), entry.node_id.as_str()), (DRIVER, "i-1"));
        assert_eq!(entry.allocatable.as_ref().and_then(|room| room.count), Some(7));
        assert_eq!(entry.topology_keys.as_deref(), Some(&["zone".to_owned()][..]));
        let of_node = api.get::<Node>(None, "node").expect("a Node").metadata;
        let ids = of_node.annotations.expect("annotations");
        assert_eq!(ids["csi.volume.kubernetes.io/nodeid"], r#"{"disk.example":"i-1"}"#);
        assert_eq!(of_node.labels.expect("labels")["zone"], "a");

        attach(&api, "1");
        until("the pod to be Ready", || ready(&api, "web")).await;
        let target = target(&uid, "pv-1");
        let containers = world.runtime.containers();
        let seen = containers[0].mounts.iter().find(|mount| mount.container_path == "/v");
        assert_eq!(seen.map(|mount| mount.host_path.as_str()), target.to_str());
        let held = driver.held();
        let published = &held.published[target.to_str().expect("a text")];
        assert_eq!(published.context, [("share".to_owned(), "x".to_owned())].into());
        assert!(published.capability.contains("noatime") && !published.readonly, "{published:?}");
        let note = world.disk.read(target.with_file_name("vol_data.json")).expect("it is noted");
        let note = String::from_utf8(note).expect("a text");
        assert!(
            note.contains(r#""volumeLifecycleMode":"Persistent""#) && note.contains(r#""nodeName":"node""#)
        );
        assert_eq!(in_use(&api), [unique("1")]);
        let told = node.node.volume_stats.ask(GetVolumeStats, Duration::from_secs(5)).await.expect("figures");
        let figures = &told.values().next().expect("of the pod")["v"];
        let usage = figures.usage.as_ref().expect("it was measured");
        assert_eq!((usage.capacity_bytes, usage.used_bytes), (1 << 30, 1 << 20));
        assert_eq!(figures.claim.as_deref(), Some("claim-1"));

        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        until("the volume to be in use no longer", || in_use(&api).is_empty()).await;
        let of_rpc = |rpc| driver.count(rpc);
        use Rpc::{NodePublishVolume, NodeStageVolume, NodeUnpublishVolume, NodeUnstageVolume};
        let counts = [NodeStageVolume, NodePublishVolume, NodeUnpublishVolume, NodeUnstageVolume].map(of_rpc);
        assert_eq!(counts, [1; 4]);
        node.stop().await;
    });
}

#[test]
fn a_volume_of_two_pods_is_staged_once_and_a_new_kubelet_touches_nothing() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            202,
            json!({"attachRequired": false, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        for name in ["a", "b"] {
            pod(&api, name, "1");
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("both to be Ready", || ready(&api, "a") && ready(&api, "b")).await;
        let counts = || [Rpc::NodeStageVolume, Rpc::NodePublishVolume].map(|rpc| driver.count(rpc));
        assert_eq!(counts(), [1, 2]);
        assert_eq!(in_use(&api), Vec::<String>::new(), "it is attached to no node");

        let node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(ready(&api, "a") && ready(&api, "b"));
        assert_eq!(
            (counts(), driver.count(Rpc::NodeUnpublishVolume)),
            ([1, 2], 0),
            "nothing is mounted anew"
        );

        api.delete::<Pod>(NS, "a", None);
        until("it to go", || api.get::<Pod>(NS, "a").is_none()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert_eq!((driver.held().staged.len(), driver.held().published.len()), (1, 1));
        assert!(ready(&api, "b"));
        // A third pod comes to the staged volume, after a restart as well.
        pod(&api, "c", "1");
        until("it to be Ready", || ready(&api, "c")).await;
        assert_eq!(counts(), [1, 3]);
        for name in ["b", "c"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        assert_eq!(driver.count(Rpc::NodeUnstageVolume), 1);
        node.stop().await;
    });
}

#[test]
fn what_a_kubelet_left_half_way_the_next_one_goes_on_with() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            203,
            json!({"attachRequired": false, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        pod(&api, "web", "1");
        // The kubelet ends between stage and publish, and its call acts all the same.
        driver.fault(Rpc::NodePublishVolume, 1, Fault::ActsLate(Duration::from_secs(20)));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("it to be staged", || driver.count(Rpc::NodePublishVolume) == 1).await;
        let node = node.restart(&member().await, Policy::default()).await;
        until("the pod to be Ready", || ready(&api, "web")).await;
        assert_eq!(driver.count(Rpc::NodeStageVolume), 1, "it is staged once");
        // The late call acts, too: on a volume that is there.
        sandbox.pass(Duration::from_secs(30)).await;

        // The kubelet ends between unpublish and unstage.
        driver.fault(Rpc::NodeUnstageVolume, 1, Fault::Hang);
        api.delete::<Pod>(NS, "web", None);
        until("it to be unstaged", || driver.count(Rpc::NodeUnstageVolume) == 1).await;
        until("the pod to go: it waits for no device", || api.get::<Pod>(NS, "web").is_none()).await;
        let node = node.restart(&member().await, Policy::default()).await;
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}

#[test]
fn a_driver_that_hangs_holds_up_its_volume_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            204,
            json!({"attachRequired": false, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        volume(&api, "2", json!({}));
        driver.fault(Rpc::NodeStageVolume, 1, Fault::Hang);
        pod(&api, "a", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the first to hang", || driver.count(Rpc::NodeStageVolume) == 1).await;
        pod(&api, "b", "2");
        sandbox.pass(Duration::from_secs(10)).await;
        assert!(ready(&api, "b") && !ready(&api, "a"), "its own pods alone");
        until("the hung call to end and the next one to succeed", || ready(&api, "a")).await;
        let why = "MountVolume.MountDevice failed for volume \"pv-1\" : rpc error: code = DeadlineExceeded desc = context deadline exceeded";
        assert!(told(&api, "FailedMount").iter().any(|text| text == why), "{:?}", told(&api, "FailedMount"));
        for name in ["a", "b"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn pods_wait_for_their_driver_and_go_on_when_it_comes() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            205,
            json!({"attachRequired": false, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        volume(&api, "1", json!({}));
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        sandbox.pass(Duration::from_secs(200)).await;
        let why = "MountVolume.MountDevice failed for volume \"pv-1\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name disk.example not found in the list of registered CSI drivers";
        assert!(told(&api, "FailedMount").iter().any(|text| text == why), "{:?}", told(&api, "FailedMount"));

        world.plugins.show_driver(&driver);
        sandbox.pass(Duration::from_secs(5)).await;
        assert!(ready(&api, "web"), "it does not sit out its back-off");
        assert_eq!(world.plugins.statuses(&FakePlugins::socket(DRIVER)), [Ok(())]);

        // A driver that is gone is needed for the end of its volumes, and nothing is torn out behind its back.
        world.plugins.hide_driver(DRIVER);
        let names = || api.get::<CSINode>(None, "node").map(|node| node.spec.drivers.len());
        until("the CSINode to lose it", || names() == Some(0)).await;
        let ids =
            || api.get::<Node>(None, "node")?.metadata.annotations?.remove("csi.volume.kubernetes.io/nodeid");
        until("the Node to lose its name", || ids().is_none()).await;
        api.delete::<Pod>(NS, "web", None);
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!((mounted(&world), driver.held().published.len()), (2, 1));
        assert!(api.get::<Pod>(NS, "web").is_some(), "its volume is not undone");
        world.plugins.show_driver(&driver);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        until("the pod to go", || api.get::<Pod>(NS, "web").is_none()).await;
        node.stop().await;
    });
}

#[test]
fn a_driver_that_dies_between_stage_and_publish_is_not_asked_to_stage_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            206,
            json!({"attachRequired": false, "fsGroupPolicy": "None",
            "volumeLifecycleModes": ["Persistent"]}),
        );
        world.plugins.show_driver(&driver);
        volume(&api, "1", json!({}));
        let refused = Fault::Error(bridge_csi::CsiErrorKind::Internal, "no such disk".to_owned());
        driver.fault(Rpc::NodePublishVolume, 1, Fault::BrokenConnection);
        driver.fault(Rpc::NodePublishVolume, 1, refused);
        pod(&api, "web", "1");
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        assert_eq!(driver.count(Rpc::NodeStageVolume), 1);
        let why = "MountVolume.SetUp failed for volume \"pv-1\" : rpc error: code = Unavailable desc = connection reset by peer";
        assert!(told(&api, "FailedMount").iter().any(|text| text == why), "{:?}", told(&api, "FailedMount"));
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}

#[test]
fn an_inline_volume_knows_its_pod_and_lives_as_long() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = with_driver(
            207,
            json!({
                "attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Ephemeral"], "requiresRepublish": true, "tokenRequests": [{"audience": "vault"}],
            }),
        );
        api.put(&object::<Secret>(json!({
            "metadata": {"name": "key", "namespace": "default"}, "data": {"user": "bWU="},
        })));
        assert!(api.get::<ServiceAccount>(NS, "default").is_some());
        world.plugins.show_driver(&driver);
        let inline = json!({"csi": {
            "driver": DRIVER, "readOnly": true, "volumeAttributes": {"size": "1"}, "nodePublishSecretRef": {"name": "key"},
        }});
        let uid = pod_with(&api, "web", inline);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let target = target(&uid, "v");
        let held = driver.held();
        let published = &held.published[target.to_str().expect("a text")];
        assert_eq!(published.volume_id, attachment::inline_handle(&uid, "v"));
        assert!(published.readonly && held.staged.is_empty());
        let context = &published.context;
        assert_eq!(
            (context["size"].as_str(), context["csi.storage.k8s.io/ephemeral"].as_str()),
            ("1", "true")
        );
        assert_eq!(context["csi.storage.k8s.io/pod.uid"], uid);
        assert!(context["csi.storage.k8s.io/serviceAccount.tokens"].contains("\"vault\":{\"token\":"));
        assert_eq!(in_use(&api), Vec::<String>::new());
        // It is published again from time to time, and a new kubelet goes on with that. A failure leaves it where it is.
        let published = || driver.count(Rpc::NodePublishVolume);
        until("it to be published again", || published() >= 3).await;
        let node = node.restart(&member().await, Policy::default()).await;
        let before = published();
        let refused = Fault::Error(bridge_csi::CsiErrorKind::Internal, "no token".to_owned());
        driver.fault(Rpc::NodePublishVolume, 1, refused);
        until("it to be published again", || published() >= before + 2).await;
        assert_eq!((mounted(&world), ready(&api, "web")), (1, true));
        let why = "MountVolume.SetUp failed for volume \"v\" : rpc error: code = Internal desc = no token";
        assert!(told(&api, "FailedMount").iter().any(|text| text == why), "{:?}", told(&api, "FailedMount"));
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        assert_eq!(driver.count(Rpc::NodeStageVolume) + driver.count(Rpc::NodeUnstageVolume), 0);
        node.stop().await;
    });
}
