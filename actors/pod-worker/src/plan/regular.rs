//! The regular containers of an initialized pod (rows 5.10, 5.17, 7.8).

use k8s_openapi::api::core::v1::Container;
use messages::runtime::{ContainerState, RuntimeContainer};

use super::{
    Finished, Inputs, KillContainer, KillReason, PodPlan, StartReason, changed, failed_hook, lost, start_of,
    verdict_of,
};
use crate::spec::{ContainerKind, PodView};
use crate::texts;

pub(super) fn decide(inputs: &Inputs<'_>, view: PodView<'_>, plan: &mut PodPlan) {
    let mut kept = 0_usize;
    let mut starts = Vec::new();
    for (index, container) in view.regular().iter().enumerate() {
        let why = match inputs.runtime.latest(&container.name) {
            None => lost::may_start(inputs, view, container).then_some(StartReason::New),
            Some(instance) => match instance.state {
                // Its exit code decides whether it is restarted.
                ContainerState::Running if inputs.known.has_failed_hook(instance) => {
                    kept += 1;
                    plan.kill.push(failed_hook(container, ContainerKind::Regular, instance));
                    None
                }
                ContainerState::Running => match fault_of(inputs, container, instance) {
                    None => {
                        kept += 1;
                        None
                    }
                    Some(fault) => kill(view, container, instance, fault, plan),
                },
                // The instance may still run, and two instances of one container must never run, so it is
                // killed first.
                ContainerState::Unknown => {
                    let fault =
                        Fault { message: texts::unknown_state(), reason: KillReason::Other, always: true };
                    kill_silently(container, instance, fault, plan);
                    Some(StartReason::Killed)
                }
                ContainerState::Created => Some(StartReason::NeverRan),
                ContainerState::Exited => {
                    let restarts = inputs.known.is_replaced(instance)
                        || view.restarts_after(container, instance.exit_code);
                    restarts.then_some(StartReason::Exited)
                }
            },
        };
        if let Some(why) = why {
            starts.push(start_of(inputs.runtime, ContainerKind::Regular, index, container, why));
        }
    }
    if kept == 0 && starts.is_empty() {
        plan.finished = Some(Finished::Done);
    }
    plan.start.append(&mut starts);
}

/// Why a running container is killed.
struct Fault {
    message: String,
    reason: KillReason,
    /// Whether it is restarted whatever the restart policy says.
    always: bool,
}

fn fault_of(inputs: &Inputs<'_>, container: &Container, instance: &RuntimeContainer) -> Option<Fault> {
    let name = &container.name;
    if changed(container, instance) {
        return Some(Fault {
            message: texts::definition_changed(name),
            reason: KillReason::Other,
            always: true,
        });
    }
    // A container whose postStart hook has not ended counts as not started.
    let verdict = verdict_of(inputs, instance).filter(|_| !inputs.known.is_hooking(instance))?;
    if verdict.liveness == Some(false) {
        Some(Fault {
            message: texts::failed_liveness(name),
            reason: KillReason::LivenessProbe,
            always: false,
        })
    } else if verdict.startup == Some(false) {
        Some(Fault { message: texts::failed_startup(name), reason: KillReason::StartupProbe, always: false })
    } else {
        None
    }
}

fn kill(
    view: PodView<'_>,
    container: &Container,
    instance: &RuntimeContainer,
    mut fault: Fault,
    plan: &mut PodPlan,
) -> Option<StartReason> {
    let restarts = fault.always || view.restarts_after_kill(container);
    if restarts {
        fault.message = texts::will_be_restarted(&fault.message);
    }
    kill_silently(container, instance, fault, plan);
    restarts.then_some(StartReason::Killed)
}

fn kill_silently(container: &Container, instance: &RuntimeContainer, fault: Fault, plan: &mut PodPlan) {
    plan.kill.push(KillContainer {
        id: instance.id.clone(),
        name: container.name.clone(),
        kind: ContainerKind::Regular,
        message: fault.message,
        reason: fault.reason,
    });
}
