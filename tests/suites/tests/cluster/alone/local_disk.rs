//! A disk of the node as a PersistentVolume (row 10.13): a loop device on a file, which is empty at first.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::member::Member;
use crate::node::SOON;
use crate::setting::Setting;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use testkit::process::eventually;

use super::csi::{GROUP, read, spec, writes};

const BYTES: u64 = 64 << 20;

/// A loop device on a file of its own. Dropping it unmounts whatever is left of it and gives it back.
struct Disk {
    device: String,
    _directory: tempfile::TempDir,
}

impl Disk {
    /// `None` where the kernel has no loop devices; the reason is printed.
    fn new() -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("disk-").tempdir().expect("a temporary directory");
        let file = directory.path().join("disk.img");
        File::create(&file).and_then(|image| image.set_len(BYTES)).expect("a sparse file");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let why = match made {
            Ok(made) if made.status.success() => {
                let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
                return Some(Self { device, _directory: directory });
            }
            Ok(made) => String::from_utf8_lossy(&made.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        eprintln!("skipped: this machine has no loop devices: {why}");
        None
    }

    /// The mounts of the disk: the kernel's number of each, and where it is.
    fn mounts(&self) -> Vec<(String, String)> {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has a mount table");
        let lines = table.lines().filter(|line| line.contains(&format!(" {} ", self.device)));
        let words = lines.map(|line| line.split(' ').collect::<Vec<_>>());
        words.map(|words| (words[0].to_owned(), words[4].to_owned())).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for (_, place) in self.mounts().into_iter().rev() {
            let _ = Command::new("umount").arg(&place).stderr(Stdio::null()).status();
        }
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
    }
}

/// The claim `claim` of the node's pods, bound to the disk, which is of this node alone.
fn claim(member: &Member, disk: &Disk) -> String {
    let Member { api, name: ns, .. } = member;
    let name = format!("pv-{ns}");
    let common =
        json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeMode": "Filesystem"});
    let with = |more: Value| crate::spec::with(common.clone(), more);
    let claim = api.create::<PersistentVolumeClaim>(json!({
        "metadata": {"name": "claim", "namespace": ns},
        "spec": with(json!({"resources": {"requests": {"storage": "64Mi"}}, "volumeName": name})),
    }));
    let here = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [member.name]});
    api.create::<PersistentVolume>(json!({"metadata": {"name": name}, "spec": with(json!({
        "capacity": {"storage": "64Mi"}, "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": ns, "name": "claim", "uid": claim["metadata"]["uid"]},
        "local": {"path": disk.device, "fsType": "ext4"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }))}));
    api.merge_status::<PersistentVolumeClaim>(Some(ns), "claim", json!({"status": {"phase": "Bound"}}));
    name
}

pub fn shared(setting: &Arc<Setting>) {
    // Declared first, so that the node is gone when the disk is taken away.
    let Some(disk) = Disk::new() else { return };
    let member = Member::alone(setting, "local-disk");
    let name = claim(&member, &disk);
    let volume = || json!({"name": "data", "persistentVolumeClaim": {"claimName": "claim"}});

    let first = member.pod("first", spec(&writes("one"), volume()));
    let before = first.ready();
    read(&first, &["one"]);
    let second = member.pod("second", spec(&writes("two"), volume()));
    let of_second = second.ready();
    read(&second, &["one", "two"]);
    let shown = disk.mounts();
    let of_node = member.node.root().join("plugins/kubernetes.io/local-volume/mounts").join(&name);
    let is_of_node = |(_, place): &&(String, String)| *place == of_node.display().to_string();
    assert_eq!(shown.iter().filter(is_of_node).count(), 1, "once for the node: {shown:?}");
    let below = member.node.root().join("pods").display().to_string();
    assert_eq!(shown.iter().filter(|(_, place)| place.starts_with(&below)).count(), 2, "{shown:?}");
    let format = Command::new("blkid").args(["-o", "value", "-s", "TYPE", &disk.device]).output();
    assert_eq!(String::from_utf8_lossy(&format.expect("blkid runs").stdout).trim(), "ext4");
    assert_eq!(fs::metadata(&of_node).expect("it is mounted").gid(), GROUP, "it is the pod's group's");

    member.node.kill_kubelet();
    member.node.start_kubelet_again();
    member.becomes_ready();
    assert_eq!(first.ready().container_id("main"), before.container_id("main"));
    assert_eq!(disk.mounts(), shown, "nothing is mounted anew");

    for (pod, seen) in [(&second, &of_second), (&first, &before)] {
        pod.delete(None);
        pod.gone(seen);
    }
    eventually("the disk is free", SOON, || {
        let left = disk.mounts();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    // What was written outlives the pods.
    let third = member.pod("third", spec(&writes("three"), volume()));
    let of_third = third.ready();
    read(&third, &["one", "two", "three"]);
    third.delete(None);
    third.gone(&of_third);
}
