//! PURE: which containers of a pod have run, so that one of which the runtime has nothing any more (its store
//! was wiped, the container was removed behind the kubelet's back) counts as ended and not as new (row 5.10).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use messages::runtime::{ContainerState, RuntimePod};
use pod_rules::restart::RESTARTING_ALL;

/// The exit code of a container whose end was not seen: that of a killed process.
const UNSEEN_EXIT: i32 = 137;

/// The containers that have run, by name, each with the exit code that counts if the runtime has nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    exits: BTreeMap<String, i32>,
}

impl Past {
    /// Adds what the pod's last known status tells, where nothing newer is known.
    pub fn add(&mut self, status: Option<&PodStatus>) {
        let Some(status) = status else { return };
        let lists = [
            &status.init_container_statuses,
            &status.container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for container in lists.into_iter().flatten().flatten() {
            if let Some(exit) = exit_of(container) {
                self.exits.entry(container.name.clone()).or_insert(exit);
            }
        }
    }

    /// A container has been started.
    pub fn started(&mut self, name: &str) {
        self.exits.insert(name.to_owned(), UNSEEN_EXIT);
    }

    /// Takes in what the runtime holds: it knows better than what was known before.
    pub fn see(&mut self, runtime: &RuntimePod) {
        // The newest instance of a name comes first.
        for instance in runtime.containers.iter().rev() {
            let exit = match instance.state {
                ContainerState::Running => UNSEEN_EXIT,
                ContainerState::Exited => instance.exit_code,
                ContainerState::Created | ContainerState::Unknown => continue,
            };
            self.exits.insert(instance.name.to_string(), exit);
        }
    }

    /// Forgets these containers: their instances were removed so that they begin anew.
    pub fn begin_anew(&mut self, names: &[String]) {
        for name in names {
            self.exits.remove(name);
        }
    }

    /// The exit code of a container that has run and of which the runtime has nothing any more.
    pub fn lost(&self, runtime: &RuntimePod, name: &str) -> Option<i32> {
        self.exits.get(name).copied().filter(|_| runtime.latest(name).is_none())
    }
}

/// The exit code of a container that has run, as its status tells.
fn exit_of(status: &ContainerStatus) -> Option<i32> {
    let state = status.state.as_ref()?;
    if state.running.is_some() {
        return Some(UNSEEN_EXIT);
    }
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let end = state.terminated.as_ref().or(last)?;
    (end.reason.as_deref() != Some(RESTARTING_ALL)).then_some(end.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{exited, instance, running, runtime_pod};

    fn told(state: serde_json::Value, last: serde_json::Value) -> Option<i32> {
        let mut past = Past::default();
        let container = serde_json::json!({"name": "a", "image": "i", "imageID": "", "ready": false,
            "restartCount": 0, "state": state, "lastState": last});
        let container = serde_json::from_value(container).expect("it is one");
        past.add(Some(&PodStatus { container_statuses: Some(vec![container]), ..PodStatus::default() }));
        past.lost(&runtime_pod(vec![]), "a")
    }

    #[test]
    fn a_status_tells_what_has_run() {
        use serde_json::json;
        assert_eq!(told(json!({"running": {}}), json!({})), Some(137));
        assert_eq!(told(json!({"terminated": {"exitCode": 3}}), json!({})), Some(3));
        assert_eq!(told(json!({"waiting": {}}), json!({"terminated": {"exitCode": 4}})), Some(4));
        assert_eq!(told(json!({"waiting": {"reason": "ContainerCreating"}}), json!({})), None);
        let anew = json!({"terminated": {"exitCode": 137, "reason": RESTARTING_ALL}});
        assert_eq!(told(json!({"waiting": {"reason": RESTARTING_ALL}}), anew), None);
    }

    #[test]
    fn the_newest_instance_counts_and_the_runtime_knows_better() {
        let mut past = Past::default();
        past.started("a");
        past.see(&runtime_pod(vec![exited("a", 1, 3, 4, 5), exited("a", 0, 1, 2, 0)]));
        assert_eq!(past.lost(&runtime_pod(vec![]), "a"), Some(5));
        assert_eq!(past.lost(&runtime_pod(vec![running("a", 2)]), "a"), None, "it is there");
        past.see(&runtime_pod(vec![instance("b", 0, ContainerState::Created)]));
        assert_eq!(past.lost(&runtime_pod(vec![]), "b"), None, "it never ran");
    }
}
