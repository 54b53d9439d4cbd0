//! Disks of iSCSI targets (rows 10.11 and 10.24), on a server, targets and a disk in memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, member, settings};
use testkit::sandbox;

use crate::csi::{PODS, in_use, pod, pod_with};
use crate::csi_block;
use crate::csi_selinux::{label, labelled};
use crate::life::world;
use crate::objects::{NS, clustered, container, object, ready, secret, until};

const PORTAL: &str = "10.0.0.1:3260";
const IQN: &str = "iqn.2020-01.test:a";
const PLUGIN: &str = "/var/lib/kubelet/plugins/kubernetes.io/iscsi";
const PASSWORD: &str = "open-sesame";

/// Where the disk of this number is mounted for the node.
fn place(number: u32) -> PathBuf {
    Path::new(PLUGIN).join(format!("iface-default/{PORTAL}-{IQN}-lun-{number}"))
}

fn reported(number: u32) -> String {
    format!("kubernetes.io/iscsi/{PORTAL}:{IQN}:{number}")
}

fn source(number: u32, more: Value) -> Value {
    let mut source = json!({"targetPortal": PORTAL, "iqn": IQN, "lun": number});
    source.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    json!({"iscsi": source})
}

/// The controller has attached these volumes, which is no work.
pub fn attach(api: &FakeApi, names: &[String]) {
    let names: Vec<Value> = names.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    let attached = json!({"status": {"volumesAttached": names}});
    api.change::<Node>(None, "node", Some("status"), &Patch::Merge(attached));
}

/// A PersistentVolume with this spec beside its claim, and the claim `claim-1` that is bound to it.
pub fn claimed(api: &FakeApi, mut spec: Value) {
    let bound = api.put(&object::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim-1", "namespace": "default"},
        "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"},
    })));
    spec["claimRef"] = json!({"namespace": "default", "name": "claim-1", "uid": bound.metadata.uid});
    api.put(&object::<PersistentVolume>(json!({"metadata": {"name": "pv-1"}, "spec": spec})));
}

/// The mounts of disks, by their places.
pub fn mounts_of(world: &World, source: &str) -> Vec<MountPoint> {
    world.disk.mounts().into_iter().filter(|mount| mount.source == source).collect()
}

/// Whether an event about any pod has this text in it.
pub fn is_told(api: &FakeApi, text: &str) -> bool {
    let events: Vec<Event> = api.list();
    events.iter().any(|event| event.message.as_deref().is_some_and(|message| message.contains(text)))
}

fn stand(seed: u64) -> (World, FakeApi) {
    let (world, api) = clustered(seed);
    world.network_disks.add_target(PORTAL, IQN, 3, "w3");
    attach(&api, &[reported(3), reported(4)]);
    (world, api)
}

/// Nothing is left of any disk that the kubelet has brought.
async fn until_nothing_is_left(world: &World, api: &FakeApi) {
    until("the pods' directories to go", || world.disk.children(PODS).is_empty()).await;
    until("the volumes to leave the node", || in_use(api).is_empty()).await;
    let left = || {
        world
            .disk
            .paths_below("/var/lib/kubelet/plugins")
            .into_iter()
            .filter(|path| path.ends_with("note.json"))
    };
    until("the notes to go", || left().next().is_none()).await;
    let (nodes, _, ifaces) = world.network_disks.records();
    assert_eq!((nodes, ifaces), (0, 0), "no record of a login, and no password in one, is left");
    assert!(world.network_disks.sessions().is_empty() && world.network_disks.names().is_empty());
}

