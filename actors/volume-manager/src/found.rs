//! What earlier incarnations and kubelets have left on the node: volumes, pods' directories and mounts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bridge_node::host::OtherVolume;
use bridge_node::mounts::MountPoint;
use messages::PodUid;
use messages::volume_manager::VolumeError;
use supervision::blame;

use crate::backends::Backends;
use crate::execute::failed;
use crate::kinds::{self, VolumeKind};
use crate::plan;

/// The volumes that a pod has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Paths on the host, by volume.
    pub host_paths: BTreeMap<String, String>,
    /// The plugin of each volume.
    pub plugins: Vec<String>,
}

impl Found {
    /// Adds a volume, unless it is known already.
    fn add(&mut self, name: String, plugin: String, path: &Path) {
        if let Entry::Vacant(unknown) = self.host_paths.entry(name) {
            unknown.insert(path.to_string_lossy().into_owned());
            self.plugins.push(plugin);
        }
    }
}

/// The volumes that an earlier incarnation or kubelet has left, by pod.
///
/// # Errors
/// [`VolumeError`] when the machine's mounts or the pods' directories cannot be read.
pub async fn reconstruct(backends: Backends) -> Result<BTreeMap<PodUid, Found>, VolumeError> {
    let pods = backends.pod_dirs.layout().pods();
    let mounts = backends.mounts.list_below(&pods).await.map_err(|error| failed("")(&error))?;
    let mut found = volumes_of(&pods, &mounts);
    let volumes = backends.pod_dirs.other_volumes(None, &[]).await.map_err(|error| failed("")(&error))?;
    let layout = backends.pod_dirs.layout();
    for OtherVolume { pod, plugin, name, is_block, .. } in volumes {
        let Some(uid) = pod else { continue };
        // Block devices are links, and mounted elsewhere.
        let path = if is_block {
            layout.pod_device(&uid, &plugin, &name)
        } else if kinds::of_plugin(&plugin).is_some_and(VolumeKind::may_lack_mounts) {
            layout.pod_volume(&uid, &plugin, &name)
        } else {
            continue;
        };
        let Ok(path) = path else { continue };
        found.entry(PodUid::new(&uid)).or_default().add(name, plugin, &path);
    }
    Ok(found)
}

fn volumes_of(pods: &Path, mounts: &[MountPoint]) -> BTreeMap<PodUid, Found> {
    let mut found: BTreeMap<PodUid, Found> = BTreeMap::new();
    for mount in mounts {
        let uid = mount.path.strip_prefix(pods).ok().and_then(|below| below.iter().next());
        let Some(uid) = uid.and_then(|uid| uid.to_str()) else { continue };
        let _named = blame::name(&PodUid::new(uid));
        let pod_dir = pods.join(uid);
        let Some((plugin, name)) = plan::volume_at(&pod_dir, &mount.path) else { continue };
        // A mount within a volume comes after the volume's own mount, which counts.
        found.entry(PodUid::new(uid)).or_default().add(name, plugin, &mount.path);
    }
    found
}

/// The UIDs of all pods that have a directory.
///
/// # Errors
/// [`VolumeError`] when the directories cannot be listed.
pub async fn pods_on_disk(backends: &Backends) -> Result<BTreeSet<PodUid>, VolumeError> {
    let uids = backends.pod_dirs.list_pod_uids().await.map_err(|error| failed("")(&error))?;
    Ok(uids.iter().map(|uid| PodUid::new(uid)).collect())
}

/// All mounts of the machine.
///
/// # Errors
/// [`VolumeError`] when the mounts cannot be read.
pub async fn all_mounts(backends: &Backends) -> Result<Vec<MountPoint>, VolumeError> {
    backends.mounts.list_below(Path::new("/")).await.map_err(|error| failed("")(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_tells_whose_volume_it_is() {
        let mount = |path: &str| MountPoint {
            fs_options: Vec::new(),
            path: path.into(),
            root: "/".into(),
            fs_type: "tmpfs".to_owned(),
            source: "tmpfs".to_owned(),
            options: Vec::new(),
            device: (0, 1),
        };
        let mounts = [
            mount("/r/pods"),
            mount("/r/pods/u/volumes/kubernetes.io~empty-dir/a"),
            mount("/r/pods/u/volumes/kubernetes.io~empty-dir/a/within"),
            mount("/r/pods/u/volumes/kubernetes.io~csi/pv/mount"),
            mount("/r/pods/u/volume-subpaths/a/c/0"),
            mount("/other"),
        ];
        let found = volumes_of(Path::new("/r/pods"), &mounts);
        let path = "/r/pods/u/volumes/kubernetes.io~empty-dir/a".to_owned();
        let csi = "/r/pods/u/volumes/kubernetes.io~csi/pv/mount".to_owned();
        let expected = Found {
            host_paths: BTreeMap::from([("a".to_owned(), path), ("pv".to_owned(), csi)]),
            plugins: vec!["kubernetes.io/empty-dir".to_owned(), "kubernetes.io/csi".to_owned()],
        };
        assert_eq!(found, BTreeMap::from([(PodUid::new("u"), expected)]));
    }
}
