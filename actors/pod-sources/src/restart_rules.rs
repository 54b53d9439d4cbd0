//! PURE: the restart rules of containers, as far as feature gates let them apply (row 5.11).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use messages::PodRef;
use messages::facts::SourcePod;
use pod_rules::restart::{RESTART_ALL, is_sidecar};
use supervision::blame;

/// Which restart rules apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartRules {
    /// The gate ContainerRestartRules: containers have restart policies and rules of their own.
    pub container: bool,
    /// The gate RestartAllContainersOnContainerExits: a rule may restart all containers of a pod.
    pub all_containers: bool,
}

impl Default for RestartRules {
    fn default() -> Self {
        Self { container: true, all_containers: true }
    }
}

impl RestartRules {
    /// The pods with those rules alone that hold; nothing else goes by the others then.
    pub fn of_all(self, pods: Vec<SourcePod>) -> Vec<SourcePod> {
        pods.into_iter().map(|pod| self.of(pod)).collect()
    }

    /// The same for one pod.
    pub fn of(self, mut pod: SourcePod) -> SourcePod {
        if self != Self::default() {
            let uid = PodRef::of(&pod.pod).uid;
            blame::step(&uid, || self.of_pod(&mut pod.pod));
        }
        pod
    }

    fn of_pod(self, pod: &mut Arc<Pod>) {
        let Some(before) = &pod.spec else { return };
        let mut spec = before.clone();
        self.of_spec(&mut spec);
        if spec != *before {
            Arc::make_mut(pod).spec = Some(spec);
        }
    }

    fn of_spec(self, spec: &mut PodSpec) {
        for container in spec.init_containers.iter_mut().flatten() {
            if !self.container && !is_sidecar(container) {
                container.restart_policy = None;
            }
            self.of_container(container);
        }
        for container in &mut spec.containers {
            if !self.container {
                container.restart_policy = None;
            }
            self.of_container(container);
        }
    }

    fn of_container(self, container: &mut Container) {
        if !self.container {
            container.restart_policy_rules = None;
        } else if !self.all_containers {
            // The rule stays the first one that fits, and without an action it leaves the decision to the container's
            // policy.
            let rules = container.restart_policy_rules.iter_mut().flatten();
            rules.filter(|rule| rule.action == RESTART_ALL).for_each(|rule| rule.action.clear());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods() -> Vec<SourcePod> {
        let rule = |action: &str| json!({"action": action, "exitCodes": {"operator": "In", "values": [42]}});
        let spec = json!({
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always"},
                {"name": "init", "restartPolicy": "OnFailure", "restartPolicyRules": [rule("Restart")]},
            ],
            "containers": [
                {"name": "a", "restartPolicy": "Never", "restartPolicyRules": [rule(RESTART_ALL), rule("Restart")]},
                {"name": "b"},
            ],
        });
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        vec![SourcePod { pod: Arc::new(pod), refused: None, made_anew: None }]
    }

    fn after(rules: RestartRules) -> Value {
        serde_json::to_value(&rules.of_all(pods())[0].pod.spec).unwrap()
    }

    #[test]
    fn all_hold_while_both_gates_are_on() {
        let before = pods();
        let after = RestartRules::default().of_all(before.clone());
        assert!(Arc::ptr_eq(&before[0].pod, &after[0].pod));
    }

    #[test]
    fn without_rules_of_containers_the_pods_policy_decides() {
        let spec = after(RestartRules { container: false, all_containers: false });
        let shown = |path: &str| spec.pointer(path).cloned().unwrap_or_default();
        assert_eq!(shown("/initContainers/0/restartPolicy"), "Always", "a sidecar stays one");
        for gone in [
            "/initContainers/1/restartPolicy",
            "/initContainers/1/restartPolicyRules",
            "/containers/0/restartPolicy",
            "/containers/0/restartPolicyRules",
        ] {
            assert_eq!(shown(gone), Value::Null, "{gone}");
        }
    }

    #[test]
    fn a_rule_for_all_containers_leaves_it_to_the_policy() {
        let spec = after(RestartRules { container: true, all_containers: false });
        let rules = &spec["containers"][0]["restartPolicyRules"];
        assert_eq!((&rules[0]["action"], &rules[1]["action"]), (&json!(""), &json!("Restart")));
        assert_eq!(spec["containers"][0]["restartPolicy"], "Never");
        assert_eq!(spec["initContainers"][1]["restartPolicyRules"][0]["action"], "Restart");
    }

    #[test]
    fn a_pod_without_rules_stays_the_same_object() {
        let mut pods = pods();
        Arc::make_mut(&mut pods[0].pod).spec.as_mut().unwrap().containers.remove(0);
        Arc::make_mut(&mut pods[0].pod).spec.as_mut().unwrap().init_containers = None;
        let after = RestartRules { container: false, all_containers: false }.of_all(pods.clone());
        assert!(Arc::ptr_eq(&pods[0].pod, &after[0].pod));
    }
}
