//! Types and states of conditions.

/// Of pods and of the Node.
pub const READY: &str = "Ready";
/// Of the Node: it runs out of memory.
pub const MEMORY_PRESSURE: &str = "MemoryPressure";
/// Of the Node: it runs out of disk space or inodes.
pub const DISK_PRESSURE: &str = "DiskPressure";
/// Of the Node: it runs out of process IDs.
pub const PID_PRESSURE: &str = "PIDPressure";

/// A condition's status, as the API spells it.
pub const fn status(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}
