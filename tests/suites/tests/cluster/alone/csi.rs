//! Volumes of a CSI driver that is a process of its own, registers over its socket and really mounts (rows 10.2, 10.3 and
//! 10.16). The cases play the controllers that bind claims and attach volumes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::member::{Member, OwnPod};
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{OBEDIENT, containers, shell, with};
use csi_driver::DriverProcess;
use csi_driver::claimed::take_away_below;
use k8s_openapi::api::storage::v1::CSIDriver;
use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use super::claimed::{self, Claimed, csi_node_has};

pub const HANDLE: &str = "disk-1";
pub const GROUP: u32 = 4321;

/// A node with a driver.
pub struct Stand {
    driver: RefCell<DriverProcess>,
    name: String,
    pub member: Member,
    directory: tempfile::TempDir,
}

impl Stand {
    pub fn new(setting: &Arc<Setting>, case: &str) -> Self {
        let member = Member::alone(setting, case);
        let name = format!("{}.example", member.name);
        let directory = tempfile::Builder::new().prefix("csi-").tempdir().expect("a temporary directory");
        let registry = member.node.root().join("plugins_registry");
        let driver = DriverProcess::spawn(&name, directory.path(), Some(&registry));
        member.api.create::<CSIDriver>(json!({
            "metadata": {"name": name},
            "spec": {
                "attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
                "volumeLifecycleModes": ["Persistent", "Ephemeral"], "tokenRequests": [{"audience": "vault"}],
            },
        }));
        Self { driver: RefCell::new(driver.expect("the driver serves")), name, member, directory }
    }

    pub fn claimed(&self) -> Claimed<'_> {
        Claimed::new(&self.member, &self.name, HANDLE)
    }

    fn pod(&self, base: &str, script: &str) -> OwnPod<'_> {
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "claim"}});
        self.member.pod(base, spec(script, volume))
    }

    pub fn order(&self, words: &str) -> Value {
        let told = self.driver.borrow_mut().order(words).unwrap_or_else(|error| panic!("{words}: {error}"));
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{words}: {told:?}: {error}"))
    }

    fn count(&self, rpc: &str) -> u64 {
        self.order(&format!("count {rpc}")).as_u64().expect("a number")
    }

    pub fn mounts(&self) -> BTreeMap<String, String> {
        claimed::mounts(&self.member)
    }

    /// Nothing of any volume is left on the node, and the Node reports none in use.
    pub fn nothing_is_left(&self) {
        eventually("the driver holds nothing", LATER, || {
            let held = self.order("held");
            let is_empty = |field: &str| held[field].as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty("staged") && is_empty("published") { Ok(()) } else { Err(held.to_string()) }
        });
        claimed::nothing_is_left(&self.member);
    }

    /// Has the next call of this kind act two seconds later; returns how many there were.
    pub fn slow(&self, rpc: &str) -> u64 {
        self.driver.borrow_mut().order(&format!("fault {rpc} 1 acts-late 2000")).expect("the driver obeys");
        self.count(rpc)
    }

    /// Kills the kubelet during the call, and starts the next one.
    pub fn kill_during(&self, rpc: &str, before: u64) {
        eventually(&format!("{rpc} is under way"), LATER, || match self.count(rpc) {
            now if now > before => Ok(()),
            now => Err(now.to_string()),
        });
        self.kill_and_start();
    }

    pub fn kill_and_start(&self) {
        self.member.node.kill_kubelet();
        self.member.node.start_kubelet_again();
    }

    /// The driver's directory of the volume.
    fn data(&self) -> PathBuf {
        self.directory.path().join("volumes").join(HANDLE)
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        take_away_below(&self.member.node.root());
        take_away_below(self.directory.path());
    }
}

pub fn spec(script: &str, volume: Value) -> Value {
    let main = with(shell("main", script), json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}));
    with(
        containers([main]),
        json!({"gate": true, "volumes": [volume], "securityContext": {"fsGroup": GROUP}}),
    )
}

/// A script that writes into the volume what it finds there and then `word`.
pub fn writes(word: &str) -> String {
    format!("echo {word} >>/data/words; cp /data/words /gate/words; {OBEDIENT}")
}

pub fn read(pod: &OwnPod<'_>, expected: &[&str]) {
    eventually("it has read and written the volume", SOON, || {
        let words = pod.file.written("words");
        if words == expected { Ok(()) } else { Err(format!("{words:?}")) }
    });
}

