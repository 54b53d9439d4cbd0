//! Brings a disk of a network to a pod.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_csi::rules::access::se_linux_option;
use bridge_node::mounts::{HelperMount, MountPoint};

use super::disk::{self, Disk, Places, Way};
use super::note::{self, Note};
use super::{Ways, fc, iscsi, uses};
use crate::backends::Backends;
use crate::fs_group;
use crate::kinds::block;
use crate::kinds::{SetUp, Wanted, all_mounts, is_free_for};
use crate::steps::{self, SetUpError, Step};

/// How long the controller may take to attach a volume before its pod is told so; then the wait goes on after a back-off.
const ATTACHED_WITHIN: Duration = Duration::from_secs(120);
/// Why a disk is not given to a pod whose volume asks for it with other names.
const OTHER_NAMES: &str =
    "the disk is on this node for a volume with another interface, initiator or secret of CHAP";

/// A disk on its way to a pod.
struct Job<'a> {
    backends: &'a Backends,
    wanted: &'a Wanted<'a>,
    disk: Disk,
    places: Places,
    /// Where the pod has it.
    path: &'a Path,
    /// The pod's places of a block device.
    block: block::Places,
    /// The directory of the note that the pod's group has been given the volume.
    marker: PathBuf,
    group: Option<Step>,
}

/// Brings a disk to a pod, from wherever things are.
pub(super) async fn set_up(
    backends: &Backends,
    wanted: &Wanted<'_>,
    plugin: &'static str,
    path: &Path,
) -> Result<SetUp, SetUpError> {
    let disk = Disk::of(plugin, wanted.source, wanted.pod).map_err(SetUpError::Refused)?;
    let places = disk::places(wanted.node, plugin, &disk.dir).map_err(SetUpError::Refused)?;
    let (uid, name) = (wanted.uid.as_str(), wanted.source.spec_name());
    let block = block::Places::new(wanted.node, &places.maps, uid, plugin, name);
    let marker = wanted.node.layout.pod_plugin(uid, plugin, name);
    let group = fs_group::change(wanted.pod, path).filter(|_| !disk.read_only && !disk.is_block);
    let job = Job {
        backends,
        wanted,
        places,
        path,
        block: block.map_err(SetUpError::Refused)?,
        marker: marker.map_err(|error| SetUpError::Refused(error.to_string()))?,
        group,
        disk,
    };
    if job.is_shown().await? {
        // Nothing more is asked for: the Secret may be gone, and the target need not answer.
        backends.devices.join(&job.disk.device(), wanted.uid);
        return Ok(SetUp::Ready);
    }
    job.is_attached().await?;
    job.bring().await?;
    job.show().await?;
    Ok(SetUp::Ready)
}

/// PURE: the label that a file system was mounted with; `None` if with none.
fn label_of(mount: &MountPoint) -> Option<&str> {
    let mut options = mount.fs_options.iter().chain(&mount.options);
    options.find_map(|option| option.strip_prefix("context=")).map(|label| label.trim_matches('"'))
}

