//! What provisioner, binder and attacher write about a volume of a driver, which a test plays; and what is left of volumes on a
//! machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use bridge_csi::rules::attachment;
use serde_json::{Value, json};

/// A volume behind a claim, and the node that it is attached to.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The driver's name.
    pub driver: String,
    /// The handle by which the driver knows the volume.
    pub handle: String,
    /// The namespace of the claim.
    pub namespace: String,
    /// The claim's name.
    pub claim: String,
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The node's name.
    pub node: String,
}

fn laid_over(mut under: Value, over: Value) -> Value {
    if let (Value::Object(under), Value::Object(over)) = (&mut under, over) {
        under.extend(over);
    }
    under
}

impl Claimed {
    /// The claim, not yet told to be bound. `more` are fields of the PersistentVolume.
    #[must_use]
    pub fn claim(&self, more: &Value) -> Value {
        let mode = more.get("volumeMode").cloned().unwrap_or(json!("Filesystem"));
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": self.claim, "namespace": self.namespace},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": mode,
                "volumeName": self.volume, "storageClassName": "",
            },
        })
    }

    /// The PersistentVolume, bound to the claim of this UID; `more` are fields of its spec.
    #[must_use]
    pub fn volume(&self, claim_uid: &Value, more: Value) -> Value {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": self.namespace, "name": self.claim, "uid": claim_uid},
            "csi": {"driver": self.driver, "volumeHandle": self.handle, "fsType": "ext4"},
        });
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": self.volume}, "spec": laid_over(spec, more),
        })
    }

    /// The name by which the Node tells that the volume is in use.
    #[must_use]
    pub fn unique_name(&self) -> String {
        attachment::unique_name(&self.driver, &self.handle)
    }

    /// The VolumeAttachment, not yet told to be attached.
    #[must_use]
    pub fn attachment(&self) -> Value {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": attachment::name(&self.handle, &self.driver, &self.node)},
            "spec": {
                "attacher": self.driver, "nodeName": self.node, "source": {"persistentVolumeName": self.volume},
            },
        })
    }
}

/// The mounts of drivers' volumes below a kubelet's directory, by path, with the kernel's number of each mount.
///
/// # Panics
/// When the kernel's table cannot be read.
#[must_use]
pub fn mounts_below(root: &Path) -> BTreeMap<String, String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the kernel has a mount table");
    let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let of_driver = lines.filter(|words| Path::new(words[4]).starts_with(root) && words[4].contains("csi"));
    of_driver.map(|words| (words[4].to_owned(), words[0].to_owned())).collect()
}

/// The loop devices whose files lie below a directory, with these files.
///
/// # Panics
/// When the kernel does not tell of block devices.
#[must_use]
pub fn loops_below(directory: &Path) -> BTreeMap<String, String> {
    let devices = fs::read_dir("/sys/block").expect("the kernel tells of block devices");
    let files = devices.flatten().filter_map(|entry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some((format!("/dev/{name}"), file.trim().to_owned()))
    });
    files.filter(|(_, file)| Path::new(file).starts_with(directory)).collect()
}

/// Takes away what a failed case has left below a directory: mounts of drivers' volumes and loop devices.
pub fn take_away_below(directory: &Path) {
    // A device that is shown to a pod has a loop device that keeps its mount busy.
    for device in loops_below(directory).into_keys() {
        let _gone = Command::new("losetup").arg("--detach").arg(&device).status();
    }
    for path in mounts_below(directory).into_keys().rev() {
        let _gone = Command::new("umount").arg(&path).status();
    }
}

/// Whether the machine can make loop devices; says so where it cannot.
#[must_use]
pub fn have_loops() -> bool {
    let made = Command::new("losetup").arg("--find").output();
    let have = made.is_ok_and(|found| found.status.success());
    if !have {
        eprintln!("this machine has no loop devices: block devices are left out");
    }
    have
}
