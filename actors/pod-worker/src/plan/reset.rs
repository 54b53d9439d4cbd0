//! The restart of all containers of a pod in place, after an exit for which a rule demands it (row 5.11).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Container;
use messages::facts::WaitingReason;
use messages::runtime::{ContainerState, RuntimePod};

use super::{BackingOff, PodPlan, Reset};
use crate::spec::{PodView, restarts_all};
use crate::texts;

/// Whether the container's newest instance has exited with a code that restarts all.
fn is_cause(container: &Container, runtime: &RuntimePod) -> bool {
    runtime.latest(&container.name).is_some_and(|instance| {
        instance.state == ContainerState::Exited && restarts_all(container, instance.exit_code)
    })
}

/// The plan while the pod waits for its next restart: the containers that caused it show why.
pub(super) fn waits(
    view: PodView<'_>,
    runtime: &RuntimePod,
    until: Timestamp,
    delay: SignedDuration,
) -> PodPlan {
    let mut plan = PodPlan { look_again: Some(until), ..PodPlan::default() };
    for (kind, container) in view.containers().filter(|(_, container)| is_cause(container, runtime)) {
        let name = container.name.clone();
        let reason = texts::CRASH_LOOP_BACK_OFF.to_owned();
        let message = texts::back_off_message(delay, &name, &runtime.pod);
        plan.waiting.insert(name.clone(), WaitingReason { reason, message });
        plan.backing_off.push(BackingOff { kind, name, until });
    }
    plan
}

/// All instances of all containers, if a container's newest instance has exited with a code that restarts
/// all. The exits that caused it come last, so that an interrupted reset goes on.
pub(super) fn all_containers(view: PodView<'_>, runtime: &RuntimePod) -> Vec<Reset> {
    if !view.containers().any(|(_, container)| is_cause(container, runtime)) {
        return Vec::new();
    }
    let (mut victims, mut causes) = (Vec::new(), Vec::new());
    let init = view.init().len();
    let order = view.containers().skip(init).chain(view.containers().take(init));
    for (kind, container) in order {
        for (place, instance) in runtime.instances(&container.name).enumerate() {
            let exited = instance.state == ContainerState::Exited;
            let reset = Reset {
                id: instance.id.clone(),
                name: container.name.clone(),
                kind,
                kill: !exited,
                attempt: instance.attempt,
                newest: place == 0,
            };
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
