//! `status.phase` of pods (row 8.1).

use k8s_openapi::api::core::v1::{Pod, PodStatus};

/// At least one container has not been started yet.
pub const PENDING: &str = "Pending";
/// All containers have been started, and at least one runs or will be started again.
pub const RUNNING: &str = "Running";
/// All containers have ended well, for good.
pub const SUCCEEDED: &str = "Succeeded";
/// All containers have ended, at least one badly, or the node has ended the pod.
pub const FAILED: &str = "Failed";

/// Whether the phase is one that a pod never leaves.
pub fn is_terminal(phase: &str) -> bool {
    matches!(phase, SUCCEEDED | FAILED)
}

/// Whether the phase in this status is terminal.
pub fn has_ended(status: &PodStatus) -> bool {
    status.phase.as_deref().is_some_and(is_terminal)
}

/// Whether the phase in the pod's status, as its source gives it, is terminal.
pub fn pod_has_ended(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(has_ended)
}
