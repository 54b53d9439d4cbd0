//! PURE: the states of a container as the API has them, and the words of those that StatusManager makes up.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};

/// The reason of a container whose end neither the runtime nor StatusManager has seen.
pub(crate) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// The exit code that goes with [`STATUS_UNKNOWN`]: as if killed.
pub(crate) const STATUS_UNKNOWN_EXIT: i32 = 137;
/// The waiting reason of a container that was taken away, and the reason of its end.
pub(crate) const RESTARTING_ALL: &str = "RestartingAllContainers";

/// The end of a container that StatusManager had to conclude.
pub(crate) fn lost(message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: STATUS_UNKNOWN_EXIT,
            reason: Some(STATUS_UNKNOWN.to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// The running state, if that is the state.
pub(crate) fn running(status: &ContainerStatus) -> Option<&ContainerStateRunning> {
    status.state.as_ref()?.running.as_ref()
}

/// The terminated state, if that is the state.
pub(crate) fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// The waiting state, if that is the state.
pub(crate) fn waiting(status: &ContainerStatus) -> Option<&ContainerStateWaiting> {
    status.state.as_ref()?.waiting.as_ref()
}

/// How the instance before ended.
pub(crate) fn last_terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.last_state.as_ref()?.terminated.as_ref()
}
