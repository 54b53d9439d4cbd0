//! Volumes of kubernetes-csi's hostpath driver, which registers through its node-driver-registrar (rows 10.2, 10.16 and
//! 10.27). The cases play provisioner and attacher.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::member::Member;
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use csi_driver::claimed::take_away_below;
use csi_driver::hostpath::{Hostpath, Programs, VOLUMES_MAX};
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::{Value, json};
use testkit::process::eventually;

use super::claimed::{self, Claimed, csi_node_has, mounts};
use super::csi::{GROUP, read, spec, writes};

const MIB: i64 = 1024 * 1024;
const TOPOLOGY: &str = "topology.hostpath.csi/node";

/// A node with the driver.
struct Stand {
    driver: RefCell<Hostpath>,
    name: String,
    member: Member,
    _directory: tempfile::TempDir,
}

impl Stand {
    fn new(setting: &Arc<Setting>, case: &str) -> Self {
        let member = Member::alone(setting, case);
        let name = format!("{}.example", member.name);
        let directory =
            tempfile::Builder::new().prefix("hostpath-").tempdir().expect("a temporary directory");
        member.api.create::<CSIDriver>(json!({
            "metadata": {"name": name},
            "spec": {
                "attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent", "Ephemeral"],
            },
        }));
        let programs = Programs::find().expect("only run where they are");
        let registry = member.node.root().join("plugins_registry");
        let mut driver = Hostpath::new(programs, &name, &member.name, directory.path(), &registry);
        driver.start().expect("the programs run");
        let stand = Self { driver: RefCell::new(driver), name, member, _directory: directory };
        stand.registers();
        stand
    }

    fn registers(&self) {
        let told = json!([{
            "name": self.name, "nodeID": self.member.name, "topologyKeys": [TOPOLOGY],
            "allocatable": {"count": VOLUMES_MAX},
        }]);
        eventually("the CSINode has the driver", SOON, || {
            csi_node_has(&self.member, |drivers| json!(drivers) == told)
        });
        eventually("the Node has the driver's label", SOON, || {
            let labels = self.member.object()?["metadata"]["labels"].clone();
            if labels[TOPOLOGY] == json!(self.member.name) { Ok(()) } else { Err(labels.to_string()) }
        });
    }

    /// How often the driver was asked to stage, publish, unpublish and unstage.
    fn counts(&self) -> [usize; 4] {
        let rpcs = ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"];
        rpcs.map(|rpc| self.driver.borrow().count(rpc))
    }

    /// The figures of a pod's volume `data`, once the summary has them.
    fn figures(&self, pod: &str) -> Value {
        eventually("the summary has the volume", LATER, || {
            let text = self.member.node.read_only.text("/stats/summary")?;
            let summary: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let pods = summary["pods"].as_array().ok_or("no pods")?;
            let own = pods.iter().find(|one| one["podRef"]["name"] == pod).ok_or("no such pod")?;
            let volumes = own["volume"].as_array().ok_or_else(|| own.to_string())?;
            let found = volumes.iter().find(|one| one["name"] == "data");
            found.cloned().ok_or_else(|| own["volume"].to_string())
        })
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the driver has written:\n{}", self.driver.borrow().log());
        }
        take_away_below(&self.member.node.root());
    }
}

pub fn persistent(setting: &Arc<Setting>) {
    let stand = Stand::new(setting, "hostpath-claimed");
    let (member, node) = (&stand.member, stand.member.name.as_str());
    let controller = stand.driver.borrow().controller();
    let handle = controller.create("disk", 64 * MIB, false).expect("the driver makes a volume");
    let claimed = Claimed::new(member, &stand.name, &handle);
    let here = json!({"key": TOPOLOGY, "operator": "In", "values": [node]});
    claimed
        .make(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}));
    let volume = || json!({"name": "data", "persistentVolumeClaim": {"claimName": "claim"}});

    let first = member.pod("first", spec(&writes("one"), volume()));
    claimed.attach(|| {
        assert_eq!(stand.counts(), [0; 4], "it is not attached");
        controller.attach(&handle, node, false).expect("the driver attaches it");
    });
    let before = first.ready();
    read(&first, &["one"]);
    let data = stand.driver.borrow().data(&handle);
    assert_eq!(fs::metadata(&data).expect("the volume").gid(), GROUP, "it is the pod's group's");
    let second = member.pod("second", spec(&writes("two"), volume()));
    let of_second = second.ready();
    read(&second, &["one", "two"]);
    let shown = mounts(member);
    assert_eq!(stand.counts(), [1, 2, 0, 0], "staged once, and shown to both");
    // This driver mounts nothing when it stages.
    assert_eq!(shown.len(), 2, "{shown:?}");
    let figures = stand.figures(first.name());
    assert_eq!(figures["pvcRef"], json!({"name": "claim", "namespace": node}), "{figures}");
    assert!(figures["capacityBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{figures}");
    assert!(stand.driver.borrow().count("NodeGetVolumeStats") > 0);

    // A pod that ends while the driver is dead waits for it, and no other notices.
    stand.driver.borrow_mut().kill();
    second.delete(None);
    second.wait("its container has ended", SOON, |pod| !pod.is_running("main"));
    member.node.kill_kubelet();
    member.node.start_kubelet_again();
    member.becomes_ready();
    assert_eq!(first.ready().container_id("main"), before.container_id("main"));
    assert_eq!(mounts(member), shown, "nothing is torn out while the driver is away");
    stand.driver.borrow_mut().start().expect("the programs run");
    second.gone(&of_second);
    stand.registers();
    assert_eq!(mounts(member).len(), 1);
    assert_eq!(first.ready().container_id("main"), before.container_id("main"));

    let third = member.pod("third", spec(&writes("three"), volume()));
    let of_third = third.ready();
    read(&third, &["one", "two", "three"]);
    assert_eq!(stand.counts()[0], 1, "it is staged still");
    for (pod, seen) in [(&third, &of_third), (&first, &before)] {
        pod.delete(None);
        pod.gone(seen);
    }
    claimed::nothing_is_left(member);
    // The driver refuses both while it holds anything on this node.
    controller.detach(&handle, node).expect("the driver detaches it");
    controller.delete(&handle).expect("the driver deletes it");
}

pub fn inline(setting: &Arc<Setting>) {
    let stand = Stand::new(setting, "hostpath-inline");
    let member = &stand.member;
    let volume = json!({"name": "data", "csi": {"driver": stand.name}});
    let pod = member.pod("inline", spec(&writes("one"), volume));
    let seen = pod.ready();
    read(&pod, &["one"]);
    assert_eq!(stand.counts(), [0, 1, 0, 0]);
    let shown = mounts(member);
    assert_eq!(shown.len(), 1, "{shown:?}");
    stand.driver.borrow_mut().kill();
    stand.driver.borrow_mut().start().expect("the programs run");
    stand.registers();
    assert_eq!(mounts(member), shown);
    pod.delete(None);
    pod.gone(&seen);
    claimed::nothing_is_left(member);
    assert_eq!(stand.counts()[3], 0, "what was not staged is not unstaged");
    let state = stand.driver.borrow().data("state.json");
    let state: Value = serde_json::from_slice(&fs::read(state).expect("its state")).expect("JSON");
    assert!(state["Volumes"].as_array().is_none_or(Vec::is_empty), "{state}");
}
