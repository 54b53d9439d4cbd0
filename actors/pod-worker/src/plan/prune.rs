//! Instances to remove (rows 5.12 and 9.5).

use std::collections::BTreeMap;

use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};

use super::Prune;
use crate::spec::PodView;

/// The dead instances except the newest `keep` of each container; at least one is kept, for its logs and the
/// last state.
pub(super) fn dead(view: PodView<'_>, runtime: &RuntimePod, keep: usize) -> Vec<Prune> {
    let named = view.by_name();
    let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
    let mut prunes = Vec::new();
    for instance in &runtime.containers {
        let newest = runtime.latest(&instance.name).is_some_and(|latest| latest.id == instance.id);
        let dead = instance.state == ContainerState::Exited
            || (instance.state == ContainerState::Created && !newest);
        if !dead || named.get(&instance.name).is_none() {
            continue;
        }
        // An instance that never ran has no log and no last state to keep.
        if instance.state == ContainerState::Exited {
            let count = kept.entry(&instance.name).or_default();
            *count += 1;
            if *count <= keep.max(1) {
                continue;
            }
        }
        prunes.push(prune(instance));
    }
    prunes
}

/// The exited and unknown instances of init containers, except the newest of each: they are removed before an
/// init container is started.
pub(super) fn init_before_start(view: PodView<'_>, runtime: &RuntimePod) -> Vec<Prune> {
    view.init()
        .iter()
        .flat_map(|container| {
            runtime
                .instances(&container.name)
                .filter(|c| matches!(c.state, ContainerState::Exited | ContainerState::Unknown))
                .skip(1)
        })
        .map(prune)
        .collect()
}

/// All instances of all init containers: a new sandbox is initialized from the start.
pub(super) fn all_init(view: PodView<'_>, runtime: &RuntimePod) -> Vec<Prune> {
    view.init().iter().flat_map(|container| runtime.instances(&container.name)).map(prune).collect()
}

fn prune(instance: &RuntimeContainer) -> Prune {
    Prune { id: instance.id.clone(), name: instance.name.clone(), attempt: instance.attempt }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{container, exited, pod, running, runtime_pod};

    #[test]
    fn as_many_dead_instances_are_kept_as_asked_for_and_one_in_any_case() {
        let spec = pod("Always", Vec::new(), vec![container("a")]);
        let gone = |attempt| exited("a", attempt, 1, 2, 0);
        let runtime = runtime_pod(vec![running("a", 4), gone(3), gone(2), gone(1)]);
        let pruned = |keep| -> Vec<u32> {
            dead(PodView::of(&spec), &runtime, keep).iter().map(|prune| prune.attempt).collect()
        };
        assert_eq!(pruned(0), [2, 1]);
        assert_eq!(pruned(1), [2, 1]);
        assert_eq!(pruned(2), [1]);
        assert_eq!(pruned(9), [0; 0]);
    }
}
