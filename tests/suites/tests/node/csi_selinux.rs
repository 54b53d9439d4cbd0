//! Volumes that are mounted with a label of SELinux (row 10.24), on a node that has it: the label goes to the driver, and what
//! it does with the label no fake can show.

use std::time::Duration;

use bridge_csi::Rpc;
use bridge_csi::fake::FakeDriver;
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use bridge_node::host::SelinuxLabels;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kubelet::wiring::Settings;
use pod_worker::node_rules::NodeRules;
use serde_json::{Value, json};
use std::sync::Arc;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, member};
use testkit::sandbox;
use volume_manager::Selinux;

use crate::csi::{metric, target, told, until_nothing_is_left, volume, with_driver};
use crate::objects::{NS, object, ready, until};

const CONTEXTS: &str =
    "process = \"system_u:system_r:container_t:s0\"\nfile = \"system_u:object_r:container_file_t:s0\"\n";

pub fn label(level: &str) -> String {
    format!("system_u:object_r:container_file_t:{level}")
}

/// A member of a cluster on a host with SELinux.
pub async fn labelled(every_mode: bool) -> Settings {
    let mut settings = member().await;
    let labels = SelinuxLabels::parse(CONTEXTS).expect("a policy");
    settings.volumes.selinux = Some(Selinux { labels, every_mode });
    settings.worker.rules = Arc::new(NodeRules { selinux: true, ..NodeRules::clone(&settings.worker.rules) });
    settings
}

fn stand(seed: u64, mode: &str) -> (World, FakeApi, FakeDriver) {
    let spec = json!({"attachRequired": false, "seLinuxMount": true, "fsGroupPolicy": "None",
        "volumeLifecycleModes": ["Persistent"]});
    let (world, api, driver) = with_driver(seed, spec);
    world.plugins.show_driver(&driver);
    volume(&api, "1", json!({}));
    let modes = json!({"spec": {"accessModes": [mode]}});
    api.change::<PersistentVolume>(None, "pv-1", None, &Patch::Merge(modes));
    (world, api, driver)
}

/// A pod whose containers have these levels; one is `null` where the runtime draws it.
fn pod(api: &FakeApi, name: &str, levels: &[Value]) -> String {
    let containers: Vec<Value> = levels
        .iter()
        .enumerate()
        .map(|(at, level)| {
            json!({
                "name": format!("c{at}"), "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "securityContext": {"seLinuxOptions": {"level": level}},
            })
        })
        .collect();
    let pod = api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default",
            "containers": containers,
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim-1"}}],
        },
    })));
    pod.metadata.uid.expect("a UID")
}

/// Whether the runtime is asked to label the files of the pods' volumes.
fn relabelled(world: &World) -> Vec<bool> {
    let containers = world.runtime.containers();
    let mounts = containers.iter().flat_map(|container| &container.mounts);
    mounts.filter(|mount| mount.container_path == "/v").map(|mount| mount.selinux_relabel).collect()
}

#[test]
fn a_volume_that_one_pod_has_alone_is_mounted_with_its_label() {
    sandbox(Policy::default(), async |sandbox| {
        for (seed, mode, is_labelled) in [(251, "ReadWriteOncePod", true), (252, "ReadWriteOnce", false)] {
            let (world, api, driver) = stand(seed, mode);
            let uid = pod(&api, "web", &[json!("s0:c1,c2")]);
            let node = FakeNode::start(sandbox, &world, &labelled(false).await);
            until("the pod to be Ready", || ready(&api, "web")).await;
            let held = driver.held();
            let target = target(&uid, "pv-1");
            let published = &held.published[target.to_str().expect("a text")].capability;
            let note = world.disk.read(target.with_file_name("vol_data.json")).expect("it is noted");
            let note = String::from_utf8(note).expect("a text");
            let label = label("s0:c1,c2");
            for told in [&held.staged["1"].capability, published, &note] {
                assert_eq!(told.contains(&label), is_labelled, "{mode}: {told}");
            }
            assert_eq!(note.contains(&format!("\"seLinuxMountContext\":\"{label}\"")), is_labelled, "{note}");
            assert_eq!(
                relabelled(&world),
                [!is_labelled],
                "what is mounted with a label is not labelled again"
            );
            let short = if is_labelled { "RWOP" } else { "RWO" };
            let of = [("volume_plugin", "kubernetes.io/csi/disk.example"), ("access_mode", short)];
            assert_eq!(metric(&node, "volume_manager_selinux_volumes_admitted_total", &of), 1.0);
            api.delete::<Pod>(NS, "web", None);
            until_nothing_is_left(&world, &driver).await;
            node.stop().await;
        }
    });
}

