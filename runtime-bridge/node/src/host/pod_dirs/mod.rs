//! The directories of the kubelet and of its pods (row 23.13), their logs (row 5.16) and the legacy links to these (row
//! 5.23).

mod disk;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod layout;
mod others;
mod termination;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

pub use disk::DiskPodDirs;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakePodDirs;
pub use layout::{Layout, SUBPATHS};

use super::RemoveTreeError;
use bridge_io::NotRun;

/// Why a directory could not be made, listed or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PodDirsError {
    /// A configured directory is not absolute and in canonical form.
    #[error("{field} {path:?} is not an absolute path in canonical form")]
    NotCanonical {
        /// The configuration's field.
        field: &'static str,
        /// Its value.
        path: PathBuf,
    },
    /// A name from outside is empty, `.` or `..`, longer than 255 bytes, or has a slash or NUL.
    #[error("{field} {value:?} cannot be the name of a file")]
    BadName {
        /// The kind of name.
        field: &'static str,
        /// The name.
        value: String,
    },
    /// A directory tree was not removed, most often because a mount is left in it.
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
    /// A file of a volume cannot be read safely.
    #[error("{0}")]
    VolumeFile(String),
    /// A file is not below the pods' directory, or is not regular.
    #[error("{path} is not a pod's own file", path = path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// A pod's log directory that was found on disk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodLogDir {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID.
    pub uid: String,
    /// The directory.
    pub path: PathBuf,
}

/// A volume that an earlier kubelet set up with a plugin that this kubelet does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherVolume {
    /// The UID of its pod; `None` for a volume that is staged on the node for all pods.
    pub pod: Option<String>,
    /// The plugin, such as `kubernetes.io/csi`.
    pub plugin: String,
    /// The name of its directory: the volume's, or that of its PersistentVolume.
    pub name: String,
    /// Whether containers have it as a block device.
    pub is_block: bool,
    /// How the Node reports it in use.
    pub reported: Reported,
}

/// How a Node reports a volume in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// Under this name.
    As(String),
    /// Never: such volumes are not attached to nodes.
    Never,
    /// Under a name that cannot be derived from the files on disk.
    Unknown,
}

/// The node's own hosts file.
const NODE_HOSTS: &str = "/etc/hosts";

type Done<T> = BoxFuture<'static, Result<T, PodDirsError>>;

/// Where the directories of pods lie, and what pods have written there; for Pleg and EvictionManager, and as a part of
/// [`PodDirs`]. It changes none:
///
/// ```compile_fail,E0599
/// # fn sample(dirs: &dyn bridge_node::host::PodDirReads) {
/// let _ = dirs.remove_pod_dir("uid");
/// # }
/// ```
pub trait PodDirReads: Send + Sync + std::fmt::Debug {
    /// Where everything lies.
    fn layout(&self) -> &Layout;

