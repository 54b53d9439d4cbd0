//! Whether the pod's sandbox can stay (row 5.2).

use std::sync::Arc;

use messages::runtime::{ContainerState, RuntimePod, RuntimeSandbox};
use pod_rules::restart::RestartPolicy;

use super::{Finished, Inputs, NewSandbox, PodPlan, StartReason, lost, prune, start_of};
use crate::spec::{ContainerKind, PodView, init_kind};

/// The decision about the pod's sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SandboxDecision {
    /// The pod's sandbox stays; these other sandboxes are removed.
    Keep { discard: Vec<Arc<str>> },
    /// All containers are killed, and this sandbox is made if the pod still has something to run.
    Replace(NewSandbox),
}

pub(super) fn verdict(view: PodView<'_>, runtime: &RuntimePod) -> SandboxDecision {
    let Some(latest) = runtime.sandboxes.first() else {
        return SandboxDecision::Replace(NewSandbox { attempt: 0, replaces: false });
    };
    let attempt =
        runtime.sandboxes.iter().map(|sandbox| sandbox.attempt).max().unwrap_or(0).saturating_add(1);
    let replace = SandboxDecision::Replace(NewSandbox { attempt, replaces: true });
    let ready: Vec<&RuntimeSandbox> = runtime.sandboxes.iter().filter(|sandbox| sandbox.ready).collect();
    if ready.len() > 1 {
        return keep_the_busy_one(runtime, &ready)
            .map_or(replace, |discard| SandboxDecision::Keep { discard });
    }
    if !latest.ready {
        return replace;
    }
    if latest.host_network != view.host_network() {
        return SandboxDecision::Replace(NewSandbox { attempt, replaces: false });
    }
    if !view.host_network() && latest.ips.iter().all(|ip| ip.is_empty()) {
        return replace;
    }
    SandboxDecision::Keep { discard: Vec::new() }
}

/// A lost answer can leave a second ready sandbox behind. The one with live containers stays; without any,
/// the newest. None stays if several have live containers.
fn keep_the_busy_one(runtime: &RuntimePod, ready: &[&RuntimeSandbox]) -> Option<Vec<Arc<str>>> {
    let busy: Vec<&RuntimeSandbox> = ready
        .iter()
        .copied()
        .filter(|sandbox| runtime.live().any(|container| container.sandbox_id == sandbox.id))
        .collect();
    let keep = match busy.as_slice() {
        [] => ready.first()?,
        [one] => one,
        _ => return None,
    };
    Some(
        ready.iter().filter(|sandbox| sandbox.id != keep.id).map(|sandbox| Arc::clone(&sandbox.id)).collect(),
    )
}

/// Plans the kill of all containers and, unless the pod is done, a fresh start.
pub(super) fn replace(inputs: &Inputs<'_>, view: PodView<'_>, new: NewSandbox, plan: &mut PodPlan) {
    let runtime = inputs.runtime;
    let ran_before = !runtime.containers.is_empty() || lost::any_regular(inputs, view);
    if view.restart_policy() == RestartPolicy::Never && new.attempt != 0 && ran_before {
        plan.finished = Some(Finished::SandboxGone);
        return;
    }
    let regular: Vec<_> = view
        .regular()
        .iter()
        .enumerate()
        .filter(|(_, container)| {
            let policy = match container.restart_policy.as_deref() {
                Some(own) => RestartPolicy::of(Some(own)),
                None => view.restart_policy(),
            };
            (policy != RestartPolicy::OnFailure || !succeeded(runtime, &container.name))
                && lost::may_start(inputs, view, container)
        })
        .collect();
    if regular.is_empty() && any_regular_created(view, runtime) {
        plan.finished = Some(Finished::Done);
        return;
    }
    plan.kill_pod = !runtime.is_absent();
    plan.purge = prune::all_init(view, runtime);
    plan.create_sandbox = Some(new);
    plan.start = match view.init().first() {
        Some(first) => {
            let mut start = start_of(runtime, init_kind(first), 0, first, StartReason::NewSandbox);
            // This plan purges the instances of the init container.
            if runtime.latest(&first.name).is_none() {
                start.why = StartReason::New;
            }
            vec![start]
        }
        None => regular
            .into_iter()
            .map(|(index, container)| {
                let why = match runtime.latest(&container.name) {
                    None => StartReason::New,
                    Some(_) => StartReason::NewSandbox,
                };
                start_of(runtime, ContainerKind::Regular, index, container, why)
            })
            .collect(),
    };
}

fn succeeded(runtime: &RuntimePod, name: &str) -> bool {
    runtime.latest(name).is_some_and(|c| c.state == ContainerState::Exited && c.exit_code == 0)
}

fn any_regular_created(view: PodView<'_>, runtime: &RuntimePod) -> bool {
    view.regular()
        .iter()
        .filter_map(|container| runtime.latest(&container.name))
        .any(|instance| instance.state != ContainerState::Unknown)
}
