//! The effects that a taint can have.

/// New pods stay away.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// New pods stay away if they find room elsewhere.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Pods that run end, too: the one effect that the kubelet heeds at admission.
pub const NO_EXECUTE: &str = "NoExecute";

/// All of them.
pub const EFFECTS: [&str; 3] = [NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE];
