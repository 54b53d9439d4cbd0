//! The mounts of this machine, and the operations on directories and files that volumes need. VolumeManager uses them.

mod atomic;
mod devices;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(any(test, feature = "fake"))]
mod fake_devices;
mod format;
mod grow;
mod helper;
mod host_path;
mod measure;
pub(crate) mod mountinfo;
mod notes;
mod ownership;
pub(crate) mod program;
mod subpath;
mod swap;
mod sys;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::host::{RemoveTreeError, SecretContent};
use bridge_io::NotRun;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeMounts;
#[cfg(any(test, feature = "fake"))]
pub(crate) use fake::fake_remove_tree;
pub use host_path::{FileKind, HostPathType};
pub use mountinfo::{MountPoint, parse as mount_points};
pub(crate) use subpath::read_within;
pub use swap::SwapFacts;
pub use sys::SystemMounts;

/// The options of a tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// The most bytes that it holds; `None` for the kernel's default of half the memory. The kernel rounds up to pages.
    pub size_bytes: Option<u64>,
    /// The mode of its root directory, for instance `0o777`.
    pub mode: u32,
}

/// When the ownership of a volume's files is changed to its pod's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// Whenever the volume is set up.
    Always,
    /// Only when the volume's root does not belong to the group.
    OnRootMismatch,
}

/// The group that a volume's files are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeGroup {
    /// The group's ID: `spec.securityContext.fsGroup`.
    pub gid: u32,
    /// Whether the group may only read.
    pub read_only: bool,
    /// `spec.securityContext.fsGroupChangePolicy`.
    pub change: GroupChange,
}

/// How far a change of ownership is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupProgress {
    /// The files and directories that were looked at.
    pub files: u64,
    /// How long it has taken so far.
    pub since: std::time::Duration,
}

/// The files of a volume, which all change at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// The files by their path within the volume.
    pub files: BTreeMap<String, ProjectedFile>,
    /// The group that may read the files: `spec.securityContext.fsGroup`.
    pub group: Option<u32>,
    /// Directories within the volume at which other volumes are mounted.
    pub nested: Vec<PathBuf>,
}

/// One projected file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectedFile {
    /// The file's content.
    pub content: SecretContent,
    /// The file's permission bits.
    pub mode: u32,
    /// The user ID of the owner; `None` is root.
    pub owner: Option<u32>,
}

/// A mount that the program `mount` makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperMount {
    /// The type of the file system, such as `nfs`; empty for a bind mount.
    pub fs_type: String,
    /// What is mounted: a share such as `server:/path`, or a directory.
    pub source: String,
    /// The options.
    pub options: Vec<String>,
}

/// How a volume is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// The file system that is mounted there is the volume.
    FileSystem,
    /// The volume is a directory of a file system that has other files, too: its own are counted.
    Tree,
}

/// What a volume can hold and what it holds. Size and room are those of its file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeFigures {
    /// Bytes that are left to users without privileges.
    pub available_bytes: u64,
    /// Bytes of the file system.
    pub capacity_bytes: u64,
    /// Bytes in use: of the volume's own files, where they are counted.
    pub used_bytes: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Inodes that are left.
    pub inodes_free: u64,
    /// Inodes in use, of the same files as `used_bytes`.
    pub inodes_used: u64,
}

