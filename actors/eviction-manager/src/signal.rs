//! PURE: the signals of the node, and their resources and conditions (row 19.1).

use pod_rules::signals;

/// A figure of the node by which pods are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Free bytes of memory.
    MemoryAvailable,
    /// Free bytes of the memory that all pods together may use.
    AllocatableMemoryAvailable,
    /// Free bytes on the kubelet's file system.
    NodeFsAvailable,
    /// Free inodes on the kubelet's file system.
    NodeFsInodesFree,
    /// Free bytes on the images' file system.
    ImageFsAvailable,
    /// Free inodes on the images' file system.
    ImageFsInodesFree,
    /// Free bytes on the file system of containers' writable layers.
    ContainerFsAvailable,
    /// Free inodes on the file system of containers' writable layers.
    ContainerFsInodesFree,
    /// Free process IDs.
    PidAvailable,
}

/// The resources that run out, in the words of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

/// The conditions of the Node for signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Memory,
    Disk,
    Pid,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// The signal as the configuration spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryAvailable => signals::MEMORY_AVAILABLE,
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => signals::NODE_FS_AVAILABLE,
            Self::NodeFsInodesFree => signals::NODE_FS_INODES_FREE,
            Self::ImageFsAvailable => signals::IMAGE_FS_AVAILABLE,
            Self::ImageFsInodesFree => signals::IMAGE_FS_INODES_FREE,
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.as_str() == name)
    }

    pub(crate) fn resource(self) -> Resource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => Resource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                Resource::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                Resource::Inodes
            }
            Self::PidAvailable => Resource::Pids,
        }
    }

    pub(crate) fn condition(self) -> Condition {
        match self.resource() {
            Resource::Memory => Condition::Memory,
            Resource::EphemeralStorage | Resource::Inodes => Condition::Disk,
            Resource::Pids => Condition::Pid,
        }
    }
}

impl Resource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}
