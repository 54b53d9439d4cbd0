//! PURE: what is measured, and what follows from too little of it (row 19.1).

use pod_rules::signals;

/// What is measured of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// Bytes of memory.
    MemoryAvailable,
    /// Bytes of the memory that all pods together may have.
    AllocatableMemoryAvailable,
    /// Bytes on the kubelet's file system.
    NodeFsAvailable,
    /// Inodes there.
    NodeFsInodesFree,
    /// Bytes on the images' file system.
    ImageFsAvailable,
    /// Inodes there.
    ImageFsInodesFree,
    /// Bytes on the file system of containers' writable layers.
    ContainerFsAvailable,
    /// Inodes there.
    ContainerFsInodesFree,
    /// Processes and threads.
    PidAvailable,
}

/// What pods are ended for, in the words of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resource {
    Memory,
    EphemeralStorage,
    Inodes,
    Pids,
}

/// The node's conditions that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Condition {
    Memory,
    Disk,
    Pid,
}

impl Signal {
    /// All of them.
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

    /// As the configuration spells it.
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
