//! Lifecycle hooks of the worker's containers (row 5.19). The worker waits for a postStart hook apart from
//! its task, as it does for an image: the hook holds up the containers after its own, and no other step.
//!
//! A postStart hook runs at most once for an instance, and it is not recorded that it runs. So a worker or kubelet
//! that restarts during a hook finds a running container and takes it as started, whatever becomes of the hook.
//! Upstream does the same after a restart.
//!
//! The stop of a pod waits for the postStart hooks that are under way, so that no preStop hook runs beside one;
//! upstream's does, too. Upstream waits for ever, this worker for the grace period, of which the wait is a part.
//!
//! A preStop hook is an effect of its own beside the stop that begins it: it goes on when the stop waits for it no
//! longer, and its failure is told when it fails. It ends with its container, or with the worker: the bridge gives up the
//! call of a worker that crashes, and the runtime ends the command. So the next incarnation runs the hook again, as upstream
//! does with each try to stop a container and after a restart: Kubernetes promises that a hook runs at least once. Waiting
//! for the rest of the grace period instead would wait for nothing, and stop a container that has not been prepared for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::runtime::ContainerState;
use supervision::{Ctx, Effect, EffectId};
use tokio::time::Instant;

use super::{PodWorker, Timer};
use crate::execute::{Executor, PreStop, PreStops, StartFailure, run_hook};
use crate::hooks::Hook;
use crate::plan::PodPlan;
use crate::retry::later;
use crate::spec::PodView;
use crate::texts;

/// A postStart hook under way.
pub(super) struct Hooking {
    effect: EffectId,
    hook: Hook,
}

/// The wait of a pod's stop for postStart hooks.
pub(super) struct HookWait {
    since: Instant,
    /// The end of the grace period, at which the hooks are cut off.
    pub until: Timestamp,
}

/// The names of the containers that the plan starts and that have a postStart hook.
pub(super) fn with_hook(pod: &Pod, plan: &PodPlan) -> BTreeSet<String> {
    let named = PodView::of(pod).by_name();
    let hooked = plan.start.iter().filter(|start| {
        let container = named.find(&start.name);
        let lifecycle = container.and_then(|(_, container)| container.lifecycle.clone());
        lifecycle.is_some_and(|lifecycle| lifecycle.post_start.is_some())
    });
    hooked.map(|start| start.name.clone()).collect()
}

impl PodWorker {
    /// The names of the containers that count as waiting until their postStart hook has ended.
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

    /// Notes that a postStart hook has failed: the container is killed, and its restart policy decides
    /// whether it is restarted.
    fn hook_failed(&mut self, hook: &Hook, error: String) {
        tracing::warn!(error, pod = %self.uid, container = hook.container, "PostStart hook failed");
        self.record(texts::failed_post_start_hook(), &hook.kind.field_path(&hook.container));
        let labels = [hook.kind.metric_label(), texts::POST_START_HOOK_ERROR];
        self.deps.metrics.started_containers_errors.with_label_values(&labels).inc();
        self.known.hook_failed.insert(hook.container.clone(), hook.container_id.clone());
        let Some(desired) = self.desired.clone() else { return };
        if let Some(listed) = PodView::of(&desired.pod).find(&hook.container) {
            let waiting = texts::waiting(texts::POST_START_HOOK_ERROR, error);
            // Its restart delay is that of any container that exits.
            self.remember(&listed.container(), StartFailure { waiting, retry_after: Some(Duration::ZERO) });
        }
    }

    /// The pod begins to end, or has less time to: from now on the grace period counts, of which the wait for
    /// postStart hooks is a part.
    pub(super) fn wait_for_hooks(&mut self) {
        self.to_be_hooked.clear();
        self.grace_used = 0;
        if self.hooks.is_empty() {
            return;
        }
        let grace = u64::try_from(self.lifecycle.grace_seconds().unwrap_or(0)).unwrap_or(0);
        let over = later(self.now(), Duration::from_secs(grace));
        let until = self.hook_wait.take().map_or(over, |earlier| earlier.until.min(over));
        self.hook_wait = Some(HookWait { since: Instant::now(), until });
    }

    /// Ends that wait when no hook is left, or when the grace period is over: then the hooks are cut off.
    pub(super) fn see_hook_wait(&mut self, ctx: &mut Ctx<Self>) {
        let Some(wait) = &self.hook_wait else { return };
        let is_over = wait.until <= self.now();
        if !is_over && !self.hooks.is_empty() {
            return;
        }
        // Whole seconds are subtracted, as for a preStop hook.
        self.grace_used = i64::try_from(wait.since.elapsed().as_secs()).unwrap_or(i64::MAX);
        self.hook_wait = None;
        for (name, hooking) in std::mem::take(&mut self.hooks) {
            tracing::warn!(pod = %self.uid, container = name, "PostStart hook outlasts the grace period");
            ctx.cancel_effect(hooking.effect);
        }
        self.known.hooking.clear();
        self.unblocked(ctx);
        self.tell_report(ctx);
    }

    /// Ends the postStart hooks of containers that have exited, by the newest observation.
    pub(super) fn see_hooks(&mut self, ctx: &mut Ctx<Self>) {
        let Some(runtime) = self.observed.clone() else { return };
        let states: BTreeMap<&str, ContainerState> =
            runtime.containers.iter().map(|container| (&*container.id, container.state)).collect();
        let state = |id: &Arc<str>| states.get(&**id).copied();
        let fresh = self.awaited.is_none();
        let over = |id: &Arc<str>| match state(id) {
            Some(state) => state == ContainerState::Exited,
            // A look from before the start does not have the container yet.
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
            // A sleep succeeds without its container; any other hook has failed.
            if !hooking.hook.is_sleep() && state(&hooking.hook.container_id).is_some() {
                let error = hooking.hook.failed("the container has ended", "");
                self.hook_failed(&hooking.hook, error);
                self.known.hook_failed.remove(&name);
            }
            self.unblocked(ctx);
        }
    }

    /// The preStop hooks of these instances. A hook that has begun already is given again instead of a new
    /// one.
    pub(super) fn pre_stops_of(
        &mut self,
        ids: Vec<Arc<str>>,
        exec: &Executor,
        ctx: &mut Ctx<Self>,
    ) -> PreStops {
        let (Some(pod), Some(runtime)) = (self.pod.clone(), self.observed.clone()) else {
            return PreStops::new();
        };
        let address = runtime.sandboxes.iter().find_map(|sandbox| sandbox.ips.first()).map(|ip| &**ip);
        let node = self.deps.config.host_ips.first().map(String::as_str);
        let desired = self.desired.clone();
        let spec = desired.as_ref().map(|desired| PodView::of(&desired.pod).by_name());
        let ids: BTreeSet<Arc<str>> = ids.into_iter().collect();
        for instance in runtime.containers.iter().filter(|container| ids.contains(&container.id)) {
            if self.pre_stops.contains_key(&instance.id) {
                continue;
            }
            let pod_ip = address.or(node).unwrap_or_default();
            if let Some(hook) = Hook::pre_stop(spec.as_ref(), &pod, instance, pod_ip) {
                let hook = PreStop::new(exec.clone(), hook);
                let runs = hook.carry_on();
                ctx.effect(Effect::lasting("PreStop"), Some(self.uid.clone()), runs, |_, (), _| {});
                self.pre_stops.insert(instance.id.clone(), hook);
            }
        }
        ids.into_iter().filter_map(|id| self.pre_stops.get(&id).cloned().map(|hook| (id, hook))).collect()
    }
}
