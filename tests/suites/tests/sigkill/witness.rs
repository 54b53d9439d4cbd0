//! Looks at the runtime again and again: for states that must never be, and to remember instances.

use std::collections::BTreeMap;

use bridge_cri::wire::{Container, ContainerState};

use crate::cri::{CONTAINER_NAME_LABEL, NAMESPACE_LABEL, UID_LABEL};
use crate::node::Node;

/// One instance of a container, as it was last seen.
#[derive(Clone, Debug)]
pub struct Instance {
    pub attempt: u32,
    pub state: ContainerState,
    /// Whether it has been seen running.
    pub ran: bool,
}

/// All instances ever seen, by pod and container, and by ID.
#[derive(Debug, Default)]
pub struct Witness {
    seen: BTreeMap<(String, String), BTreeMap<String, Instance>>,
}

impl Witness {
    /// Looks at the runtime.
    ///
    /// # Errors
    /// A state that must never be.
    pub fn look(&mut self, node: &Node) -> Result<(), String> {
        let containers = node.cri.containers(NAMESPACE_LABEL, &node.namespace);
        self.take_in(&containers);
        let running: Vec<&Container> =
            containers.iter().filter(|c| c.state() == ContainerState::ContainerRunning).collect();
        let mut at: BTreeMap<&str, &str> = BTreeMap::new();
        let mut names = BTreeMap::new();
        for container in running {
            let (uid, name) = (label(container, UID_LABEL), label(container, CONTAINER_NAME_LABEL));
            if let Some(other) = names.insert((uid, name), &container.id) {
                return Err(format!("{name} of {uid} runs twice: {other} and {}", container.id));
            }
            let sandbox = at.entry(uid).or_insert(&container.pod_sandbox_id);
            if *sandbox != container.pod_sandbox_id {
                let other = &container.pod_sandbox_id;
                return Err(format!("{uid} has two sandboxes with live containers: {sandbox} and {other}"));
            }
        }
        Ok(())
    }

    fn take_in(&mut self, containers: &[Container]) {
        for container in containers {
            let key =
                (label(container, UID_LABEL).to_owned(), label(container, CONTAINER_NAME_LABEL).to_owned());
            let instances = self.seen.entry(key).or_default();
            let instance = instances.entry(container.id.clone()).or_insert(Instance {
                attempt: container.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
                state: container.state(),
                ran: false,
            });
            instance.state = container.state();
            instance.ran |= container.state() == ContainerState::ContainerRunning;
        }
    }

    /// The instances of a container, oldest attempt first.
    pub fn instances(&self, uid: &str, name: &str) -> Vec<Instance> {
        let seen = self.seen.get(&(uid.to_owned(), name.to_owned()));
        let mut all: Vec<Instance> = seen.into_iter().flat_map(|all| all.values().cloned()).collect();
        all.sort_by_key(|instance| instance.attempt);
        all
    }
}

fn label<'a>(container: &'a Container, name: &str) -> &'a str {
    container.labels.get(name).map_or("", String::as_str)
}
