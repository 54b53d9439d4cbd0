//! The restart of all containers of a pod in place, after an exit for which a rule demands it (row 5.11).

use messages::runtime::{ContainerState, RuntimePod};

use super::Reset;
use crate::spec::{PodView, restarts_all};

/// All instances of all containers, if a container's newest instance has exited with a code that restarts
/// all. The exits that caused it come last, so that an interrupted reset goes on.
pub(super) fn all_containers(view: PodView<'_>, runtime: &RuntimePod) -> Vec<Reset> {
    let caused = view.containers().any(|(_, container)| {
        runtime.latest(&container.name).is_some_and(|instance| {
            instance.state == ContainerState::Exited && restarts_all(container, instance.exit_code)
        })
    });
    if !caused {
        return Vec::new();
    }
    let (mut victims, mut causes) = (Vec::new(), Vec::new());
    let init = view.init().len();
    let order = view.containers().skip(init).chain(view.containers().take(init));
    for (kind, container) in order {
        for instance in runtime.instances(&container.name) {
            let exited = instance.state == ContainerState::Exited;
            let reset = Reset { id: instance.id.clone(), name: container.name.clone(), kind, kill: !exited };
            if exited && restarts_all(container, instance.exit_code) {
                causes.push(reset);
            } else {
                victims.push(reset);
            }
        }
    }
    victims.append(&mut causes);
    victims
}
