//! What the node has left of what it can run out of, and what its pods use of it. Read only when asked for.

mod du;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod files;
mod system;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeStats;
pub use system::{Places, SystemStats};

use crate::cgroups::QosClass;
use bridge_io::NotRun;

/// How much there is of something, and how much of it is left. `available` may be negative: of processes there may be
/// more than the limit says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Left.
    pub available: i64,
    /// In all.
    pub capacity: u64,
}

impl Room {
    /// So much of it is used.
    pub fn used(capacity: u64, used: u64) -> Self {
        Self { available: i64::try_from(capacity.saturating_sub(used)).unwrap_or(i64::MAX), capacity }
    }
}

/// What a file system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystemRoom {
    /// The number of its device: two paths with the same are on one file system.
    pub device: u64,
    /// Bytes; available are those that anybody may use.
    pub bytes: Room,
    /// Inodes; none on a file system that makes them as it needs them.
    pub inodes: Option<Room>,
}

/// What the node has. What cannot be told is absent, and named among the problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Bytes of memory: all, less the working set of everything.
    pub memory: Option<Room>,
    /// Bytes of memory that all pods together may have, less their working set; absent while they are not bounded.
    pub pods_memory: Option<Room>,
    /// The file system of the kubelet's directory.
    pub node_fs: Option<FileSystemRoom>,
    /// That of images.
    pub image_fs: Option<FileSystemRoom>,
    /// That of containers' writable layers.
    pub container_fs: Option<FileSystemRoom>,
    /// Processes and threads.
    pub pids: Option<Room>,
    /// What could not be read, for people.
    pub problems: Vec<String>,
}

/// Where the runtime says that its file systems are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimePlaces {
    /// Images.
    pub images: Option<PathBuf>,
    /// Containers' writable layers.
    pub containers: Option<PathBuf>,
}

/// Where the parts of a pod are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlaces {
    /// Its UID.
    pub uid: String,
    /// Its class, in whose cgroup its own is.
    pub qos: QosClass,
    /// Directories of logs by container; only the files in them count.
    pub logs: BTreeMap<String, PathBuf>,
    /// Directories of volumes on the node's own disk, by volume.
    pub volumes: BTreeMap<String, PathBuf>,
}

/// What of pods is to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Memory.
    pub memory: bool,
    /// Logs and volumes.
    pub disk: bool,
}

/// What lies in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files and directories, each once whatever its names.
    pub inodes: u64,
}

/// What a pod uses. What was not wanted, or cannot be told, is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// Bytes: the working set of its cgroup.
    pub memory_bytes: Option<u64>,
    /// Logs by container.
    pub logs: BTreeMap<String, DiskUsage>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Not all of its disk could be looked at: there may be more.
    pub cut: bool,
}

/// What a pod has on the node's own disk. What is not there is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisk {
    /// Logs by container.
    pub logs: BTreeMap<String, DiskUsage>,
    /// Volumes by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Not all could be looked at in time: there may be more.
    pub cut: bool,
}

/// A node that can be measured.
pub trait NodeStats: Send + Sync + std::fmt::Debug {
    /// What the node has now.
    fn node(&self, runtime: RuntimePlaces) -> BoxFuture<'static, Result<NodeUsage, NotRun>>;

    /// What each of these pods uses, by UID; a pod of which there is nothing here is absent. Disks are walked for a
    /// bounded time, in which each pod has a share of its own: see [`PodUsage::cut`].
    fn pods(
        &self,
        pods: Vec<PodPlaces>,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<BTreeMap<String, PodUsage>, NotRun>>;

    /// What one pod has on disk, found in so much time, whatever cgroups there are. It is counted beside everything else,
    /// on a thread of low priority: whoever asks asks for some few at a time.
    fn disk(&self, pod: PodPlaces, time_max: Duration) -> BoxFuture<'static, Result<PodDisk, NotRun>>;
}
