//! One view of the three kinds of containers in a pod's spec, and their restart rules.

use k8s_openapi::api::core::v1::{ContainerRestartRule, PodSpec, ResourceRequirements, VolumeMount};

/// The action that restarts all containers of a pod.
const RESTART_ALL: &str = "RestartAllContainers";

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Runs to completion before the next.
    Init,
    /// An init container that stays (restartPolicy Always, row 5.13).
    Sidecar,
    /// One of `spec.containers`.
    Regular,
    /// One of `spec.ephemeralContainers`.
    Ephemeral,
}

/// A container of the spec, of whatever kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerSpec<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) image: &'a str,
    pub(crate) restart_policy: Option<&'a str>,
    pub(crate) rules: &'a [ContainerRestartRule],
    pub(crate) has_readiness_probe: bool,
    pub(crate) has_startup_probe: bool,
    pub(crate) volume_mounts: &'a [VolumeMount],
    pub(crate) resources: Option<&'a ResourceRequirements>,
}

macro_rules! view {
    ($container:expr, $kind:expr) => {
        ContainerSpec {
            name: &$container.name,
            kind: $kind,
            image: $container.image.as_deref().unwrap_or_default(),
            restart_policy: $container.restart_policy.as_deref(),
            rules: $container.restart_policy_rules.as_deref().unwrap_or_default(),
            has_readiness_probe: $container.readiness_probe.is_some(),
            has_startup_probe: $container.startup_probe.is_some(),
            volume_mounts: $container.volume_mounts.as_deref().unwrap_or_default(),
            resources: $container.resources.as_ref(),
        }
    };
}

/// `spec.initContainers`, sidecars among them, in order.
pub(crate) fn init(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.init_containers.iter().flatten().map(|c| {
        let sidecar = c.restart_policy.as_deref() == Some("Always");
        view!(c, if sidecar { Kind::Sidecar } else { Kind::Init })
    })
}

/// `spec.containers`.
pub(crate) fn regular(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.containers.iter().map(|c| view!(c, Kind::Regular))
}

/// `spec.ephemeralContainers`.
pub(crate) fn ephemeral(spec: &PodSpec) -> impl Iterator<Item = ContainerSpec<'_>> {
    spec.ephemeral_containers.iter().flatten().map(|c| view!(c, Kind::Ephemeral))
}

impl ContainerSpec<'_> {
    /// Whether it is started again after this exit: its own rules first, then its own policy, then the pod's.
    pub(crate) fn should_restart(&self, pod_policy: Option<&str>, exit_code: i32) -> bool {
        if let Some(own) = self.restart_policy {
            let matching = self.rules.iter().find(|rule| matches(rule, exit_code));
            if matching.is_some_and(|rule| matches!(&*rule.action, "Restart" | RESTART_ALL)) {
                return true;
            }
            if let Some(answer) = by_policy(own, exit_code) {
                return answer;
            }
        }
        by_policy(pod_policy.unwrap_or("Always"), exit_code).unwrap_or(true)
    }
}

/// Whether this exit restarts all containers of the pod.
pub(crate) fn restarts_all(container: &ContainerSpec<'_>, exit_code: i32) -> bool {
    let matching = container.rules.iter().find(|rule| matches(rule, exit_code));
    matching.is_some_and(|rule| rule.action == RESTART_ALL)
}

/// Whether any exit could.
pub(crate) fn could_restart_all(spec: &PodSpec) -> bool {
    init(spec).chain(regular(spec)).any(|c| c.rules.iter().any(|rule| rule.action == RESTART_ALL))
}

fn matches(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(on) = &rule.exit_codes else { return false };
    let listed = on.values.iter().flatten().any(|code| *code == exit_code);
    match &*on.operator {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

fn by_policy(policy: &str, exit_code: i32) -> Option<bool> {
    match policy {
        "Always" => Some(true),
        "OnFailure" => Some(exit_code != 0),
        "Never" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ContainerRestartRuleOnExitCodes};

    use super::*;

    fn pod(own: Option<&str>, rules: Vec<ContainerRestartRule>) -> PodSpec {
        let container = Container {
            name: "a".into(),
            restart_policy: own.map(Into::into),
            restart_policy_rules: Some(rules),
            ..Container::default()
        };
        PodSpec { containers: vec![container], ..PodSpec::default() }
    }

    fn rule(operator: &str, values: &[i32]) -> ContainerRestartRule {
        ContainerRestartRule {
            action: "Restart".into(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.into(),
                values: Some(values.to_vec()),
            }),
        }
    }

    #[test]
    fn the_pods_policy_decides_without_an_own_one() {
        let spec = pod(None, vec![rule("In", &[1])]);
        let container = regular(&spec).next().unwrap();
        assert!(container.should_restart(Some("Always"), 0));
        assert!(!container.should_restart(Some("OnFailure"), 0));
        assert!(container.should_restart(Some("OnFailure"), 2));
        assert!(!container.should_restart(Some("Never"), 1), "rules need a policy of the container");
        assert!(container.should_restart(None, 0));
    }

    #[test]
    fn the_containers_own_rules_go_before_its_policy() {
        let spec = pod(Some("Never"), vec![rule("In", &[42]), rule("NotIn", &[0, 1])]);
        let container = regular(&spec).next().unwrap();
        assert!(container.should_restart(Some("Always"), 42));
        assert!(container.should_restart(Some("Always"), 7));
        assert!(!container.should_restart(Some("Always"), 1));
    }
}