#[test]
fn a_disk_is_logged_in_to_and_mounted_once_for_its_pods_and_gone_with_the_last() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(451);
        let spec = source(3, json!({"fsType": "xfs"}));
        claimed(
            &api,
            json!({"iscsi": spec["iscsi"], "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"]}),
        );
        for name in ["one", "two"] {
            pod(&api, name, "1");
        }
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pods to be Ready", || ready(&api, "one") && ready(&api, "two")).await;
        let logins = || {
            let calls = world.network_disks.calls();
            calls.iter().filter(|call| call.iter().any(|word| word == "--login")).count()
        };
        assert_eq!((logins(), in_use(&api)), (1, vec![reported(3)]));
        let mounts = mounts_of(&world, "/dev/sdb");
        assert_eq!(mounts.len(), 3, "for the node and for each pod: {mounts:?}");
        assert_eq!((mounts[0].path.clone(), mounts[0].fs_type.as_str()), (place(3), "xfs"));
        assert!(mounts[0].options.contains(&"noatime".to_owned()));
        let go = world.disk.read(place(3).join("iscsi.json")).expect("the Go kubelet's note");
        assert!(String::from_utf8_lossy(&go).contains(r#""Lun":"3""#));

        api.delete::<Pod>(NS, "one", None);
        until("the first to go", || api.get::<Pod>(NS, "one").is_none()).await;
        node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!((logins(), mounts_of(&world, "/dev/sdb").len(), ready(&api, "two")), (1, 2, true));
        api.delete::<Pod>(NS, "two", None);
        until_nothing_is_left(&world, &api).await;
        assert_eq!(world.network_disks.removed(), ["sdb"]);

        // What is on the disk is there again.
        pod(&api, "three", "1");
        until("a third to be Ready", || ready(&api, "three")).await;
        assert_eq!(logins(), 2);
        api.delete::<Pod>(NS, "three", None);
        until_nothing_is_left(&world, &api).await;
        assert!(world.disk.children(PLUGIN).is_empty(), "{:?}", world.disk.paths_below(PLUGIN));
        node.stop().await;
    });
}

#[test]
fn a_kubelet_that_knows_nothing_takes_away_what_the_one_before_it_has_brought() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(452);
        pod_with(&api, "web", source(3, json!({})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        node.stop().await;
        // While no kubelet runs, the pod goes.
        api.delete::<Pod>(NS, "web", Some(0));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn a_session_of_the_node_is_used_and_stays_with_its_disks() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(453);
        world.network_disks.log_in(PORTAL, IQN, "");
        world.network_disks.add_target(PORTAL, IQN, 4, "w4");
        // What a try that fails has brought is not taken for the node's.
        world.disk.fail("format_and_mount", place(4), 1, "no luck");
        for (name, number) in [("had", 3), ("new", 4)] {
            pod_with(&api, name, source(number, json!({})));
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pods to be Ready", || ready(&api, "had") && ready(&api, "new")).await;
        for name in ["had", "new"] {
            api.delete::<Pod>(NS, name, None);
        }
        until("the volumes to leave the node", || in_use(&api).is_empty()).await;
        assert_eq!(world.network_disks.sessions().len(), 1);
        assert_eq!(world.network_disks.names(), ["sdb"], "what the node had before stays");
        assert_eq!(world.network_disks.removed(), ["sdc"]);
        node.stop().await;
    });
}

#[test]
fn a_disk_that_the_node_uses_is_no_volume_and_stays() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(454);
        world.network_disks.log_in(PORTAL, IQN, "");
        world.disk.mkdir("/data", 0o755);
        world.disk.add_mount(MountPoint {
            path: "/data".into(),
            root: "/".into(),
            fs_type: "ext4".to_owned(),
            source: "/dev/sdb".to_owned(),
            options: vec!["rw".to_owned()],
            fs_options: Vec::new(),
            device: (8, 1),
        });
        pod_with(&api, "web", source(3, json!({})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let why = "disk sdb is in use on this node: sdb is mounted at /data";
        until("the pod to be told", || is_told(&api, why)).await;
        assert!(!ready(&api, "web"));
        api.delete::<Pod>(NS, "web", None);
        until("the volume to leave the node", || in_use(&api).is_empty()).await;
        assert_eq!((mounts_of(&world, "/dev/sdb").len(), world.network_disks.sessions().len()), (1, 1));
        assert!(world.network_disks.removed().is_empty());
        node.stop().await;
    });
}

