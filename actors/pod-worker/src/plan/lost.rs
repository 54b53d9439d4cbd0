//! Containers that have run and of which the runtime has nothing any more: they count as ended (row 5.10).

use k8s_openapi::api::core::v1::Container;
use messages::runtime::ContainerState;

use super::{Finished, Inputs};
use crate::past::Past;
use crate::spec::{ContainerKind, PodView, restarts_all};

/// The past that counts: none if the end of a lost container restarts all of them, since then their instances
/// were removed on purpose.
pub(super) fn relevant<'a>(inputs: &Inputs<'a>, view: PodView<'_>, nothing: &'a Past) -> &'a Past {
    let restarts = |container: &Container| {
        exit_of(inputs, container).is_some_and(|exit_code| restarts_all(container, exit_code))
    };
    if view.containers().any(|(_, container)| restarts(container)) { nothing } else { inputs.past }
}

/// Whether a container without an instance is started: it is new, or comes back after its unseen end.
pub(super) fn may_start(inputs: &Inputs<'_>, view: PodView<'_>, container: &Container) -> bool {
    exit_of(inputs, container).is_none_or(|exit_code| view.restarts_after(container, exit_code))
}

/// Whether the runtime has lost a regular container.
pub(super) fn any_regular(inputs: &Inputs<'_>, view: PodView<'_>) -> bool {
    view.regular().iter().any(|container| exit_of(inputs, container).is_some())
}

/// Why the pod has nothing more to run, if containers that the runtime has lost are the reason.
pub(super) fn finished(inputs: &Inputs<'_>, view: PodView<'_>) -> Option<Finished> {
    if has_failed_init(inputs, view) {
        return Some(Finished::InitFailed);
    }
    let mut lost = false;
    for container in view.regular() {
        let is_over = match inputs.runtime.latest(&container.name) {
            Some(instance) => {
                instance.state == ContainerState::Exited
                    && !inputs.known.is_replaced(instance)
                    && !view.restarts_after(container, instance.exit_code)
            }
            None => {
                lost = true;
                !may_start(inputs, view, container)
            }
        };
        if !is_over {
            return None;
        }
    }
    lost.then_some(Finished::Done)
}

/// Whether an init container has failed for good. An instance of a later container proves that it has completed
/// after all.
fn has_failed_init(inputs: &Inputs<'_>, view: PodView<'_>) -> bool {
    let order: Vec<_> = view.containers().collect();
    let later = order.iter().rposition(|(_, container)| inputs.runtime.latest(&container.name).is_some());
    let unproven = order.iter().skip(later.map_or(0, |place| place + 1));
    unproven
        .filter(|(kind, _)| *kind == ContainerKind::Init)
        .any(|(_, container)| !may_start(inputs, view, container) && exit_of(inputs, container) != Some(0))
}

fn exit_of(inputs: &Inputs<'_>, container: &Container) -> Option<i32> {
    inputs.past.lost(inputs.runtime, &container.name)
}
