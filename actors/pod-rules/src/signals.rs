//! Names of eviction signals that several crates use, as the configuration spells them (row 19.1).

/// Available memory.
pub const MEMORY_AVAILABLE: &str = "memory.available";
/// Available space on the file system of the kubelet's directory.
pub const NODE_FS_AVAILABLE: &str = "nodefs.available";
/// Free inodes of the file system of the kubelet's directory.
pub const NODE_FS_INODES_FREE: &str = "nodefs.inodesFree";
/// Available space on the file system of images.
pub const IMAGE_FS_AVAILABLE: &str = "imagefs.available";
/// Free inodes of the file system of images.
pub const IMAGE_FS_INODES_FREE: &str = "imagefs.inodesFree";