#[test]
fn a_password_is_in_no_argument_and_other_names_lead_to_nothing() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(455);
        world.network_disks.add_target(PORTAL, IQN, 4, "w4");
        world.network_disks.ask_for(PORTAL, IQN, "me", PASSWORD);
        // "me" and the password.
        secret(
            &api,
            "chap",
            json!({"node.session.auth.username": "bWU=", "node.session.auth.password": "b3Blbi1zZXNhbWU="}),
        );
        let chap = json!({"chapAuthSession": true, "secretRef": {"name": "chap"}});
        pod_with(&api, "mine", source(3, chap.clone()));
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "mine")).await;
        let calls = world.network_disks.calls();
        assert!(calls.iter().flatten().all(|word| !word.contains(PASSWORD)), "{calls:?}");

        // A volume that names nothing has neither the same disk nor another one of the session.
        pod_with(&api, "same", source(3, json!({})));
        pod_with(&api, "other", source(4, json!({})));
        until("the first to be told", || is_told(&api, "the disk is on this node for a volume with another"))
            .await;
        let why = "is logged in to through 10.0.0.1:3260 and interface default with other names";
        until("the other to be told", || is_told(&api, why)).await;
        let kept = world.disk.paths_below("/var/lib/kubelet").into_iter();
        let mut kept = kept.filter_map(|path| world.disk.read(path));
        let has_password = |file: Vec<u8>| String::from_utf8_lossy(&file).contains(PASSWORD);
        assert!(!kept.any(has_password) && !is_told(&api, PASSWORD));

        // A pod that runs needs the Secret no longer.
        api.delete::<Secret>(NS, "chap", None);
        node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert!(ready(&api, "mine") && !ready(&api, "same") && !ready(&api, "other"));
        assert!(!is_told(&api, "couldn't get secret"), "it is not asked for");
        for name in ["mine", "same", "other"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn an_initiators_name_is_that_of_an_interface_of_the_volume_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(456);
        let named = json!({"initiatorName": "iqn.2020-01.test:me"});
        pod_with(&api, "web", source(3, named));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let iface = format!("{PORTAL}:v");
        assert_eq!(world.network_disks.sessions(), [(IQN.to_owned(), PORTAL.to_owned(), iface.clone())]);
        assert_eq!(world.network_disks.records().2, 1);
        // Another volume cannot take the initiator's name by the interface's.
        pod_with(&api, "thief", source(4, json!({"iscsiInterface": iface})));
        until("it to be told", || is_told(&api, "is that of a volume with other names")).await;
        for name in ["web", "thief"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn a_portal_that_does_not_answer_holds_up_its_pod_alone() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(457);
        let far = "10.0.0.9:3260";
        world.network_disks.hang(far);
        let hangs = format!("kubernetes.io/iscsi/{far}:{IQN}:3");
        attach(&api, &[reported(3), hangs]);
        pod_with(&api, "hangs", source(3, json!({"targetPortal": far})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("its login to hang", || !world.network_disks.calls().is_empty()).await;
        let begun = tokio::time::Instant::now();
        pod_with(&api, "web", source(3, json!({})));
        until("the other pod to be Ready", || ready(&api, "web")).await;
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        until("the first to be told", || is_told(&api, "it has not ended within 150 s")).await;
        world.network_disks.go_on();
        for name in ["web", "hangs"] {
            api.delete::<Pod>(NS, name, None);
        }
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn what_cannot_be_is_told_in_upstreams_words() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(458);
        world.network_disks.set_missing(true);
        pod_with(&api, "web", source(3, json!({})));
        pod_with(&api, "runs", source(4, json!({"fsType": "fuse.sh"})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let why = "MountVolume.WaitForAttach failed for volume \"v\" : exec: \"iscsiadm\": executable file not found in $PATH";
        until("the pod to be told", || is_told(&api, why)).await;
        until("the other to be told", || is_told(&api, "\"fuse.sh\" is no file system")).await;
        api.delete::<Pod>(NS, "runs", None);
        world.network_disks.set_missing(false);
        until("the pod to be Ready", || ready(&api, "web")).await;
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn several_ways_to_a_disk_are_one_disk() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(459);
        let second = "10.0.0.2:3260";
        world.network_disks.add_target(second, IQN, 3, "w3");
        world.network_disks.join_ways();
        pod_with(&api, "web", source(3, json!({"portals": [second]})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "web")).await;
        let mounts = world.disk.mounts();
        let mount = mounts.iter().find(|mount| mount.path == place(3)).expect("it is mounted");
        assert!(mount.source.starts_with("/dev/dm-"), "{mount:?}");
        assert_eq!(world.network_disks.sessions().len(), 2);
        api.delete::<Pod>(NS, "web", None);
        until_nothing_is_left(&world, &api).await;
        assert_eq!(world.network_disks.removed(), ["sdb", "sdc"]);
        node.stop().await;
    });
}

#[test]
fn a_disk_is_a_block_device_of_its_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(460);
        let spec = source(3, json!({}));
        claimed(
            &api,
            json!({"iscsi": spec["iscsi"], "accessModes": ["ReadWriteOnce"], "volumeMode": "Block"}),
        );
        let uid = csi_block::pod(&api, "raw", "1");
        let mut node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to be Ready", || ready(&api, "raw")).await;
        let link = Path::new(PODS).join(&uid).join("volumeDevices/kubernetes.io~iscsi/pv-1");
        assert_eq!(world.disk.link_target(&link).as_deref(), Some(Path::new("/dev/sdb")));
        let maps = Path::new(PLUGIN).join(format!("volumeDevices/iface-default/{PORTAL}-{IQN}-lun-3"));
        let map = maps.join(&uid);
        assert!(world.disk.mounts().iter().any(|mount| mount.path == map));
        node = node.restart(&member().await, Policy::default()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(ready(&api, "raw") && world.network_disks.removed().is_empty());
        api.delete::<Pod>(NS, "raw", None);
        until_nothing_is_left(&world, &api).await;
        assert!(world.disk.kind(maps).is_none() && world.network_disks.removed() == ["sdb"]);
        node.stop().await;
    });
}

/// A pod whose container has this level of SELinux.
fn of_level(api: &FakeApi, name: &str, level: &str) {
    let context = json!({"seLinuxOptions": {"level": level}});
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    api.put(&object::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default",
            "containers": [container("main", json!({"volumeMounts": mounts, "securityContext": context}))],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim-1"}}],
        },
    })));
}

