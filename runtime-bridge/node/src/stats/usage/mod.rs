//! What node, pods and containers use: cgroups of either version, interfaces, processes and file systems, read in one pass
//! when StatsProvider asks.
//!
//! The crate `cgroups-rs` is left out here: of version 1 it reads ten files for two figures and panics when one of them has
//! another form than it expects, of version 2 it keeps CPU time as text, and it knows no pressure.

mod disks;
#[cfg(any(test, feature = "fake"))]
mod fake;
pub(super) mod group;
pub mod parse;
mod processes;
mod system;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures::future::BoxFuture;
use jiff::Timestamp;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeUsage;
pub use system::SystemUsage;

use super::{DiskUsage, Room};
use bridge_io::NotRun;

/// How long tasks have waited for a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Stalled,
    /// All tasks waited.
    pub full: Stalled,
}

/// A line of a file of pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stalled {
    /// Microseconds so far.
    pub total_us: u64,
    /// Percent of the last 10 seconds.
    pub avg10: f64,
    /// Percent of the last 60 seconds.
    pub avg60: f64,
    /// Percent of the last 300 seconds.
    pub avg300: f64,
}

/// The CPU time of a cgroup, and its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// Nanoseconds so far.
    pub total_ns: u64,
    /// Nanoseconds in user mode.
    pub user_ns: Option<u64>,
    /// Nanoseconds in the kernel.
    pub system_ns: Option<u64>,
    /// What became of the quota's periods.
    pub throttling: Throttling,
    /// The share in the form of version 1.
    pub shares: Option<u64>,
    /// The length of a period, microseconds.
    pub period_us: Option<u64>,
    /// CPU time per period, microseconds; `None` without a bound.
    pub quota_us: Option<u64>,
    /// Waiting for CPU.
    pub pressure: Option<Pressure>,
}

/// What became of the periods of a CPU quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods so far.
    pub periods: u64,
    /// Periods in which the quota ran out.
    pub throttled_periods: u64,
    /// Nanoseconds that tasks waited for the next period.
    pub throttled_ns: u64,
    /// Periods with a burst.
    pub burst_periods: u64,
    /// Nanoseconds beyond the quota.
    pub burst_ns: u64,
}

/// The memory of a cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryUse {
    /// All memory in use.
    pub usage: u64,
    /// Memory that cannot simply be dropped.
    pub working_set: u64,
    /// The limit; `None` without a bound.
    pub limit: Option<u64>,
    /// Memory that is kept back for the cgroup.
    pub reservation: Option<u64>,
    /// Anonymous memory.
    pub rss: u64,
    /// Memory of files.
    pub cache: u64,
    /// Memory of files that are mapped.
    pub mapped_file: u64,
    /// Memory of files in recent use.
    pub active_file: u64,
    /// Memory of files that can simply be dropped.
    pub inactive_file: u64,
    /// Page faults so far.
    pub page_faults: u64,
    /// Page faults so far that waited for a disk.
    pub major_page_faults: u64,
    /// The most memory in use so far.
    pub max_usage: Option<u64>,
    /// How often the limit was hit.
    pub failures: Option<u64>,
    /// Memory of the kernel.
    pub kernel: Option<u64>,
    /// Swap in use; `None` where swap is not accounted for.
    pub swap: Option<u64>,
    /// The limit of swap, with version 1 that of memory and swap; `None` without a bound, or where it is not accounted for.
    pub swap_limit: Option<u64>,
    /// Processes that were killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Waiting for memory.
    pub pressure: Option<Pressure>,
}

/// What a cgroup has read from and written to a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    /// The device's numbers.
    pub device: (u32, u32),
    /// Bytes by operation (`Read`, `Write`, …).
    pub bytes: BTreeMap<String, u64>,
    /// Operations by kind.
    pub operations: BTreeMap<String, u64>,
}

/// The processes of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessUse {
    /// Processes in the cgroup itself.
    pub count: u64,
    /// Tasks in the cgroup and below it.
    pub threads: Option<u64>,
    /// The most tasks; `None` without a bound.
    pub threads_max: Option<u64>,
    /// Open files of the processes; `None` where they were not counted.
    pub files: Option<u64>,
    /// Those of them that are sockets.
    pub sockets: Option<u64>,
    /// The most files that the first process may open; `None` without a bound.
    pub files_max: Option<u64>,
}

/// What a cgroup uses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupUse {
    /// The cgroup's path below its hierarchies; `/` for the root.
    pub name: String,
    /// When it was read.
    pub at: Timestamp,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// CPU.
    pub cpu: Option<CpuUse>,
    /// Memory.
    pub memory: Option<MemoryUse>,
    /// Devices.
    pub io: Vec<DeviceIo>,
    /// Waiting for input and output.
    pub io_pressure: Option<Pressure>,
    /// Processes.
    pub processes: Option<ProcessUse>,
}

