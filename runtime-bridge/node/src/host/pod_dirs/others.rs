//! Volumes that another kubelet has set up by plugins that this one does not have. They are looked at and left alone.

use std::path::{Path, PathBuf};

use super::{Layout, OtherVolume, PodDirsError, Reported};

/// Where volumes of file systems lie below a pod's directory, and where those of block devices do.
const VOLUMES: [&str; 2] = ["volumes", "volumeDevices"];
/// The directory of CSI's volumes in either, its name with a slash, and where what it knows of staged ones lies.
const CSI_DIR: &str = "kubernetes.io~csi";
const CSI: &str = "kubernetes.io/csi";
/// What CSI's plugin notes about a volume, and the most that is read of it.
const DATA: &str = "vol_data.json";
pub(super) const DATA_BYTES_MAX: u64 = 64 * 1024;

/// What is looked at: a disk, or a fake one.
pub(super) trait Look {
    /// The names in a directory; none if there is no such directory.
    fn names(&self, dir: &Path) -> Result<Vec<String>, PodDirsError>;
    /// A small file that is no link; none if there is no such file, or it cannot be read.
    fn read(&self, file: &Path) -> Option<Vec<u8>>;
}

/// Those of one pod, or all there are on the node.
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

/// The volumes below one pod's directory that are of none of these plugins.
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

/// What CSI's plugin has staged on the node, for whichever pods.
fn staged(look: &impl Look, root: &Path) -> Result<Vec<OtherVolume>, PodDirsError> {
    let csi = root.join("plugins").join(CSI);
    let mut found = Vec::new();
    for above in look.names(&csi)? {
        for name in look.names(&csi.join(&above))? {
            let dir: PathBuf = csi.join(&above).join(&name);
            // Block devices have it one further down.
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
