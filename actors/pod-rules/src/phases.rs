//! `status.phase` of pods (row 8.1).

use k8s_openapi::api::core::v1::{Pod, PodStatus};

/// Not every container has been started.
pub const PENDING: &str = "Pending";
/// All have been started, and at least one runs or will be started again.
pub const RUNNING: &str = "Running";
/// All have ended well, for good.
pub const SUCCEEDED: &str = "Succeeded";
/// All have ended, at least one badly, or the node ended the pod.
pub const FAILED: &str = "Failed";

/// Whether a pod never leaves this phase.
pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, SUCCEEDED | FAILED)
}

/// Whether the status says that its pod has come to its end.
pub fn has_ended(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

/// Whether a pod has come to its end, as its source says.
pub fn pod_has_ended(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(has_ended)
}
