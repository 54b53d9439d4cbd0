//! Block devices of a CSI driver that is a process of its own (rows 10.19 and 10.25): real loop devices, real mounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::member::OwnPod;
use crate::node::{LATER, SOON};
use crate::setting::Setting;
use crate::spec::{OBEDIENT, containers, shell, with};
use csi_driver::claimed::{have_loops, loops_below};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;
use testkit::process::eventually;

use super::csi::{HANDLE, Stand, read};

/// A pod that has the claim's device and runs this script.
fn pod<'a>(stand: &'a Stand, base: &str, script: &str) -> OwnPod<'a> {
    let device = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/disk"}]});
    let main = with(shell("main", script), device);
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "claim"}});
    stand.member.pod(base, with(containers([main]), json!({"gate": true, "volumes": [volume]})))
}

/// Writes a word to the device, or reads the one that is there.
fn writes(word: &str) -> String {
    format!("echo {word} >/dev/disk; echo {word} >/gate/words; {OBEDIENT}")
}

fn reads() -> String {
    format!("read word </dev/disk; echo $word >/gate/words; {OBEDIENT}")
}

/// The loop devices with files below the kubelet's directory.
fn loops(stand: &Stand) -> BTreeMap<String, String> {
    loops_below(&stand.member.node.root())
}

pub fn shown(setting: &Arc<Setting>) {
    if !have_loops() {
        return;
    }
    let stand = Stand::new(setting, "csi-block");
    stand.claimed().make(json!({"volumeMode": "Block"}));
    let first = pod(&stand, "first", &writes("one"));
    stand.claimed().attach(|| ());
    let before = first.ready();
    read(&first, &["one"]);
    let second = pod(&stand, "second", &reads());
    second.ready();
    read(&second, &["one"]);
    assert_eq!(loops(&stand).len(), 2, "one for each pod: {:?}", loops(&stand));
    let (mounts, files) = (stand.mounts(), loops(&stand));
    stand.kill_and_start();
    stand.member.becomes_ready();
    assert_eq!(first.ready().container_id("main"), before.container_id("main"));
    assert_eq!((stand.mounts(), loops(&stand)), (mounts, files), "nothing is mapped anew");

    // The controller has made it larger.
    let api = &stand.member.api;
    api.merge::<PersistentVolume>(
        None,
        stand.claimed().volume(),
        json!({"spec": {"capacity": {"storage": "2Gi"}}}),
    );
    let pending = json!({"status": {
        "capacity": {"storage": "1Gi"}, "allocatedResources": {"storage": "2Gi"},
        "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
    }});
    api.merge_status::<PersistentVolumeClaim>(Some(&stand.member.name), "claim", pending);
    eventually("the claim tells its size", LATER, || {
        let claim = api.get::<PersistentVolumeClaim>(Some(&stand.member.name), "claim")?;
        let status = claim.map(|claim| claim["status"].clone()).unwrap_or_default();
        let is_done = status["capacity"]["storage"] == "2Gi"
            && status["allocatedResourceStatuses"].is_null()
            && status["conditions"].is_null();
        if is_done { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(stand.order("held")["sizes"][HANDLE], 2_i64 << 30);

    for pod in [&first, &second] {
        let seen = pod.look().expect("the pod is there");
        pod.delete(None);
        pod.gone(&seen);
    }
    stand.nothing_is_left();
    assert_eq!((loops(&stand), stand.order("broken")), (BTreeMap::new(), json!([])));
}

pub fn killed(setting: &Arc<Setting>) {
    if !have_loops() {
        return;
    }
    let stand = Stand::new(setting, "csi-block-killed");
    stand.claimed().make(json!({"volumeMode": "Block"}));
    let mut attached = false;
    for (word, [during_start, during_end]) in [
        ("one", ["NodeStageVolume", "NodeUnpublishVolume"]),
        ("two", ["NodePublishVolume", "NodeUnstageVolume"]),
    ] {
        let before = stand.slow(during_start);
        let pod = pod(&stand, "killed", &writes(word));
        if !attached {
            stand.claimed().attach(|| ());
            attached = true;
        }
        stand.kill_during(during_start, before);
        pod.ready();
        read(&pod, &[word]);
        let seen = pod.look().expect("the pod is there");
        let before = stand.slow(during_end);
        pod.delete(None);
        stand.kill_during(during_end, before);
        pod.gone(&seen);
        stand.nothing_is_left();
        eventually("no loop device is left", SOON, || match loops(&stand) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
    }
}
