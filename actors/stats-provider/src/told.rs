//! PURE: what the runtime tells: writable layers, its file systems, and CPU and memory of containers without a cgroup here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bridge_cri::wire::{ContainerStats, FilesystemUsage, ImageFsInfoResponse, UInt64Value};
use jiff::Timestamp;

/// A part of a file system, as the runtime tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) at: Timestamp,
    pub(crate) mount_point: Option<PathBuf>,
    pub(crate) used_bytes: Option<u64>,
    pub(crate) inodes_used: Option<u64>,
}

/// What the runtime tells of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerTold {
    pub(crate) layer: Option<Layer>,
    /// When it was read, and what was.
    pub(crate) cpu: Option<(Timestamp, CpuTold)>,
    /// When it was read, and what was.
    pub(crate) memory: Option<(Timestamp, MemoryTold)>,
    /// When it was read, and what was.
    pub(crate) swap: Option<(Timestamp, SwapTold)>,
}

/// A container's CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTold {
    /// Nanoseconds so far.
    pub(crate) total_ns: Option<u64>,
    /// Billionths of cores in use.
    pub(crate) nano_cores: Option<u64>,
}

/// Bytes of a container's swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwapTold {
    pub(crate) available: Option<u64>,
    pub(crate) usage: Option<u64>,
}

/// Bytes of a container's memory, and its page faults so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryTold {
    pub(crate) available: Option<u64>,
    pub(crate) page_faults: Option<u64>,
    pub(crate) major_page_faults: Option<u64>,
    pub(crate) working_set: Option<u64>,
    pub(crate) usage: Option<u64>,
    pub(crate) rss: Option<u64>,
}

/// What the runtime tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeTold {
    /// By the container's ID.
    pub(crate) containers: BTreeMap<String, ContainerTold>,
    pub(crate) images: Option<Layer>,
    pub(crate) layers: Option<Layer>,
}

impl RuntimeTold {
    /// The mount points of all file systems that it names.
    pub(crate) fn mount_points(&self) -> Vec<PathBuf> {
        let of_containers = self.containers.values().filter_map(|one| one.layer.as_ref());
        let all = of_containers.chain(&self.images).chain(&self.layers);
        let mut all: Vec<PathBuf> = all.filter_map(|layer| layer.mount_point.clone()).collect();
        all.sort();
        all.dedup();
        all
    }
}

fn time(nanosecond: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanosecond)).unwrap_or_default()
}

fn value(wrapped: Option<&UInt64Value>) -> Option<u64> {
    wrapped.map(|wrapped| wrapped.value)
}

fn layer(told: &FilesystemUsage) -> Layer {
    let mount_point = told.fs_id.as_ref().map(|id| PathBuf::from(&id.mountpoint));
    Layer {
        at: time(told.timestamp),
        mount_point: mount_point.filter(|path| path.is_absolute()),
        used_bytes: value(told.used_bytes.as_ref()),
        inodes_used: value(told.inodes_used.as_ref()),
    }
}

/// The runtime's answers in types of our own.
pub(crate) fn told(containers: &[ContainerStats], file_systems: Option<&ImageFsInfoResponse>) -> RuntimeTold {
    let one = |stats: &ContainerStats| {
        let id = stats.attributes.as_ref()?.id.clone();
        let cpu = stats.cpu.as_ref().map(|cpu| {
            let told = CpuTold {
                total_ns: value(cpu.usage_core_nano_seconds.as_ref()),
                nano_cores: value(cpu.usage_nano_cores.as_ref()),
            };
            (time(cpu.timestamp), told)
        });
        let swap = stats.swap.as_ref().map(|swap| {
            let told = SwapTold {
                available: value(swap.swap_available_bytes.as_ref()),
                usage: value(swap.swap_usage_bytes.as_ref()),
            };
            (time(swap.timestamp), told)
        });
        let memory = stats.memory.as_ref().map(|memory| {
            let told = MemoryTold {
                available: value(memory.available_bytes.as_ref()),
                page_faults: value(memory.page_faults.as_ref()),
                major_page_faults: value(memory.major_page_faults.as_ref()),
                working_set: value(memory.working_set_bytes.as_ref()),
                usage: value(memory.usage_bytes.as_ref()),
                rss: value(memory.rss_bytes.as_ref()),
            };
            (time(memory.timestamp), told)
        });
        let told = ContainerTold { layer: stats.writable_layer.as_ref().map(layer), cpu, memory, swap };
        Some((id, told))
    };
    let first = |of: fn(&ImageFsInfoResponse) -> &Vec<FilesystemUsage>| {
        file_systems.and_then(|told| of(told).first()).map(layer)
    };
    RuntimeTold {
        containers: containers.iter().filter_map(one).collect(),
        images: first(|told| &told.image_filesystems),
        layers: first(|told| &told.container_filesystems),
    }
}
