//! Volumes that an earlier kubelet set up with plugins that this kubelet does not have. They are reported and left
//! alone.

use std::path::{Path, PathBuf};

use pod_rules::volume_plugins::{CSI, FC, ISCSI};

use super::{Layout, OtherVolume, PodDirsError, Reported};

/// The directories, below a pod's, of file system volumes and of block device volumes.
const VOLUMES: [(&str, bool); 2] = [("volumes", false), ("volumeDevices", true)];
/// The directory of CSI's volumes in either of them, its name with a slash, and the directory of CSI's notes on staged
/// volumes.
const CSI_DIR: &str = "kubernetes.io~csi";
/// The most parts of a FlexVolume driver's name: a vendor and a name.
const DRIVER_PARTS_MAX: usize = 2;
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
        return of_pod(look, layout.root(), &layout.pod(uid)?, uid, own);
    }
    let mut found = staged(look, layout.root())?;
    found.extend(disks(look, layout.root())?);
    let flex = layout.root().join("plugins/kubernetes.io/flexvolume");
    found.extend(of_drivers(look, &flex, "", DRIVER_PARTS_MAX)?);
    for uid in look.names(&layout.pods())? {
        found.extend(of_pod(look, layout.root(), &layout.pods().join(&uid), &uid, own)?);
    }
    Ok(found)
}

/// The volumes below one pod's directory, except those of the plugins `own`.
fn of_pod(
    look: &impl Look,
    root: &Path,
    pod_dir: &Path,
    uid: &str,
    own: &[&str],
) -> Result<Vec<OtherVolume>, PodDirsError> {
    let mut found = Vec::new();
    for (kind, is_block) in VOLUMES {
        let dir = pod_dir.join(kind);
        for plugin_dir in look.names(&dir)? {
            let plugin = plugin_dir.replace('~', "/");
            if own.contains(&plugin.as_str()) {
                continue;
            }
            for name in look.names(&dir.join(&plugin_dir))? {
                let data = if is_block {
                    of_device(root, &name)
                } else {
                    dir.join(&plugin_dir).join(&name).join(DATA)
                };
                let reported = match plugin_dir.as_str() {
                    CSI_DIR => look.read(&data).map_or(Reported::Unknown, |data| reported(&data)),
                    _ => Reported::Unknown,
                };
                let (pod, plugin) = (Some(uid.to_owned()), plugin.clone());
                found.push(OtherVolume { pod, plugin, name, is_block, reported });
            }
        }
    }
    Ok(found)
}

/// The notes on a block device of CSI's plugin, which its pods share.
fn of_device(root: &Path, name: &str) -> PathBuf {
    root.join("plugins").join(CSI).join("volumeDevices").join(name).join("data").join(DATA)
}

/// The volumes that CSI's plugin has staged on the node.
fn staged(look: &impl Look, root: &Path) -> Result<Vec<OtherVolume>, PodDirsError> {
    let csi = root.join("plugins").join(CSI);
    let mut found = Vec::new();
    for above in look.names(&csi)? {
        for name in look.names(&csi.join(&above))? {
            let dir: PathBuf = csi.join(&above).join(&name);
            // Block devices have the file one directory further down.
            let of_block = || look.read(&dir.join("data").join(DATA)).map(|data| (data, true));
            let data = look.read(&dir.join(DATA)).map(|data| (data, false)).or_else(of_block);
            if let Some((data, is_block)) = data {
                let reported = reported(&data);
                found.push(OtherVolume { pod: None, plugin: CSI.to_owned(), name, is_block, reported });
            }
        }
    }
    Ok(found)
}

/// The disks of iSCSI and Fibre Channel that are on the node, by their directories below their plugin's, which name them.
fn disks(look: &impl Look, root: &Path) -> Result<Vec<OtherVolume>, PodDirsError> {
    let mut found = Vec::new();
    for (plugin, block) in [(ISCSI, false), (ISCSI, true), (FC, false), (FC, true)] {
        let plugin_dir = root.join("plugins").join(plugin);
        let dir = if block { plugin_dir.join("volumeDevices") } else { plugin_dir };
        for name in look.names(&dir)? {
            let mut tell = |name: String, reported: String| {
                let (plugin, reported) = (plugin.to_owned(), Reported::As(format!("{plugin}/{reported}")));
                found.push(OtherVolume { pod: None, plugin, name, is_block: block, reported });
            };
            if plugin == FC {
                if name != "volumeDevices" {
                    tell(name.clone(), fc_name(&name));
                }
            } else if name.starts_with("iface-") {
                for disk in look.names(&dir.join(&name))? {
                    let place = format!("{name}/{disk}");
                    iscsi_names(&disk).into_iter().for_each(|reported| tell(place.clone(), reported));
                }
            }
        }
    }
    Ok(found)
}

/// The volumes of FlexVolume drivers that are on the node: below a driver's name, whose parts are directories, in `mounts`.
fn of_drivers(
    look: &impl Look,
    dir: &Path,
    driver: &str,
    parts_max: usize,
) -> Result<Vec<OtherVolume>, PodDirsError> {
    let mut found = Vec::new();
    for part in look.names(dir)? {
        let below = dir.join(&part);
        if part == "mounts" && !driver.is_empty() {
            found.extend(look.names(&below)?.into_iter().map(|name| OtherVolume {
                pod: None,
                plugin: driver.to_owned(),
                reported: Reported::As(format!("{driver}/{name}")),
                name,
                is_block: false,
            }));
        } else if let Some(parts_max) = parts_max.checked_sub(1) {
            let driver = if driver.is_empty() { part } else { format!("{driver}/{part}") };
            found.extend(of_drivers(look, &below, &driver, parts_max)?);
        }
    }
    Ok(found)
}

/// PURE: how upstream names a disk of Fibre Channel with this directory.
fn fc_name(dir: &str) -> String {
    let numbered = dir.rsplit_once("-lun-").filter(|(_, lun)| lun.parse::<u32>().is_ok());
    match numbered {
        Some((wwns, lun)) => format!("[{}]:{lun}", wwns.replace('-', " ")),
        None => format!("[{}]", dir.replace('-', " ")),
    }
}

/// PURE: how upstream names a disk of iSCSI with this directory: with the portal's usual port or without it, as its volume does.
fn iscsi_names(dir: &str) -> Vec<String> {
    let named = || {
        let (target, lun) = dir.rsplit_once("-lun-")?;
        let at = ["-iqn.", "-eui.", "-naa."].iter().filter_map(|kind| target.find(kind)).min()?;
        let (portal, iqn) = target.split_at(at);
        Some((portal, iqn.strip_prefix('-')?, lun))
    };
    let Some((portal, iqn, lun)) = named() else { return Vec::new() };
    let portals = [Some(portal), portal.strip_suffix(":3260")];
    portals.into_iter().flatten().map(|portal| format!("{portal}:{iqn}:{lun}")).collect()
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
    fn the_directory_of_a_disk_says_by_which_name_it_is_reported() {
        assert_eq!(fc_name("50a-50b-lun-2"), "[50a 50b]:2");
        assert_eq!(fc_name("3600"), "[3600]");
        let names = iscsi_names("10.0.0.1:3260-iqn.2020-01.test:a-lun-0");
        assert_eq!(names, ["10.0.0.1:3260:iqn.2020-01.test:a:0", "10.0.0.1:iqn.2020-01.test:a:0"]);
        assert_eq!(iscsi_names("my-host:1-eui.2-lun-0"), ["my-host:1:eui.2:0"]);
        assert!(iscsi_names("other").is_empty());
    }

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
