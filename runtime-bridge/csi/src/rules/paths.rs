//! PURE: where the Go kubelet has CSI's volumes, so that each kubelet finds those of the other.

use std::path::{Path, PathBuf};

use super::{PLUGIN, sha256};

/// The file in which a volume is noted, beside its mount or in its data directory.
pub const VOL_DATA: &str = "vol_data.json";

/// A name that cannot be a directory's: it would lead elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be the name of a directory")]
pub struct BadName {
    /// The name.
    pub name: String,
}

/// The paths below a kubelet's root directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
}

/// A name as one directory, where `/` is `~`.
fn part(name: &str) -> Result<String, BadName> {
    plain(&name.replace('/', "~"))
}

/// A name as one directory, as it is.
fn plain(name: &str) -> Result<String, BadName> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(BadName { name: name.to_owned() });
    }
    Ok(name.to_owned())
}

impl Paths {
    /// The paths below this root directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn plugin(&self) -> PathBuf {
        self.root.join("plugins").join(PLUGIN)
    }

    fn devices(&self) -> PathBuf {
        self.plugin().join("volumeDevices")
    }

    /// Where plugins show the sockets by which they register.
    #[must_use]
    pub fn plugins_registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// Where a volume with a file system is staged.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn device_mount(&self, driver: &str, volume_id: &str) -> Result<PathBuf, BadName> {
        Ok(self.plugin().join(plain(driver)?).join(sha256(&[volume_id])).join("globalmount"))
    }

    /// The directory of a pod's volume, which holds the mount and [`VOL_DATA`]. `spec_name` is the name of the persistent
    /// volume, of an inline volume that of the volume in the pod.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn pod_volume(&self, pod_uid: &str, spec_name: &str) -> Result<PathBuf, BadName> {
        let volumes = self.root.join("pods").join(plain(pod_uid)?).join("volumes");
        Ok(volumes.join(part(PLUGIN)?).join(part(spec_name)?))
    }

    /// Where a volume with a file system is published to a pod.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn target(&self, pod_uid: &str, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.pod_volume(pod_uid, spec_name)?.join("mount"))
    }

    /// The directory of a block device's notes: [`VOL_DATA`] lies in its `data`, the links of pods in its `dev`.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block(&self, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.devices().join(part(spec_name)?))
    }

    /// The directory of [`VOL_DATA`] of a block device.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block_data(&self, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.block(spec_name)?.join("data"))
    }

    /// The global map path: a bind mount of the device for each pod, by its UID.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block_map(&self, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.block(spec_name)?.join("dev"))
    }

    /// Where a block device is staged.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block_staging(&self, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.devices().join("staging").join(plain(spec_name)?))
    }

    /// The directory that holds, for each pod by its UID, the file at which a block device is published.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block_publish_dir(&self, spec_name: &str) -> Result<PathBuf, BadName> {
        Ok(self.devices().join("publish").join(plain(spec_name)?))
    }

    /// The file at which a block device is published to a pod.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn block_publish(&self, spec_name: &str, pod_uid: &str) -> Result<PathBuf, BadName> {
        Ok(self.block_publish_dir(spec_name)?.join(plain(pod_uid)?))
    }

    /// The link to a pod's block device.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn pod_device(&self, pod_uid: &str, spec_name: &str) -> Result<PathBuf, BadName> {
        let devices = self.root.join("pods").join(plain(pod_uid)?).join("volumeDevices");
        Ok(devices.join(part(PLUGIN)?).join(plain(spec_name)?))
    }
}

/// The file of notes for the directory where a volume is staged or published.
#[must_use]
pub fn notes_of(mount: &Path) -> PathBuf {
    mount.parent().unwrap_or(mount).join(VOL_DATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_go_kubelet() {
        let paths = Paths::new("/var/lib/kubelet");
        let text = |path: Result<PathBuf, BadName>| path.unwrap().display().to_string();
        // printf handle-1 | sha256sum
        let hash = sha256(&["handle-1"]);
        assert_eq!(hash.len(), 64);
        let device = text(paths.device_mount("d.example", "handle-1"));
        assert_eq!(
            device,
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/{hash}/globalmount")
        );
        assert_eq!(
            notes_of(Path::new(&device)).display().to_string(),
            format!("/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/{hash}/vol_data.json")
        );
        let rows = [
            (paths.target("uid-1", "pvc-1"), "pods/uid-1/volumes/kubernetes.io~csi/pvc-1/mount"),
            (paths.target("uid-1", "a/b"), "pods/uid-1/volumes/kubernetes.io~csi/a~b/mount"),
            (paths.block_map("pvc-1"), "plugins/kubernetes.io/csi/volumeDevices/pvc-1/dev"),
            (paths.block_data("pvc-1"), "plugins/kubernetes.io/csi/volumeDevices/pvc-1/data"),
            (paths.block_staging("pvc-1"), "plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1"),
            (paths.block_publish("pvc-1", "u"), "plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/u"),
            (paths.pod_device("u", "pvc-1"), "pods/u/volumeDevices/kubernetes.io~csi/pvc-1"),
        ];
        for (path, expected) in rows {
            assert_eq!(text(path), format!("/var/lib/kubelet/{expected}"));
        }
    }

    #[test]
    fn no_name_leads_elsewhere() {
        let paths = Paths::new("/r");
        for name in ["", ".", "..", "a\0b"] {
            assert!(paths.target("u", name).is_err() && paths.target(name, "v").is_err(), "{name:?}");
            assert!(paths.device_mount(name, "h").is_err(), "{name:?}");
        }
        assert!(paths.device_mount("../x", "h").is_err() && paths.block_staging("a/b").is_err());
        assert!(paths.target("u", "../x").unwrap().ends_with("kubernetes.io~csi/..~x/mount"));
    }
}
