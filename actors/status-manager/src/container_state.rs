//! PURE: the states of a container in the API's form, and the reasons that only StatusManager gives.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
};
pub(crate) use pod_rules::restart::RESTARTING_ALL;

/// The reason of a container that has ended unseen by the runtime and StatusManager.
pub(crate) const STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// The exit code that goes with [`STATUS_UNKNOWN`]: that of a killed process.
pub(crate) const STATUS_UNKNOWN_EXIT: i32 = 137;

/// The terminated state of a container that StatusManager concludes to have ended.
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

/// The statuses by the names of their containers, the first of each name: a pod may have thousands.
pub(crate) fn by_name<'a>(
    statuses: impl IntoIterator<Item = &'a ContainerStatus, IntoIter: DoubleEndedIterator>,
) -> BTreeMap<&'a str, &'a ContainerStatus> {
    statuses.into_iter().rev().map(|status| (&*status.name, status)).collect()
}

/// The running state, if the container is in it.
pub(crate) fn running(status: &ContainerStatus) -> Option<&ContainerStateRunning> {
    status.state.as_ref()?.running.as_ref()
}

/// The terminated state, if the container is in it.
pub(crate) fn terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

/// The waiting state, if the container is in it.
pub(crate) fn waiting(status: &ContainerStatus) -> Option<&ContainerStateWaiting> {
    status.state.as_ref()?.waiting.as_ref()
}

/// The end of the instance before the current one.
pub(crate) fn last_terminated(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    status.last_state.as_ref()?.terminated.as_ref()
}
