//! Names of eviction signals, as the configuration spells them (row 19.1), as far as more than eviction goes by them.

/// Memory that is free.
pub const MEMORY_AVAILABLE: &str = "memory.available";
/// Space on the file system of the kubelet's directory.
pub const NODE_FS_AVAILABLE: &str = "nodefs.available";
/// Inodes of the file system of the kubelet's directory.
pub const NODE_FS_INODES_FREE: &str = "nodefs.inodesFree";
/// Space on the file system of images.
pub const IMAGE_FS_AVAILABLE: &str = "imagefs.available";
/// Inodes of the file system of images.
pub const IMAGE_FS_INODES_FREE: &str = "imagefs.inodesFree";
