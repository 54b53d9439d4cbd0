//! PURE: which instance of a container has the log that was asked for, by the pod's status (row 21.6).

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use pod_rules::reasons::{ERR_IMAGE_PULL, IMAGE_PULL_BACK_OFF};

/// Names of the containers of a spec, and whether each has a terminal.
fn terminals(pod: &Pod) -> impl Iterator<Item = (&str, bool)> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let plain = plain.map(|one| (one.name.as_str(), one.tty == Some(true)));
        plain.chain(ephemeral.map(|one| (one.name.as_str(), one.tty == Some(true))))
    })
}

/// Whether the pod's spec has such a container.
pub fn has_container(pod: &Pod, name: &str) -> bool {
    terminals(pod).any(|(one, _)| one == name)
}

/// Whether the container of this name began with a terminal.
pub fn has_terminal(pod: &Pod, name: &str) -> bool {
    terminals(pod).any(|(one, tty)| one == name && tty)
}

fn status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|one| one.name == name)
}

fn ended(state: Option<&ContainerState>) -> Option<&str> {
    let id = state?.terminated.as_ref()?.container_id.as_deref();
    Some(id.unwrap_or_default())
}

/// The ID, as the status shows it (`containerd://…`), of the instance whose log it is.
///
/// # Errors
/// The answer's text, if there is no such instance.
pub fn instance(
    pod: &str,
    pod_status: &PodStatus,
    container: &str,
    previous: bool,
) -> Result<String, String> {
    let named = format!("container {container:?} in pod {pod:?}");
    let Some(status) = status(pod_status, container) else {
        return Err(format!("{named} is not available"));
    };
    let nowhere = ContainerState::default();
    let now = status.state.as_ref().unwrap_or(&nowhere);
    let last = ended(status.last_state.as_ref());
    let known = |id: Option<&str>| id.filter(|id| !id.is_empty()).map(str::to_owned);
    if previous {
        return known(last).ok_or_else(|| format!("previous terminated {named} not found"));
    }
    if now.running.is_some() {
        return Ok(status.container_id.clone().unwrap_or_default());
    }
    if let Some(id) = ended(Some(now)) {
        return known(Some(id)).or_else(|| known(last)).ok_or_else(|| format!("{named} is terminated"));
    }
    if last.is_some() {
        return known(last).ok_or_else(|| format!("{named} is terminated"));
    }
    let why = match now.waiting.as_ref().map(|waiting| waiting.reason.as_deref().unwrap_or_default()) {
        Some(ERR_IMAGE_PULL) => ": image can't be pulled".to_owned(),
        Some(IMAGE_PULL_BACK_OFF) => ": trying and failing to pull image".to_owned(),
        Some(reason) => format!(": {reason}"),
        None => " - no logs yet".to_owned(),
    };
    Err(format!("{named} is waiting to start{why}"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    };

    use super::*;

    fn running() -> ContainerState {
        ContainerState { running: Some(ContainerStateRunning::default()), ..ContainerState::default() }
    }

    fn terminated(id: &str) -> ContainerState {
        let terminated = ContainerStateTerminated {
            container_id: Some(id.to_owned()),
            ..ContainerStateTerminated::default()
        };
        ContainerState { terminated: Some(terminated), ..ContainerState::default() }
    }

    fn waiting(reason: &str) -> ContainerState {
        let waiting =
            ContainerStateWaiting { reason: Some(reason.to_owned()), ..ContainerStateWaiting::default() };
        ContainerState { waiting: Some(waiting), ..ContainerState::default() }
    }

    fn asked(now: ContainerState, last: Option<ContainerState>, previous: bool) -> Result<String, String> {
        let status = ContainerStatus {
            name: "x".into(),
            container_id: Some("c://now".into()),
            state: Some(now),
            last_state: last,
            ..ContainerStatus::default()
        };
        let status = PodStatus { container_statuses: Some(vec![status]), ..PodStatus::default() };
        instance("y", &status, "x", previous)
    }

    #[test]
    fn running_comes_before_terminated_and_that_before_the_last() {
        let last = || Some(terminated("c://last"));
        assert_eq!(asked(running(), last(), false).unwrap(), "c://now");
        assert_eq!(asked(running(), last(), true).unwrap(), "c://last");
        assert_eq!(asked(terminated("c://end"), last(), false).unwrap(), "c://end");
        assert_eq!(asked(terminated(""), last(), false).unwrap(), "c://last");
        assert_eq!(asked(waiting("CrashLoopBackOff"), last(), false).unwrap(), "c://last");
    }

    #[test]
    fn what_is_missing_is_said_in_upstreams_words() {
        let named = "container \"x\" in pod \"y\"";
        let table = [
            (asked(running(), None, true), format!("previous terminated {named} not found")),
            (asked(terminated(""), None, false), format!("{named} is terminated")),
            (
                asked(waiting("ErrImagePull"), None, false),
                format!("{named} is waiting to start: image can't be pulled"),
            ),
            (
                asked(waiting("ImagePullBackOff"), None, false),
                format!("{named} is waiting to start: trying and failing to pull image"),
            ),
            (
                asked(waiting("ContainerCreating"), None, false),
                format!("{named} is waiting to start: ContainerCreating"),
            ),
            (
                asked(ContainerState::default(), None, false),
                format!("{named} is waiting to start - no logs yet"),
            ),
            (instance("y", &PodStatus::default(), "x", false), format!("{named} is not available")),
        ];
        for (got, text) in table {
            assert_eq!(got.unwrap_err(), text);
        }
    }
}
