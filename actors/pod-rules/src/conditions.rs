//! Condition types of pods and of the Node, and the status of a condition.

/// Condition type of pods and of the Node.
pub const READY: &str = "Ready";
/// Condition type of the Node: it runs out of memory.
pub const MEMORY_PRESSURE: &str = "MemoryPressure";
/// Condition type of the Node: it runs out of disk space or inodes.
pub const DISK_PRESSURE: &str = "DiskPressure";
/// Condition type of the Node: it runs out of process IDs.
pub const PID_PRESSURE: &str = "PIDPressure";

/// A condition's status, as the API spells it.
pub const fn status(holds: bool) -> &'static str {
    if holds { "True" } else { "False" }
}