pub fn shared(setting: &Arc<Setting>) {
    let stand = Stand::new(setting, "csi-shared");
    stand.claimed().make(json!({}));
    // The driver is registered anew, with what it tells of the node from then on.
    for order in ["node i-1 9 zone=a", "unregister"] {
        stand.driver.borrow_mut().order(order).expect("the driver obeys");
    }
    eventually("the CSINode has lost the driver", SOON, || csi_node_has(&stand.member, Vec::is_empty));
    stand.driver.borrow_mut().order("register").expect("the driver obeys");
    let told =
        json!([{"name": stand.name, "nodeID": "i-1", "topologyKeys": ["zone"], "allocatable": {"count": 9}}]);
    let drivers = || csi_node_has(&stand.member, |drivers| json!(drivers) == told);
    eventually("the CSINode has the driver", SOON, drivers);
    eventually("the Node names itself for the driver", SOON, || {
        let node = stand.member.object()?;
        let metadata = &node["metadata"];
        let ids = json!({&stand.name: "i-1"}).to_string();
        let is_told = metadata["annotations"]["csi.volume.kubernetes.io/nodeid"] == ids;
        if is_told && metadata["labels"]["zone"] == "a" { Ok(()) } else { Err(metadata.to_string()) }
    });

    let first = stand.pod("first", &writes("one"));
    let waits = first.look().expect("the pod is there");
    stand.claimed().attach(|| assert_eq!(stand.count("NodeStageVolume"), 0, "it is not attached"));
    let before = first.ready();
    assert_eq!(before.uid(), waits.uid());
    read(&first, &["one"]);
    assert_eq!(fs::metadata(stand.data()).expect("the volume").gid(), GROUP, "it is the pod's group's");
    let second = stand.pod("second", &writes("two"));
    second.ready();
    read(&second, &["one", "two"]);
    let mounts = stand.mounts();
    assert_eq!(mounts.len(), 3, "staged once, and shown to both: {mounts:?}");
    let counts =
        || ["NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume"].map(|rpc| stand.count(rpc));
    assert_eq!(counts(), [1, 2, 0]);

    stand.kill_and_start();
    stand.member.becomes_ready();
    let after = first.ready();
    assert_eq!(after.container_id("main"), before.container_id("main"));
    // Longer than the first look for what is idle.
    holds("nothing is mounted anew", Duration::from_secs(70), || {
        let now = (stand.mounts(), counts());
        if (&now.0, now.1) == (&mounts, [1, 2, 0]) { Ok(()) } else { Err(format!("{now:?}")) }
    });

    let seen = second.look().expect("the pod is there");
    second.delete(None);
    second.gone(&seen);
    assert_eq!(stand.mounts().len(), 2, "the first goes on");
    first.ready();
    first.delete(None);
    first.gone(&after);
    stand.nothing_is_left();
    assert_eq!(fs::read_to_string(stand.data().join("words")).expect("it outlives its pods"), "one\ntwo\n");
    assert_eq!(stand.order("broken"), json!([]));
}

pub fn killed(setting: &Arc<Setting>) {
    let stand = Stand::new(setting, "csi-killed");
    stand.claimed().make(json!({}));
    let slow = |rpc: &str| stand.slow(rpc);
    let kill_during = |rpc: &str, before: u64| stand.kill_during(rpc, before);
    let before = slow("NodeStageVolume");
    let pod = stand.pod("killed", &writes("one"));
    stand.claimed().attach(|| ());
    kill_during("NodeStageVolume", before);
    pod.ready();
    read(&pod, &["one"]);
    let seen = pod.look().expect("the pod is there");
    let before = slow("NodeUnpublishVolume");
    pod.delete(None);
    kill_during("NodeUnpublishVolume", before);
    pod.gone(&seen);
    stand.nothing_is_left();

    let before = slow("NodePublishVolume");
    let pod = stand.pod("killed", &writes("two"));
    kill_during("NodePublishVolume", before);
    pod.ready();
    read(&pod, &["one", "two"]);
    let seen = pod.look().expect("the pod is there");
    let before = slow("NodeUnstageVolume");
    pod.delete(None);
    kill_during("NodeUnstageVolume", before);
    pod.gone(&seen);
    stand.nothing_is_left();
}

pub fn inline(setting: &Arc<Setting>) {
    let stand = Stand::new(setting, "csi-inline");
    let source = json!({"driver": stand.name, "volumeAttributes": {"size": "1"}});
    let pod = stand.member.pod("inline", spec(&writes("one"), json!({"name": "data", "csi": source})));
    let seen = pod.ready();
    read(&pod, &["one"]);
    let held = stand.order("held");
    let published = held["published"].as_object().expect("a map");
    let context = &published.values().next().expect("it is published")["context"];
    assert_eq!(context["csi.storage.k8s.io/ephemeral"], "true");
    assert_eq!(context["csi.storage.k8s.io/pod.uid"], seen.uid());
    let tokens = context["csi.storage.k8s.io/serviceAccount.tokens"].as_str().expect("it is told tokens");
    assert!(
        tokens.starts_with("{\"vault\":{\"token\":\"ey") && tokens.contains("expirationTimestamp"),
        "{tokens}"
    );
    let mounts = stand.mounts();
    stand.kill_and_start();
    assert_eq!(pod.ready().container_id("main"), seen.container_id("main"));
    assert_eq!(stand.mounts(), mounts);
    // The driver goes, and its volume waits for it; then it is undone.
    stand.driver.borrow_mut().order("unregister").expect("the driver obeys");
    eventually("the CSINode has lost the driver", SOON, || csi_node_has(&stand.member, Vec::is_empty));
    pod.delete(None);
    eventually("the container ends", SOON, || match pod.look()? {
        now if now.is_running("main") => Err(now.status().to_string()),
        _ => Ok(()),
    });
    holds("it is not torn out", Duration::from_secs(3), || match stand.mounts() {
        now if now == mounts => Ok(()),
        now => Err(format!("{now:?}")),
    });
    stand.driver.borrow_mut().order("register").expect("the driver obeys");
    pod.gone(&seen);
    stand.nothing_is_left();
}