#[test]
fn a_label_that_is_not_one_is_refused_and_one_that_is_not_known_is_none() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(253, "ReadWriteOncePod");
        pod(&api, "two", &[json!("s0:c1"), json!("s0:c2")]);
        let node = FakeNode::start(sandbox, &world, &labelled(false).await);
        let why = format!("multiple SELinux labels found: {},{}", label("s0:c1"), label("s0:c2"));
        until("the pod to be told", || told(&api, "FailedMount").iter().any(|text| text.contains(&why)))
            .await;
        let of = [("access_mode", "RWOP")];
        assert!(metric(&node, "volume_manager_selinux_pod_context_mismatch_errors_total", &of) >= 1.0);
        assert_eq!((ready(&api, "two"), driver.count(Rpc::NodeStageVolume)), (false, 0));
        api.delete::<Pod>(NS, "two", None);
        until("the pod to go", || api.get::<Pod>(NS, "two").is_none()).await;

        pod(&api, "drawn", &[json!(null)]);
        until("the pod to be Ready", || ready(&api, "drawn")).await;
        assert!(!driver.held().staged["1"].capability.contains("context="), "{:?}", driver.held());
        assert_eq!(relabelled(&world).last(), Some(&true));
        api.delete::<Pod>(NS, "drawn", None);
        until_nothing_is_left(&world, &driver).await;
        node.stop().await;
    });
}

#[test]
fn pods_with_other_labels_wait_for_the_volume_to_leave_the_node() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, driver) = stand(254, "ReadWriteOnce");
        pod(&api, "one", &[json!("s0:c1")]);
        let mut node = FakeNode::start(sandbox, &world, &labelled(true).await);
        until("the pod to be Ready", || ready(&api, "one")).await;
        assert!(driver.held().staged["1"].capability.contains(&label("s0:c1")));
        pod(&api, "alike", &[json!("s0:c1")]);
        until("a pod with the same label to be Ready", || ready(&api, "alike")).await;

        pod(&api, "other", &[json!("s0:c2")]);
        let why = format!(
            "conflicting SELinux labels of volume pv-1: {:?} and {:?}",
            label("s0:c1"),
            label("s0:c2")
        );
        until("the pod to be told", || told(&api, "FailedMount").iter().any(|text| text.contains(&why)))
            .await;
        let of = [("access_mode", "RWO")];
        assert!(metric(&node, "volume_manager_selinux_volume_context_mismatch_errors_total", &of) >= 1.0);
        // The next kubelet learns of the label from the note beside the mount.
        node = node.restart(&labelled(true).await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(!ready(&api, "other"));
        for name in ["one", "alike"] {
            assert!(ready(&api, name));
            api.delete::<Pod>(NS, name, None);
        }
        until("the other pod to be Ready", || ready(&api, "other")).await;
        assert!(driver.held().staged["1"].capability.contains(&label("s0:c2")));
        let counts = [Rpc::NodeStageVolume, Rpc::NodeUnstageVolume].map(|rpc| driver.count(rpc));
        assert_eq!(counts, [2, 1], "it was taken from the node in between");
        api.delete::<Pod>(NS, "other", None);
        until_nothing_is_left(&world, &driver).await;
        assert_eq!(driver.broken_rules(), Vec::<String>::new());
        node.stop().await;
    });
}
