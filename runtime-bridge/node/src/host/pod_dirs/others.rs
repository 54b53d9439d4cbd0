//! Volumes that an earlier kubelet set up with plugins that this kubelet does not have. They are reported and left
//! alone.

use std::path::{Path, PathBuf};

use super::{Layout, OtherVolume, PodDirsError, Reported};

/// The directories, below a pod's, of file system volumes and of block device volumes.
const VOLUMES: [&str; 2] = ["volumes", "volumeDevices"];
/// The directory of CSI's volumes in either of them, its name with a slash, and the directory of CSI's notes on staged
/// volumes.
const CSI_DIR: &str = "kubernetes.io~csi";
const CSI: &str = "kubernetes.io/csi";
/// The file in which CSI's plugin describes a volume, and the most bytes of it that are read.
const DATA: &str = "vol_data.json";
pub(super) const DATA_BYTES_MAX: u64 = 64 * 1024;

/// Read access to a disk, real or fake.
pub(super) trait Look {
    /// The names in a directory; empty if it does not exist.
    fn names(&self, dir: &Path) -> Result<Vec<String>, PodDirsError>;
    /// A small regular file's bytes; `None` if it does not exist, is a link or cannot be read.
    fn read(&self, file: &Path) -> Option<Vec<u8>>;
}

/// The volumes of one pod, or all on the node.
pub(super) fn all(
    look: &impl Look,
    layout: &Layout,
    uid: Option<&str>,
    own: &[&str],
) -> Result<Vec<OtherVolume>, PodDirsError> {
    if let Some(uid) = uid {
        return of_pod(look, &layout.pod(uid)?, uid, own);
    }
    let mut found = staged(look, layout.root())?;
    for uid in look.names(&layout.pods())? {
        found.extend(of_pod(look, &layout.pods().join(&uid), &uid, own)?);
    }
    Ok(found)
}

/// The volumes below one pod's directory, except those of the plugins `own`.
fn of_pod(
    look: &impl Look,
    pod_dir: &Path,
    uid: &str,
    own: &[&str],
) -> Result<Vec<OtherVolume>, PodDirsError> {
    let mut found = Vec::new();
    for kind in VOLUMES {
        let dir = pod_dir.join(kind);
        for plugin_dir in look.names(&dir)? {
            let plugin = plugin_dir.replace('~', "/");
            if own.contains(&plugin.as_str()) {
                continue;
            }
            for name in look.names(&dir.join(&plugin_dir))? {
                let data = dir.join(&plugin_dir).join(&name).join(DATA);
                let reported = match plugin_dir.as_str() {
                    CSI_DIR => look.read(&data).map_or(Reported::Unknown, |data| reported(&data)),
                    _ => Reported::Unknown,
                };
                found.push(OtherVolume { pod: Some(uid.to_owned()), plugin: plugin.clone(), name, reported });
            }
        }
    }
    Ok(found)
}

/// The volumes that CSI's plugin has staged on the node.
fn staged(look: &impl Look, root: &Path) -> Result<Vec<OtherVolume>, PodDirsError> {
    let csi = root.join("plugins").join(CSI);
    let mut found = Vec::new();
    for above in look.names(&csi)? {
        for name in look.names(&csi.join(&above))? {
            let dir: PathBuf = csi.join(&above).join(&name);
            // Block devices have the file one directory further down.
            let data = look.read(&dir.join(DATA)).or_else(|| look.read(&dir.join("data").join(DATA)));
            if let Some(data) = data {
                let reported = reported(&data);
                found.push(OtherVolume { pod: None, plugin: CSI.to_owned(), name, reported });
            }
        }
    }
    Ok(found)
}

fn reported(data: &[u8]) -> Reported {
    let Ok(data) = serde_json::from_slice::<serde_json::Value>(data) else { return Reported::Unknown };
    let text =
        |field: &str| data.get(field).and_then(serde_json::Value::as_str).filter(|text| !text.is_empty());
    if text("volumeLifecycleMode") == Some("Ephemeral") {
        return Reported::Never;
    }
    match (text("driverName"), text("volumeHandle")) {
        (Some(driver), Some(handle)) => Reported::As(format!("{CSI}/{driver}^{handle}")),
        _ => Reported::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_csi_notes_says_by_which_name_a_volume_is_reported() {
        let data = |more: &str| format!(r#"{{"driverName":"d.example","specVolID":"pvc-1"{more}}}"#);
        let of = |more: &str| reported(data(more).as_bytes());
        assert_eq!(
            of(r#","volumeHandle":"h/1","volumeLifecycleMode":"Persistent""#),
            Reported::As("kubernetes.io/csi/d.example^h/1".to_owned())
        );
        assert_eq!(of(r#","volumeHandle":"h","volumeLifecycleMode":"Ephemeral""#), Reported::Never);
        assert_eq!(of(""), Reported::Unknown);
        assert_eq!(of(r#","volumeHandle":7"#), Reported::Unknown);
        assert_eq!(reported(b"{"), Reported::Unknown);
    }
}
