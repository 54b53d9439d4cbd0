//! The effects of a taint.

/// New pods are not scheduled to the node.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// New pods are scheduled to the node only if they find no room elsewhere.
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
/// Running pods end, too. It is the one effect that the kubelet checks at admission.
pub const NO_EXECUTE: &str = "NoExecute";

/// The three effects.
pub const EFFECTS: [&str; 3] = [NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE];