#[test]
fn a_disk_is_mounted_with_its_pods_label_which_the_next_kubelet_reads_from_the_mount() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = stand(461);
        let spec = source(3, json!({}));
        claimed(&api, json!({"iscsi": spec["iscsi"], "accessModes": ["ReadWriteOnce"]}));
        of_level(&api, "one", "s0:c1,c2");
        let mut node = FakeNode::start(sandbox, &world, &labelled(true).await);
        until("the pod to be Ready", || ready(&api, "one")).await;
        let context = || {
            let mounts = world.disk.mounts();
            mounts.into_iter().find(|mount| mount.path == place(3)).map(|mount| mount.fs_options)
        };
        let option = |level: &str| Some(vec![format!("context=\"{}\"", label(level))]);
        assert_eq!(context(), option("s0:c1,c2"));
        let containers = world.runtime.containers();
        let mut mounts = containers.iter().flat_map(|container| &container.mounts);
        let is_relabelled = mounts.any(|mount| mount.container_path == "/v" && mount.selinux_relabel);
        assert!(!is_relabelled, "what is mounted with a label is not labelled again");

        node = node.restart(&labelled(true).await, Policy::default()).await;
        of_level(&api, "other", "s0:c7");
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(ready(&api, "one") && !ready(&api, "other"));
        assert_eq!(context(), option("s0:c1,c2"));
        api.delete::<Pod>(NS, "one", None);
        until("the other pod to be Ready", || ready(&api, "other")).await;
        assert_eq!(context(), option("s0:c7"));
        api.delete::<Pod>(NS, "other", None);
        until_nothing_is_left(&world, &api).await;
        node.stop().await;
    });
}

#[test]
fn a_static_pod_may_have_a_disk() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(462);
        world.network_disks.add_target(PORTAL, IQN, 3, "w3");
        let manifest = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: web}}
spec:
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    volumeMounts: [{{name: disk, mountPath: /disk}}]
  volumes: [{{name: disk, iscsi: {{targetPortal: 10.0.0.1, iqn: '{IQN}', lun: 3}}}}]
"
        );
        world.manifest("web.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("web to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
        assert_eq!(mounts_of(&world, "/dev/sdb").len(), 2);
        world.remove_manifest("web.yaml");
        node.until_empty().await;
        node.until("web to be forgotten", |pods| pods.is_empty()).await;
        until("the session to end", || world.network_disks.sessions().is_empty()).await;
        node.stop().await;
    });
}