impl Job<'_> {
    /// Whether the pod has the volume, with its group.
    async fn is_shown(&self) -> Result<bool, SetUpError> {
        let mounts = &self.backends.mounts;
        if self.disk.is_block {
            return Ok(mounts.is_device_mapped(&self.block.map, &self.block.link).await?);
        }
        if !self.wanted.mounts.has(self.path) || self.group.is_none() {
            return Ok(self.wanted.mounts.has(self.path));
        }
        Ok(mounts.is_ready(self.path, &self.marker).await?)
    }

    /// Waits for the controller, as upstream: it does nothing to such a disk, and does not have two nodes have it at once.
    async fn is_attached(&self) -> Result<(), SetUpError> {
        let Self { backends, wanted, disk, .. } = self;
        if !wanted.node.in_cluster {
            return Ok(());
        }
        backends.attachments.want(wanted.uid, &disk.reported);
        let attached = backends.attachments.attached(wanted.uid, &disk.reported, ATTACHED_WITHIN).await;
        attached.map_err(|why| SetUpError::NotAttached(why.to_owned()))
    }

    /// Brings the disk to the node, in the disk's turn, and mounts it there or shows it to the pod. The pod uses it from then on.
    async fn bring(&self) -> Result<(), SetUpError> {
        let Self { backends, wanted, disk, places, .. } = self;
        let turn = backends.devices.turn(&disk.device()).await;
        is_free_for(backends, wanted, &disk.device())?;
        let mounts = all_mounts(backends).await?;
        let mounted = mounts.iter().rfind(|mount| mount.path == places.mount);
        let is_mapped = mounts.iter().any(|mount| mount.path.starts_with(&places.maps));
        let noted = note::read(backends, places).await?;
        let noted = self.of_same_names(noted, mounted.is_some() || is_mapped).await?;
        if let Some(mounted) = mounted {
            self.is_alike(mounted)?;
        }
        turn.joined_by(wanted.uid);
        if mounted.is_some() && !disk.is_block {
            return Ok(());
        }
        // First, so that the next kubelet finds what is begun.
        let dir = if disk.is_block { &places.maps } else { &places.mount };
        backends.mounts.make_mount_point(dir).await?;
        let ways = match &disk.way {
            Way::Iscsi(target) => {
                let note = noted.unwrap_or_else(|| Note::of(disk));
                let ways = iscsi::attach(backends, disk, target, places, note).await?;
                note::write_for_go(backends, disk, target, places, wanted.source.spec_name()).await?;
                ways
            }
            Way::Fc(ids) => fc::attach(backends, ids, places, noted, Note::of(disk)).await?,
        };
        self.is_idle(&ways).await?;
        let device = Path::new("/dev").join(&ways.top);
        if disk.is_block {
            return block::map(backends, wanted, &device, &self.block).await;
        }
        let mut options = disk.options.clone();
        if disk.read_only {
            options.insert("ro".to_owned());
        }
        let label = wanted.label.map(se_linux_option);
        let options = options.into_iter().chain(label).collect();
        let source = device.to_string_lossy().into_owned();
        let mount = HelperMount { fs_type: disk.fs_type.clone(), source, options };
        let mounted = backends.mounts.format_and_mount(&places.mount, mount).await;
        mounted.map_err(|error| SetUpError::Device(error.to_string()))
    }

    /// What is noted of the disk, if it was noted with the volume's names. A note with others counts for as long as something is
    /// there by them: a volume that no target lets in keeps the disk from none.
    async fn of_same_names(&self, noted: Option<Note>, is_used: bool) -> Result<Option<Note>, SetUpError> {
        let access = &self.disk.access;
        let Some(note) = noted else {
            // Of a disk that a Go kubelet has brought the names are not known.
            return if is_used && !access.is_empty() { Err(other_names()) } else { Ok(None) };
        };
        if note.access == *access && note.is_of(&self.disk) {
            return Ok(Some(note));
        }
        if is_used || iscsi::has_session(self.backends, &note).await? {
            return Err(other_names());
        }
        Ok(None)
    }

    /// Whether the file system that is mounted can be the pod's.
    fn is_alike(&self, mounted: &MountPoint) -> Result<(), SetUpError> {
        if self.disk.is_block {
            let why = format!("it is mounted at {}", mounted.path.display());
            return Err(in_use(&self.disk.dir, &why));
        }
        if self.backends.selinux.is_none() || label_of(mounted) == self.wanted.label {
            return Ok(());
        }
        Err(SetUpError::Waits(format!(
            "waiting for unmount of volume {:?}, because it is already mounted to a different pod with a different SELinux label",
            self.disk.reported
        )))
    }

    /// Whether nothing else uses the disk, by this way or by another: the node's own disks are no volumes.
    async fn is_idle(&self, ways: &Ways) -> Result<(), SetUpError> {
        let Self { backends, places, disk, .. } = self;
        let failed = |error: bridge_node::host::DisksError| SetUpError::Device(error.to_string());
        let seen = backends.network_disks.look().await.map_err(failed)?;
        let mounts = all_mounts(backends).await?;
        let names = uses::with_maps(&seen, &ways.names);
        let is_own = |mount: &MountPoint| disk.is_block && mount.path.starts_with(&places.maps);
        let why = uses::in_use(&seen, &mounts, &names, &is_own);
        let why = why.or_else(|| uses::in_use_elsewhere(&seen, &mounts, &names));
        if let Some(why) = why {
            return Err(in_use(&ways.top, &why));
        }
        if mounts.iter().any(is_own) || backends.network_disks.is_free(&ways.top).await.map_err(failed)? {
            return Ok(());
        }
        Err(in_use(&ways.top, "the kernel says that it is busy"))
    }

    /// Shows the file system to the pod, and gives it to the pod's group.
    async fn show(&self) -> Result<(), SetUpError> {
        if self.disk.is_block {
            return Ok(());
        }
        let mounts = self.backends.mounts.as_ref();
        mounts.make_mount_point(self.path).await?;
        steps::run(mounts, &self.bind()).await?;
        if let Some(step) = &self.group {
            steps::run(mounts, step).await?;
            mounts.set_ready(&self.marker).await?;
        }
        Ok(())
    }

    /// The step that shows the directory to the pod. Only the program `mount` knows all options.
    fn bind(&self) -> Step {
        let Disk { read_only, options, .. } = &self.disk;
        let (source, path) = (self.places.mount.clone(), self.path.to_path_buf());
        if options.is_empty() {
            return Step::BindDirectory { source, path, read_only: *read_only };
        }
        let mut options = options.clone();
        options.insert("bind".to_owned());
        if *read_only {
            options.insert("ro".to_owned());
        }
        let source = source.to_string_lossy().into_owned();
        let mount = HelperMount { fs_type: String::new(), source, options: options.into_iter().collect() };
        Step::MountByHelper { path, mount }
    }
}

fn other_names() -> SetUpError {
    SetUpError::Attach(OTHER_NAMES.to_owned())
}

fn in_use(disk: &str, why: &str) -> SetUpError {
    SetUpError::Device(format!("disk {disk} is in use on this node: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::mount_point;

    #[test]
    fn the_label_of_a_mount_is_read_with_the_commas_in_it() {
        let with = |option: &str| MountPoint {
            fs_options: vec!["rw".to_owned(), option.to_owned()],
            ..mount_point("/x", "ext4")
        };
        assert_eq!(label_of(&with("seclabel")), None);
        let label = "system_u:object_r:container_file_t:s0:c1,c2";
        assert_eq!(label_of(&with(&se_linux_option(label))), Some(label));
        assert_eq!(label_of(&with("context=u:r:t:s0")), Some("u:r:t:s0"));
    }
}