/// Why a mount or a volume's directory could not be made, read or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The path is not absolute, or contains `.` or `..`.
    #[error("{path}: {reason}", path = path.display())]
    InvalidPath {
        /// The path as given.
        path: PathBuf,
        /// The rule that the path breaks.
        reason: &'static str,
    },
    /// Another file system is mounted at the mount point.
    #[error("cannot mount at {target}: {by} is mounted there", target = target.display())]
    AlreadyMounted {
        /// The mount point.
        target: PathBuf,
        /// Type and source of the present mount.
        by: String,
    },
    /// A hostPath volume is not of the type that it states; the text is upstream's.
    #[error("hostPath type check failed: {path} is not a {expected}", path = path.display())]
    HostPathType {
        /// The path on the host.
        path: PathBuf,
        /// `directory`, `file`, `socket file`, `character device` or `block device`.
        expected: &'static str,
    },
    /// A hostPath volume names a type that does not exist.
    #[error("{0} is an invalid volume type")]
    InvalidHostPathType(String),
    /// The files of a volume cannot be projected, or a program cannot mount it; the text is upstream's.
    #[error("{reason}")]
    Refused {
        /// The reason.
        reason: String,
    },
    /// A directory tree was not removed.
    #[error(transparent)]
    RemoveTree(#[from] RemoveTreeError),
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

type Done<T> = BoxFuture<'static, Result<T, MountError>>;

/// Mounts and the primitives of emptyDir and hostPath.
///
/// An operation whose future is dropped before it begins has no effect; one that has begun runs to its end even when
/// its future is dropped. Operations on one path run one after another, so that a pod's volume has one user at a time
/// over all incarnations of VolumeManager. All are idempotent. Paths are absolute, without `.` and `..`.
pub trait Mounts: Send + Sync + std::fmt::Debug {
    /// The same mounts for work of the pods of one namespace: it has at most half of the places for work that may hang, so that
    /// its volumes that do not answer hold up no other namespace's. Operations on one path still run one after another.
    fn for_namespace(&self, namespace: &str) -> Arc<dyn Mounts>;

    /// The mounts at or below `path`, in the order in which they were made; unmount them in reverse.
    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>>;

    /// How many mounts there are on the node, of any maker.
    fn count(&self) -> Done<usize>;

    /// Whether exactly `path` is a mount point. A path that does not exist is no mount point.
    fn is_mount_point(&self, path: &Path) -> Done<bool>;

    /// Whether the content of a tmpfs may be swapped out.
    fn swap(&self) -> Done<SwapFacts>;

    /// Mounts a tmpfs at the directory `target`, with `noswap` where the kernel has it. Succeeds when a tmpfs of any
    /// size is already mounted there.
    fn mount_tmpfs(&self, target: &Path, options: TmpfsOptions) -> Done<()>;

    /// Mounts huge pages of this size at the directory `target`. Succeeds when huge pages are already mounted there,
    /// since a volume's page size does not change.
    fn mount_huge_pages(&self, target: &Path, page_bytes: u64) -> Done<()>;

    /// Makes `source` visible at `target`, which must exist and be of the same kind (directory or not). Succeeds when
    /// the same file or directory is already mounted there, which is then made read-only if `read_only` asks for it.
    fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Done<()>;

    /// Has the program `mount` make a mount at the directory `target`. Succeeds when such a file system is already mounted
    /// there. A program that takes long is killed, and keeps other operations on `target` waiting until it has died.
    fn mount_by_helper(&self, target: &Path, mount: HelperMount) -> Done<()>;

    /// Formats the disk `mount.source` if it is empty, looks through its file system if it is not, and mounts it at the
    /// directory `target`. Succeeds when the disk is already mounted there. Without a type it is `ext4`; with the option
    /// `ro` nothing is written.
    fn format_and_mount(&self, target: &Path, mount: HelperMount) -> Done<()>;

    /// Makes the file system of the disk `disk`, which is mounted at `target`, as large as the disk. One that is as large already
    /// stays as it is.
    fn grow_file_system(&self, target: &Path, disk: &Path) -> Done<()>;

    /// Unmounts everything at `target`, also several mounts on top of each other. Succeeds when there is no mount. A
    /// mount in use is an error; mounts are never detached lazily. A file system of a server that does not answer is
    /// unmounted by force after a minute.
    fn unmount(&self, target: &Path) -> Done<()>;

    /// Makes the directory of an emptyDir: parents with mode 0750, the directory itself with exactly 0777, independent
    /// of the umask. An existing directory gets that mode and keeps its content.
    fn make_empty_dir(&self, path: &Path) -> Done<()>;

    /// Makes the directory on which a volume is mounted, and missing ones above it, with mode 0750. An existing directory
    /// keeps its mode and content.
    fn make_mount_point(&self, path: &Path) -> Done<()>;

    /// Gives a volume's files to a group, with the owner's permissions; new files in its directories inherit the group.
    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()>;

    /// How far the [`set_group`](Self::set_group) is that is under way at `path`; `None` if there is none. Runs beside it.
    fn group_progress(&self, path: &Path) -> Done<Option<GroupProgress>>;

    /// The group that a file or directory belongs to.
    fn group_of(&self, path: &Path) -> Done<u32>;

    /// Whether the volume at `path` was completely set up before: the directory `marker` holds a file `ready`, and
    /// `path` is a directory. The mark is upstream's, so that each kubelet recognises the other's volumes.
    fn is_ready(&self, path: &Path, marker: &Path) -> Done<bool>;

    /// Makes the file that [`is_ready`](Self::is_ready) looks for; missing directories get mode 0750.
    fn set_ready(&self, marker: &Path) -> Done<()>;

    /// Makes the volume at the directory `path` hold exactly these files. They change for all readers at once: each
    /// file is a link through `..data`, which is replaced by a rename. Returns whether anything was written, which is
    /// not the case while the content is the same.
    fn project(&self, path: &Path, projection: Arc<Projection>) -> Done<bool>;

    /// Whether files have been projected at `path` before.
    fn is_projected(&self, path: &Path) -> Done<bool>;

    /// Makes the missing parts of the directory `sub_path` within a volume, each with the mode of the volume's root.
    /// Existing directories keep theirs. Never leaves the volume, whatever containers do in it meanwhile.
    fn make_subpath(&self, volume: &Path, sub_path: &Path) -> Done<()>;

    /// Makes `sub_path` of a volume, a directory or a file, visible at `target`, whose directories are made. Succeeds
    /// when the same file is already mounted there; another mount is removed first. Never shows a file outside the
    /// volume, whatever containers do in it meanwhile.
    fn bind_subpath(&self, volume: &Path, sub_path: &Path, target: &Path) -> Done<()>;

    /// Removes `path` and everything below it, never following a symbolic link and never across a mount: with a mount
    /// at or below `path` nothing is removed and the error names the mount. Succeeds when nothing is there.
    fn remove_tree(&self, path: &Path) -> Done<()>;

    /// The content of a small note about a volume, such as `vol_data.json`; `None` if there is none. A link or a note of more
    /// than 64 KiB is an error.
    fn read_note(&self, note: &Path) -> Done<Option<String>>;

    /// Writes a note about a volume, mode 0600, at once and as a whole; missing directories above get mode 0750.
    fn write_note(&self, note: &Path, text: &str) -> Done<()>;

    /// Removes the directory or file of a mount point, the note beside it and the directory of both, as far as they are there
    /// and empty. With a mount on it nothing is removed and the error names the mount.
    fn forget(&self, target: &Path, note: &Path) -> Done<()>;

    /// Makes a link to a block device, over an earlier one; missing directories above get mode 0750. What is no link stays.
    fn link_device(&self, device: &Path, link: &Path) -> Done<()>;

    /// Removes a link to a block device. Succeeds when nothing is there; what is no link stays.
    fn unlink_device(&self, link: &Path) -> Done<()>;

    /// Shows a block device to a pod: mounts it at the file `map`, has a loop device on that file keep it open, and makes
    /// `link` lead to it. Succeeds when that is so already.
    fn map_device(&self, device: &Path, map: &Path, link: &Path) -> Done<()>;

    /// Whether a block device is shown to a pod, with its mount, its loop device and its link.
    fn is_device_mapped(&self, map: &Path, link: &Path) -> Done<bool>;

    /// Undoes [`map_device`](Self::map_device), but for the link: releases the loop devices on exactly the file `map`, unmounts
    /// and removes it. Succeeds when nothing is there.
    fn unmap_device(&self, map: &Path) -> Done<()>;

    /// The size of a block device in bytes.
    fn device_bytes(&self, device: &Path) -> Done<u64>;

    /// Checks that a hostPath volume's path is of its type, and makes a missing directory (mode 0755) or file (0644, in
    /// an existing directory) where the type demands it. Symbolic links are followed.
    fn check_host_path(&self, path: &Path, kind: HostPathType) -> Done<()>;

    /// Measures the volume at `path`. Runs beside all other operations, and fails at once while an earlier look at the
    /// same path has not ended.
    fn measure(&self, path: &Path, how: Measure) -> Done<VolumeFigures>;
}

fn check_path(path: &Path) -> Result<(), MountError> {
    use std::path::Component;
    let invalid = |reason| Err(MountError::InvalidPath { path: path.to_path_buf(), reason });
    if !path.is_absolute() {
        return invalid("the path is not absolute");
    }
    if path.components().any(|part| matches!(part, Component::ParentDir)) {
        return invalid("the path has a \"..\"");
    }
    Ok(())
}
