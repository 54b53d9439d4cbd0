//! The resources that the node has left, and the pods' usage of them, which EvictionManager asks for, and ImageManager for the
//! disk of images; and in [`usage`] what node, pods and containers use, which StatsProvider asks for. Nothing is read while
//! none of them asks.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod files;
mod system;
#[cfg(test)]
mod tests;
pub mod usage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::future::BoxFuture;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeStats;
pub use system::{Places, SystemStats};

use crate::cgroups::QosClass;
pub use crate::du::DiskUsage;
use bridge_io::NotRun;

/// The capacity of a resource and what is left of it. `available` may be negative: there may be more processes than the
/// limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// The amount that is left.
    pub available: i64,
    /// The whole amount.
    pub capacity: u64,
}

impl Room {
    /// The room of a resource of which `used` is in use.
    pub fn used(capacity: u64, used: u64) -> Self {
        Self { available: i64::try_from(capacity.saturating_sub(used)).unwrap_or(i64::MAX), capacity }
    }
}

/// The room of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystemRoom {
    /// The device number: two paths with the same number are on one file system.
    pub device: u64,
    /// Bytes; available to users without privileges.
    pub bytes: Room,
    /// Inodes; `None` on a file system that makes them as needed.
    pub inodes: Option<Room>,
}

/// The node's resources. A figure that cannot be read is `None`, and named among the problems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Bytes of memory; available is the total less the working set of all processes.
    pub memory: Option<Room>,
    /// Bytes of memory that all pods together may use; available is the limit less their working set. `None` while they
    /// have no limit.
    pub pods_memory: Option<Room>,
    /// The file system of the kubelet's directory.
    pub node_fs: Option<FileSystemRoom>,
    /// The file system of images.
    pub image_fs: Option<FileSystemRoom>,
    /// The file system of containers' writable layers.
    pub container_fs: Option<FileSystemRoom>,
    /// Processes and threads.
    pub pids: Option<Room>,
    /// The figures that could not be read, for people.
    pub problems: Vec<String>,
}

/// Where the runtime keeps its files, as the runtime states it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimePlaces {
    /// The directory of images.
    pub images: Option<PathBuf>,
    /// The directory of containers' writable layers.
    pub containers: Option<PathBuf>,
}

/// The places of a pod's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlaces {
    /// The pod's UID.
    pub uid: String,
    /// Its namespace, whose pods share places with those of others.
    pub namespace: String,
    /// The pod's class, below whose cgroup the pod's cgroup is.
    pub qos: QosClass,
    /// Directories of logs by container; only files directly in them count.
    pub logs: BTreeMap<String, PathBuf>,
    /// Directories of volumes on the node's own disk, by volume.
    pub volumes: BTreeMap<String, PathBuf>,
}

/// Which figures of pods are to be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Memory.
    pub memory: bool,
    /// Disk usage of logs, volumes, the hosts file and termination messages.
    pub disk: bool,
}

/// A pod's usage. A figure that was not wanted or cannot be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// The working set of the pod's cgroup, bytes.
    pub memory_bytes: Option<u64>,
    /// Usage of logs by container.
    pub logs: BTreeMap<String, DiskUsage>,
    /// Usage of volumes by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Usage of its hosts file and of termination messages.
    pub own: DiskUsage,
    /// The pod's files could not all be counted: there may be more.
    pub cut: bool,
}

/// A pod's usage of the node's own disk. Missing directories are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDisk {
    /// Usage of logs by container.
    pub logs: BTreeMap<String, DiskUsage>,
    /// Usage of volumes by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// Usage of its hosts file and of termination messages.
    pub own: DiskUsage,
    /// The files could not all be counted in time: there may be more.
    pub cut: bool,
}

/// Measures a node.
pub trait NodeStats: Send + Sync + std::fmt::Debug {
    /// The node's resources now.
    fn node(&self, runtime: RuntimePlaces) -> BoxFuture<'static, Result<NodeUsage, NotRun>>;

    /// The usage of each of these pods, by UID; a pod without cgroup and files here is absent. Disks are walked for a
    /// bounded time, of which each pod has a share: see [`PodUsage::cut`].
    fn pods(
        &self,
        pods: Vec<PodPlaces>,
        wanted: Wanted,
    ) -> BoxFuture<'static, Result<BTreeMap<String, PodUsage>, NotRun>>;

    /// One pod's disk usage, counted for at most `time_max`, whether or not it has a cgroup. This runs beside other
    /// measurements on a thread of low priority, so the caller should ask for only a few pods at a time. The pods of one namespace
    /// have at most half of the places.
    fn disk(&self, pod: PodPlaces, time_max: Duration) -> BoxFuture<'static, Result<PodDisk, NotRun>>;
}