/// The counters of a network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What it has received.
    pub received: Traffic,
    /// What it has sent.
    pub sent: Traffic,
}

/// The traffic of an interface in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
    /// Errors.
    pub errors: u64,
    /// Packets that were dropped.
    pub dropped: u64,
}

/// The size of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The device, such as `/dev/vda1`; its numbers where it has no name.
    pub source: String,
    /// All bytes.
    pub capacity: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are free to users without privileges.
    pub available: u64,
    /// All inodes; `None` on a file system that makes them as needed.
    pub inodes: Option<u64>,
    /// Inodes that are free.
    pub inodes_free: Option<u64>,
    /// What its block device has done; `None` where it is on none.
    pub disk: Option<DiskCounts>,
}

/// What a block device has done so far, for all that use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads.
    pub reads: u64,
    /// Reads that were merged with others.
    pub reads_merged: u64,
    /// Sectors read, of 512 bytes.
    pub sectors_read: u64,
    /// Milliseconds that reads took.
    pub read_ms: u64,
    /// Writes.
    pub writes: u64,
    /// Writes that were merged with others.
    pub writes_merged: u64,
    /// Sectors written, of 512 bytes.
    pub sectors_written: u64,
    /// Milliseconds that writes took.
    pub write_ms: u64,
    /// Reads and writes under way now.
    pub under_way: u64,
    /// Milliseconds in which the device was busy.
    pub busy_ms: u64,
    /// The same, once for each read and write that was under way.
    pub weighted_ms: u64,
}

/// The parts of a pass that cost more than CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Parts {
    /// Interfaces and numbers of processes.
    pub processes: bool,
    /// Logs and file systems.
    pub storage: bool,
    /// Devices, bounds, tasks, open files and the cgroups of classes of pods.
    pub details: bool,
}

/// A pod that is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPod {
    /// The runtime's ID of its sandbox.
    pub sandbox: Option<String>,
    /// The runtime's IDs of its running containers.
    pub containers: Vec<String>,
    /// The directories of its containers' logs, by the container's name.
    pub logs: BTreeMap<String, PathBuf>,
}

/// What is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Which parts.
    pub parts: Parts,
    /// Pods, by UID.
    pub pods: BTreeMap<String, WantedPod>,
    /// Cgroups of the system, each with a name for it; `None` stands for that of this process.
    pub systems: BTreeMap<String, Option<String>>,
    /// Paths on file systems.
    pub spaces: Vec<PathBuf>,
}

/// What was read of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodReading {
    /// Its own cgroup.
    pub group: Option<GroupUse>,
    /// The cgroup of its sandbox's process.
    pub sandbox: Option<GroupUse>,
    /// The cgroups of its containers, by the runtime's ID.
    pub containers: BTreeMap<String, GroupUse>,
    /// The interfaces of its network namespace, and when they were read.
    pub network: Option<(Timestamp, Vec<Interface>)>,
    /// Its logs, by container.
    pub logs: BTreeMap<String, DiskUsage>,
    /// Its hosts file and its containers' termination messages.
    pub own: DiskUsage,
    /// Whether there are too many files to count, so that `logs` and `own` are empty.
    pub logs_cut: bool,
}

/// The machine's CPUs as they are built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// Logical CPUs.
    pub logical: u64,
    /// Cores.
    pub cores: u64,
    /// Sockets.
    pub sockets: u64,
}

/// What was read. Figures that cannot be read are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// When the pass began.
    pub at: Timestamp,
    /// All processes.
    pub root: GroupUse,
    /// The cgroup of all pods, and with details those of their classes.
    pub pod_groups: Vec<GroupUse>,
    /// The cgroups of the system, by the names that were given.
    pub systems: BTreeMap<String, GroupUse>,
    /// Pods, by UID.
    pub pods: BTreeMap<String, PodReading>,
    /// The node's interfaces.
    pub network: Option<Vec<Interface>>,
    /// When the machine was started.
    pub booted: Option<Timestamp>,
    /// Bytes of the machine's memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of the machine's swap.
    pub swap_bytes: Option<u64>,
    /// The machine's CPUs.
    pub processors: Option<Processors>,
    /// Processes and threads.
    pub tasks: Option<Room>,
    /// The file system of the kubelet's directory.
    pub node_space: Option<Space>,
    /// All file systems that were looked at, by path: the kubelet's and those that were wished.
    pub spaces: BTreeMap<PathBuf, Space>,
    /// Names of devices, by their numbers: `8:0`.
    pub devices: BTreeMap<String, String>,
}

/// Reads what node and pods use.
pub trait UsageReads: Send + Sync + std::fmt::Debug {
    /// Reads everything that is wished in one pass; nothing is remembered.
    fn read(&self, wish: Wish) -> BoxFuture<'static, Result<Reading, NotRun>>;
}
