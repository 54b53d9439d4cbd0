//! Lifecycle hooks of the worker's containers (row 5.19). A postStart hook is waited for apart from everything else, as
//! an image is: it holds up what comes after its container, and nothing that is done for the others.
//!
//! A hook runs at most once for an instance, and nobody writes down that it runs. So a worker that crashes while one does,
//! or a kubelet that is restarted, finds a running container and takes it as started, whatever becomes of the hook: as
//! upstream has it after a restart.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::WaitingReason;
use messages::runtime::ContainerState;
use supervision::{Ctx, Effect, EffectId};

use super::{PodWorker, Timer};
use crate::execute::{Executor, PreStop, PreStops, StartFailure, run_hook};
use crate::hooks::Hook;
use crate::plan::PodPlan;
use crate::spec::PodView;
use crate::texts;

/// A postStart hook under way.
pub(super) struct Hooking {
    effect: EffectId,
    hook: Hook,
}

/// Containers that the plan starts, and that have a postStart hook.
pub(super) fn with_hook(pod: &Pod, plan: &PodPlan) -> BTreeSet<String> {
    let view = PodView::of(pod);
    let hooked = plan.start.iter().filter(|start| {
        let container = view.find(&start.name);
        let lifecycle = container.and_then(|(_, container)| container.lifecycle.clone());
        lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some())
    });
    hooked.map(|start| start.name.clone()).collect()
}

impl PodWorker {
    /// Containers that count as waiting until their hook has ended.
    pub(super) fn hooked(&self) -> Arc<BTreeSet<String>> {
        let under_way = self.known.hooking.keys().cloned();
        Arc::new(under_way.chain(self.to_be_hooked.iter().cloned()).collect())
    }

    pub(super) fn run_hook(&mut self, hook: Hook, ctx: &mut Ctx<Self>) {
        let Some(exec) = self.executor() else { return };
        let step = self.progress.begin(format!("PostStart {}", hook.container));
        let running = hook.clone();
        let work = async move {
            let _step = step;
            run_hook(&exec, &running).await
        };
        let (name, id) = (hook.container.clone(), hook.container_id.clone());
        let ended = name.clone();
        let effect = ctx.effect(
            Effect::lasting("PostStart"),
            Some(self.uid.clone()),
            work,
            move |worker, outcome, ctx| {
                worker.known.hooking.remove(&ended);
                if let (Some(hooking), Err(error)) = (worker.hooks.remove(&ended), outcome) {
                    worker.hook_failed(&hooking.hook, error);
                }
                worker.unblocked(ctx);
                worker.tell_report(ctx);
                worker.reconcile(ctx);
            },
        );
        self.known.hooking.insert(name.clone(), id);
        self.hooks.insert(name, Hooking { effect, hook });
        ctx.set_timer(Timer::Progress, super::report::BLOCKED_AFTER);
    }

    /// The container is killed; its policy says whether it comes back.
    fn hook_failed(&mut self, hook: &Hook, error: String) {
        tracing::warn!(error, pod = %self.uid, container = hook.container, "PostStart hook failed");
        self.record(texts::failed_post_start_hook(), &hook.kind.field_path(&hook.container));
        let labels = [hook.kind.metric_label(), texts::POST_START_HOOK_ERROR];
        self.deps.metrics.started_containers_errors.with_label_values(&labels).inc();
        self.known.hook_failed.insert(hook.container.clone(), hook.container_id.clone());
        let waiting = WaitingReason { reason: texts::POST_START_HOOK_ERROR.to_owned(), message: error };
        // Its restart delay is that of any container that ends.
        self.remember(&hook.container, StartFailure { waiting, retry_after: Some(Duration::ZERO) });
    }

    /// The hooks of a pod that ends are cut off: they do not hold that up.
    pub(super) fn cut_hooks(&mut self, ctx: &mut Ctx<Self>) {
        for (_, hooking) in std::mem::take(&mut self.hooks) {
            ctx.cancel_effect(hooking.effect);
        }
        self.known.hooking.clear();
        self.to_be_hooked.clear();
    }

    /// What was observed ends the hooks of containers that have ended.
    pub(super) fn see_hooks(&mut self, ctx: &mut Ctx<Self>) {
        let Some(runtime) = self.observed.clone() else { return };
        let state = |id: &Arc<str>| runtime.containers.iter().find(|c| c.id == *id).map(|c| c.state);
        let fresh = self.awaited.is_none();
        let over = |id: &Arc<str>| match state(id) {
            Some(state) => state == ContainerState::Exited,
            // An older look does not know it yet.
            None => fresh,
        };
        self.known.hook_failed.retain(|_, id| !over(id));
        self.pre_stops.retain(|id, _| !over(id));
        let ended: Vec<String> = self
            .hooks
            .iter()
            .filter(|(_, hooking)| over(&hooking.hook.container_id))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ended {
            let Some(hooking) = self.hooks.remove(&name) else { continue };
            ctx.cancel_effect(hooking.effect);
            self.known.hooking.remove(&name);
            // Time passes without a container, too; nothing else a hook does succeeds without it.
            if !hooking.hook.is_sleep() && state(&hooking.hook.container_id).is_some() {
                let error = hooking.hook.failed("the container has ended", "");
                self.hook_failed(&hooking.hook, error);
                self.known.hook_failed.remove(&name);
            }
            self.unblocked(ctx);
        }
    }

    /// The preStop hooks of these instances. One that has begun is not begun again.
    pub(super) fn pre_stops_of(&mut self, ids: Vec<Arc<str>>, exec: &Executor) -> PreStops {
        let (Some(pod), Some(runtime)) = (self.pod.clone(), self.observed.clone()) else {
            return PreStops::new();
        };
        let address = runtime.sandboxes.iter().find_map(|sandbox| sandbox.ips.first()).map(|ip| &**ip);
        let node = self.deps.config.host_ips.first().map(String::as_str);
        let desired = self.desired.clone();
        let spec = desired.as_ref().map(|desired| &*desired.pod);
        for instance in runtime.containers.iter().filter(|container| ids.contains(&container.id)) {
            if self.pre_stops.contains_key(&instance.id) {
                continue;
            }
            let pod_ip = address.or(node).unwrap_or_default();
            if let Some(hook) = Hook::pre_stop(spec, &pod, instance, pod_ip) {
                self.pre_stops.insert(instance.id.clone(), PreStop::new(exec.clone(), hook));
            }
        }
        ids.into_iter().filter_map(|id| self.pre_stops.get(&id).cloned().map(|hook| (id, hook))).collect()
    }
}