    /// The last `bytes_max` bytes of a pod's own file or log; none if there is no such file. Only regular files below
    /// the pods' directory and that of their logs are read. Of the places for that the pods of one `namespace` have at most half.
    fn read_tail(&self, namespace: &str, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>>;
}

/// The directories of the kubelet and of its pods.
///
/// Every operation belongs to the actor that asked until it begins, and once begun runs to its end even when its future is
/// dropped; those of one pod come one after another, whichever actor asks ([`Lane`](super::Lane)). All are idempotent. What exists keeps its mode.
pub trait PodDirs: PodDirReads {
    /// The same directories for another subsystem: its calls have places of their own, so that hung ones of one subsystem
    /// stop no other, and still wait for those of the same pod.
    fn for_owner(&self, owner: &'static str) -> Arc<dyn PodDirs>;

    /// The same directories for work of one namespace's pods: it has at most half of the places, so that files that do not
    /// answer hold up no other namespace's. Work of one pod still comes one after another.
    fn for_namespace(&self, namespace: &str) -> Arc<dyn PodDirs>;

    /// Makes the root, its data directories and those of the logs. Returns warnings about failures that the kubelet can
    /// live with (mounts made by containers are visible to others only while the root is a shared mount).
    fn ensure_data_dirs(&self) -> Done<Vec<String>>;

    /// Makes the pod's directory with `volumes`, `plugins` and `containers` in it, mode 0750; returns its path.
    fn ensure_pod_dirs(&self, uid: &str) -> Done<PathBuf>;

    /// Makes the container's directory below the pod's, mode 0750; returns its path.
    fn ensure_container_dir(&self, uid: &str, container: &str) -> Done<PathBuf>;

    /// Makes the file for a container's termination message, `<suffix>` in the container's directory, mode 0666, since
    /// the container may run as any user; returns its path. Of the files of earlier instances the newest few stay.
    fn create_termination_log(&self, uid: &str, container: &str, suffix: &str) -> Done<PathBuf>;

    /// Makes the container's log directory below the pod's, both mode 0755. Gives the pod's one, which is what CRI
    /// is told.
    fn ensure_log_dirs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<PathBuf>;

    /// Writes the pod's `etc-hosts`, mode 0644, in place, since containers have the file mounted; returns its path.
    fn write_etc_hosts(&self, uid: &str, content: &[u8]) -> Done<PathBuf>;

    /// The node's own `/etc/hosts`, of which pods on the node's network get a copy.
    fn read_node_hosts(&self) -> Done<Vec<u8>>;

    /// The content of a regular file within a volume of a pod; `None` if it does not exist. Links that the pod may have
    /// made cannot lead out of the volume. A file of more than `bytes_max` bytes is an error.
    fn read_volume_file(&self, volume: &Path, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>>;

    /// The UIDs of all pods with a directory, sorted.
    fn list_pod_uids(&self) -> Done<Vec<String>>;

    /// The volumes of plugins other than `own` in the pod's directory, mounted or not; without a UID, those of all pods
    /// and the volumes that CSI has staged on the node. Changes nothing.
    fn other_volumes(&self, uid: Option<&str>, own: &'static [&'static str]) -> Done<Vec<OtherVolume>>;

    /// All log directories of pods, sorted. Directories with other names are left out.
    fn list_pod_log_dirs(&self) -> Done<Vec<PodLogDir>>;

    /// Removes the pod's directory and everything in it, never following a symbolic link and never across a mount: with
    /// a mount inside nothing is removed and the error names the mount. Succeeds when there is no directory. Volumes
    /// must be torn down before; the files that they leave are removed.
    fn remove_pod_dir(&self, uid: &str) -> Done<()>;

    /// Removes, with the same care, everything in the pod's directory except `containers`: an ended pod stays listed,
    /// and its containers' termination messages are there.
    fn empty_pod_dir(&self, uid: &str) -> Done<()>;

    /// Removes a pod's log directory with the same care.
    fn remove_pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> Done<()>;

    /// The restart count of the next container when the runtime has forgotten the last one: one more than the highest
    /// `<n>` of the log files `<n>.log` and their rotated `<n>.log.*`; 0 without any.
    fn restart_count_from_logs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<u32>;

    /// Removes the logs of one instance of a container, `<n>.log` and the rotated `<n>.log.*`; succeeds when there are
    /// none.
    fn remove_container_logs(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        container: &str,
        restart_count: u32,
    ) -> Done<()>;

    /// Points the legacy link of a container at its log. Returns `false`, without making a link, when the log does not
    /// exist.
    fn create_legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
        log: &Path,
    ) -> Done<bool>;

    /// Removes the legacy link of a container; succeeds when there is none.
    fn remove_legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
    ) -> Done<()>;

    /// Removes the legacy links to missing logs and returns their number. Links of containers in `running` are kept,
    /// since their log may just be rotated.
    fn prune_legacy_links(&self, running: BTreeSet<String>) -> Done<usize>;
}
