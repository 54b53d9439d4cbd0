//! Init containers and sidecars (rows 5.12 and 5.13).

use k8s_openapi::api::core::v1::Container;
use messages::runtime::{ContainerState, RuntimeContainer};

use super::{
    Inputs, KillContainer, KillReason, PodPlan, StartReason, changed, failed_hook, start_of, verdict_of,
};
use crate::spec::{ContainerKind, PodView, init_kind};
use crate::texts;

/// How far the initialization of a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// All init containers have completed: regular containers are planned.
    Initialized,
    /// Initialization goes on.
    Running,
    /// An init container has failed and may not be restarted.
    Failed,
}

/// Adds the steps for init containers and sidecars to the plan.
///
/// They are visited from the last to the first, since instances of completed ones may have been removed: the
/// last one that has an instance proves that all before it have completed.
pub(super) fn progress(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) -> Progress {
    let containers = view.init();
    if containers.is_empty() {
        return Progress::Initialized;
    }
    let mut walk = Walk {
        inputs,
        view,
        initialized: regular_has_been_started(inputs, view),
        seen_later: false,
        last: containers.len() - 1,
        starts: Vec::new(),
    };
    walk.seen_later = walk.initialized;
    for (index, container) in containers.iter().enumerate().rev() {
        let instance = inputs.runtime.latest(&container.name);
        if !walk.visit(index, container, instance, plan) {
            return Progress::Failed;
        }
    }
    if !walk.seen_later {
        walk.starts.push((0, StartReason::New));
    }
    walk.starts.reverse();
    for (index, why) in walk.starts {
        let container = &containers[index];
        plan.start.push(start_of(inputs.runtime, init_kind(container), index, container, why));
    }
    if walk.initialized { Progress::Initialized } else { Progress::Running }
}

/// Whether a regular container is created or running. Exited ones do not count: after a reboot all have
/// exited, and init containers run again.
fn regular_has_been_started(inputs: &Inputs<'_>, view: PodView<'_>) -> bool {
    view.regular()
        .iter()
        .filter_map(|container| inputs.runtime.latest(&container.name))
        .any(|instance| matches!(instance.state, ContainerState::Created | ContainerState::Running))
}

struct Walk<'a> {
    inputs: &'a Inputs<'a>,
    view: PodView<'a>,
    initialized: bool,
    /// Whether a later init container, or a regular container, has an instance.
    seen_later: bool,
    last: usize,
    starts: Vec<(usize, StartReason)>,
}

impl Walk<'_> {
    /// Plans the steps for one init container. False if the pod has failed.
    fn visit(
        &mut self,
        index: usize,
        container: &Container,
        instance: Option<&RuntimeContainer>,
        plan: &mut PodPlan,
    ) -> bool {
        let sidecar = init_kind(container) == ContainerKind::Sidecar;
        let Some(instance) = instance else {
            if self.seen_later && sidecar {
                self.starts.push((index, StartReason::New));
            }
            return true;
        };
        if self.seen_later && !sidecar {
            return true;
        }
        let goes_on = match instance.state {
            ContainerState::Created => {
                self.starts.push((index, StartReason::NeverRan));
                true
            }
            ContainerState::Running if sidecar => {
                self.running_sidecar(index, container, instance, plan);
                true
            }
            ContainerState::Running => true,
            ContainerState::Exited if sidecar => {
                self.starts.push((index, StartReason::Exited));
                true
            }
            ContainerState::Exited => self.exited(index, container, instance),
            ContainerState::Unknown => {
                let restarts = sidecar || self.view.restarts_after_kill(container);
                if restarts {
                    let message = texts::of_init(&texts::unknown_state());
                    self.kill(index, container, instance, message, KillReason::Other, plan);
                }
                restarts
            }
        };
        self.seen_later = true;
        goes_on
    }

    fn exited(&mut self, index: usize, container: &Container, instance: &RuntimeContainer) -> bool {
        if &*instance.reason == "OOMKilled" || instance.exit_code != 0 {
            let restarts = self.view.restarts_after(container, instance.exit_code);
            if restarts {
                self.starts.push((index, StartReason::Exited));
            }
            return restarts;
        }
        self.completed(index);
        true
    }

    /// This init container lets the next one start.
    fn completed(&mut self, index: usize) {
        if index == self.last {
            self.initialized = true;
        } else if !self.seen_later {
            self.starts.push((index + 1, StartReason::New));
        }
    }

    fn running_sidecar(
        &mut self,
        index: usize,
        container: &Container,
        instance: &RuntimeContainer,
        plan: &mut PodPlan,
    ) {
        let name = &container.name;
        if self.inputs.known.has_failed_hook(instance) {
            plan.kill.push(failed_hook(container, ContainerKind::Sidecar, instance));
            return;
        }
        if self.inputs.known.is_hooking(instance) {
            return;
        }
        let verdict = verdict_of(self.inputs, instance);
        if container.startup_probe.is_some() {
            match verdict.and_then(|verdict| verdict.startup) {
                None => return,
                Some(false) => {
                    let message = texts::of_init(&texts::failed_startup(name));
                    self.kill(index, container, instance, message, KillReason::StartupProbe, plan);
                    return;
                }
                Some(true) => {}
            }
        }
        self.completed(index);
        if changed(container, instance) {
            let message = texts::of_init(&texts::definition_changed(name));
            self.kill(index, container, instance, message, KillReason::Other, plan);
        } else if container.liveness_probe.is_some()
            && verdict.and_then(|verdict| verdict.liveness) == Some(false)
        {
            let message = texts::of_init(&texts::failed_liveness(name));
            self.kill(index, container, instance, message, KillReason::LivenessProbe, plan);
        }
    }

    fn kill(
        &mut self,
        index: usize,
        container: &Container,
        instance: &RuntimeContainer,
        message: String,
        reason: KillReason,
        plan: &mut PodPlan,
    ) {
        plan.kill.push(KillContainer {
            id: instance.id.clone(),
            name: container.name.clone(),
            kind: init_kind(container),
            message,
            reason,
        });
        self.starts.push((index, StartReason::Killed));
    }
}
