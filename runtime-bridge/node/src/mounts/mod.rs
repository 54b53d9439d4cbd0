//! Mounts of this machine, and the directories and files that volumes of type emptyDir and hostPath need.

mod atomic;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod host_path;
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

/// What a tmpfs is mounted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TmpfsOptions {
    /// Most bytes it holds, `None` for the kernel's default of half the memory. The kernel rounds up to pages.
    pub size_bytes: Option<u64>,
    /// Mode of its root directory, for instance `0o777`.
    pub mode: u32,
}

/// When a volume's files are given to its pod's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupChange {
    /// Every time.
    Always,
    /// Only when the volume's root is not the group's.
    OnRootMismatch,
}

/// Whom a volume is given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeGroup {
    /// `spec.securityContext.fsGroup`.
    pub gid: u32,
    /// The group may only read.
    pub read_only: bool,
    /// `spec.securityContext.fsGroupChangePolicy`.
    pub change: GroupChange,
}

/// The files that a volume shows, all at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// By their path within the volume.
    pub files: BTreeMap<String, ProjectedFile>,
    /// `spec.securityContext.fsGroup`, which may then read them.
    pub group: Option<u32>,
    /// Directories within the volume that other volumes are mounted at.
    pub nested: Vec<PathBuf>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectedFile {
    /// What is in it.
    pub content: SecretContent,
    /// Its permission bits.
    pub mode: u32,
    /// Whose it is, if not root's.
    pub owner: Option<u32>,
}

/// Why a mount or a volume's directory could not be made, looked at or taken down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    /// The path is not absolute, or has `.` or `..` in it.
    #[error("{path}: {reason}", path = path.display())]
    InvalidPath {
        /// The path as given.
        path: PathBuf,
        /// The rule it breaks.
        reason: &'static str,
    },
    /// Something else is mounted where a mount should be made.
    #[error("cannot mount at {target}: {by} is mounted there", target = target.display())]
    AlreadyMounted {
        /// The mount point.
        target: PathBuf,
        /// Type and source of what is there.
        by: String,
    },
    /// A hostPath volume is not of the type it says; the text is the one Kubernetes' users know.
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
    /// What a volume should show cannot be; the text is the one Kubernetes' users know.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// A tree was not removed.
    #[error(transparent)]
    RemoveTree(#[from] RemoveTreeError),
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

type Done<T> = BoxFuture<'static, Result<T, MountError>>;

/// Mounts and the primitives of emptyDir and hostPath.
///
/// Every operation belongs to whoever asked until it begins, and once begun runs to its end even when its future is
/// dropped; those on one path come one after another, so that the volume of a pod has one owner over all incarnations of
/// VolumeManager. All are
/// idempotent. Paths are absolute, without `.` and `..`.
pub trait Mounts: Send + Sync + std::fmt::Debug {
    /// The mounts at or below `path`, in the order in which they were made: to unmount all, go backwards.
    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>>;

    /// Whether something is mounted exactly at `path`. A path that does not exist is no mount point.
    fn is_mount_point(&self, path: &Path) -> Done<bool>;

    /// Whether what is kept in a tmpfs may be swapped out.
    fn swap(&self) -> Done<SwapFacts>;

    /// Mounts a tmpfs at the directory `target`, one that is never swapped out where the kernel can. Done as well when a tmpfs is mounted there already, whatever its
    /// size.
    fn mount_tmpfs(&self, target: &Path, options: TmpfsOptions) -> Done<()>;

    /// Mounts huge pages of this size at the directory `target`. Done as well when huge pages are mounted there
    /// already: a volume's do not change their size.
    fn mount_huge_pages(&self, target: &Path, page_bytes: u64) -> Done<()>;

    /// Makes `source` visible at `target`, which exists and is of the same kind (directory or not). Done as well
    /// when the same file or directory is mounted there already; `read_only` is then made true where it is asked.
    fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Done<()>;

    /// Takes down whatever is mounted at `target`, also several mounts on top of each other. Done as well when
    /// nothing is. A mount in use is an error; it is never detached lazily.
    fn unmount(&self, target: &Path) -> Done<()>;

    /// Makes the directory of an emptyDir: the ones above it with mode 0750, itself with exactly 0777 whatever the
    /// umask. An existing one gets that mode and keeps its content.
    fn make_empty_dir(&self, path: &Path) -> Done<()>;

    /// Gives a volume's files to a group: it may do what their owner may, and directories hand it on.
    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()>;

    /// Whether the volume at `path` has been set up completely before: `marker` holds a file `ready`, and `path` is a
    /// directory. Upstream's mark, so that either kubelet knows the other's volumes.
    fn is_ready(&self, path: &Path, marker: &Path) -> Done<bool>;

    /// Makes that mark; missing directories get mode 0750.
    fn set_ready(&self, marker: &Path) -> Done<()>;

    /// Makes the volume at the directory `path` show these files and no others, for whoever reads all at once: each
    /// file is a link through `..data`, which is renamed. Whether anything was written: nothing is while the content
    /// is the same.
    fn project(&self, path: &Path, projection: Arc<Projection>) -> Done<bool>;

    /// Whether files have been projected there before.
    fn is_projected(&self, path: &Path) -> Done<bool>;

    /// Makes what is missing of the directory `sub_path` within a volume, each new one with the mode of the volume's
    /// root. What exists stays as it is. Never leaves the volume, whatever containers do to it meanwhile.
    fn make_subpath(&self, volume: &Path, sub_path: &Path) -> Done<()>;

    /// Makes `sub_path` of a volume, a directory or a file, visible at `target`, whose directories are made. Done as
    /// well when the same is mounted there already; anything else is unmounted first. Never shows anything outside
    /// the volume, whatever containers do to it meanwhile.
    fn bind_subpath(&self, volume: &Path, sub_path: &Path, target: &Path) -> Done<()>;

    /// Removes `path` and everything below it, never following a symbolic link and never across a mount: with one
    /// at or below `path` nothing is removed and the error names it. Done as well when there is nothing.
    fn remove_tree(&self, path: &Path) -> Done<()>;

    /// Checks that a hostPath volume's path is of its type, and makes a missing directory (mode 0755) or file
    /// (0644, in a directory that exists) where the type says so. Symbolic links are followed.
    fn check_host_path(&self, path: &Path, kind: HostPathType) -> Done<()>;
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
