//! When a container is started again: restart policies of pods and containers, and restart rules of
//! containers (rows 5.10, 5.11).

use k8s_openapi::api::core::v1::{ContainerRestartRule, PodSpec};
pub use pod_spec::resources::is_sidecar;

/// The action of a rule that restarts its own container.
pub const RESTART: &str = "Restart";
/// The action of a rule that restarts all containers of the pod.
pub const RESTART_ALL: &str = "RestartAllContainers";
/// The waiting reason of a container that was removed so that all containers of its pod restart, and the reason of its
/// end.
pub const RESTARTING_ALL: &str = "RestartingAllContainers";

/// `restartPolicy` of a pod or of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// The default.
    Always,
    /// Only after a non-zero exit code.
    OnFailure,
    /// Not after any exit.
    Never,
}

impl RestartPolicy {
    /// Every policy that there is, in alphabetical order of [`RestartPolicy::as_str`].
    pub const ALL: [Self; 3] = [Self::Always, Self::Never, Self::OnFailure];

    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::OnFailure => "OnFailure",
            Self::Never => "Never",
        }
    }

    /// Parses the API's spelling; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }

    /// The policy in a pod's spec. An absent or unknown one is Always, as upstream takes it.
    pub fn of(text: Option<&str>) -> Self {
        text.and_then(Self::parse).unwrap_or(Self::Always)
    }

    /// Whether an exit with this code is followed by a restart.
    pub fn restarts(self, exit_code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit_code != 0,
            Self::Never => false,
        }
    }
}

/// Whether an exit of a container is followed by a restart: the container's rules decide first, then its
/// `own` policy, then the pod's. Rules only count if the container has a policy of its own.
pub fn restarts_after(
    own: Option<&str>,
    rules: &[ContainerRestartRule],
    of_pod: RestartPolicy,
    exit_code: i32,
) -> bool {
    let Some(own) = own else { return of_pod.restarts(exit_code) };
    let matching = matching_rule(rules, exit_code);
    matching.is_some_and(|rule| matches!(rule.action.as_str(), RESTART | RESTART_ALL))
        || RestartPolicy::parse(own).unwrap_or(of_pod).restarts(exit_code)
}

/// Whether this exit of a container with these rules restarts all containers of its pod.
pub fn restarts_all(rules: &[ContainerRestartRule], exit_code: i32) -> bool {
    matching_rule(rules, exit_code).is_some_and(|rule| rule.action == RESTART_ALL)
}

/// Whether any exit of any container of a pod could restart all of them.
pub fn could_restart_all(spec: &PodSpec) -> bool {
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    containers.any(|container| {
        container.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL)
    })
}

/// The first rule that matches the exit code.
fn matching_rule(rules: &[ContainerRestartRule], exit_code: i32) -> Option<&ContainerRestartRule> {
    rules.iter().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.as_deref().unwrap_or_default().contains(&exit_code);
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;
    use RestartPolicy::{Always, Never, OnFailure};

    fn rule(action: &str, operator: &str, values: &[i32]) -> ContainerRestartRule {
        ContainerRestartRule {
            action: action.into(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.into(),
                values: Some(values.to_vec()),
            }),
        }
    }

    #[test]
    fn the_pods_policy_decides_without_an_own_one() {
        let rules = [rule(RESTART, "In", &[1])];
        let after = |pod, code| restarts_after(None, &rules, pod, code);
        assert!(after(Always, 0) && !after(OnFailure, 0) && after(OnFailure, 2));
        assert!(!after(Never, 1), "rules need a policy of the container");
        assert!(after(RestartPolicy::of(None), 0));
    }

    #[test]
    fn the_containers_own_rules_go_before_its_policy() {
        let rules =
            [rule(RESTART, "In", &[42]), rule(RESTART_ALL, "In", &[43]), rule(RESTART, "NotIn", &[0, 1, 2])];
        let after = |own, code| restarts_after(Some(own), &rules, Always, code);
        assert!(after("Never", 42) && after("Never", 43) && after("Never", 7));
        assert!(!after("Never", 1) && after("OnFailure", 1) && !after("OnFailure", 0));
        assert!(after("Sometimes", 0), "a policy that is none leaves it to the pod's");
        assert!(!restarts_after(Some("Sometimes"), &[], Never, 1));
    }

    #[test]
    fn the_first_rule_that_fits_decides_about_all_containers() {
        let rules = [rule(RESTART, "In", &[42]), rule(RESTART_ALL, "NotIn", &[0])];
        assert!(!restarts_all(&rules, 42) && !restarts_all(&rules, 0) && restarts_all(&rules, 1));
        assert!(!restarts_all(&[rule(RESTART_ALL, "Near", &[1])], 1));
    }
}
