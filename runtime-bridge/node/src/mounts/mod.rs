//! The mounts of this machine, and the operations on directories and files that volumes need. VolumeManager uses them.

mod atomic;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod host_path;
mod measure;
pub(crate) mod mountinfo;
mod ownership;
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
pub use mountinfo::MountPoint;
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

/// What a volume that shares its file system with other files can hold and what it holds. Size and room are those of the file
/// system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeFigures {
    /// Bytes that are left to users without privileges.
    pub available_bytes: u64,
    /// Bytes of the file system.
    pub capacity_bytes: u64,
    /// Bytes of the volume's own files.
    pub used_bytes: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Inodes that are left.
    pub inodes_free: u64,
    /// Inodes of the volume's own files.
    pub inodes_used: u64,
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
    /// The files of a volume cannot be projected; the text is upstream's.
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
    /// The mounts at or below `path`, in the order in which they were made; unmount them in reverse.
    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>>;

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

    /// Unmounts everything at `target`, also several mounts on top of each other. Succeeds when there is no mount. A
    /// mount in use is an error; mounts are never detached lazily.
    fn unmount(&self, target: &Path) -> Done<()>;

    /// Makes the directory of an emptyDir: parents with mode 0750, the directory itself with exactly 0777, independent
    /// of the umask. An existing directory gets that mode and keeps its content.
    fn make_empty_dir(&self, path: &Path) -> Done<()>;

    /// Gives a volume's files to a group, with the owner's permissions; new files in its directories inherit the group.
    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()>;

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

    /// Checks that a hostPath volume's path is of its type, and makes a missing directory (mode 0755) or file (0644, in
    /// an existing directory) where the type demands it. Symbolic links are followed.
    fn check_host_path(&self, path: &Path, kind: HostPathType) -> Done<()>;

    /// Measures the volume at `path`, whose files are counted on a thread of low priority. Runs beside all other operations, and
    /// fails at once while an earlier look at the same path has not ended.
    fn measure(&self, path: &Path) -> Done<VolumeFigures>;
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
