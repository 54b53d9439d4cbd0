//! Takes in the outcomes of steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Container;
use messages::facts::DesiredPod;
use messages::runtime::{ContainerState, RuntimePod};
use messages::volume_manager::VolumesNotReady;
use supervision::{Ctx, Effect, EffectId};
use tokio::time::Instant;

use super::PodWorker;
use crate::execute::{
    ImageAnswer, ImageWait, PullContext, StartFailure, StopOutcome, SyncOutcome, ask_image, image_failure,
    image_step,
};
use crate::hash::container_hash;
use crate::plan::{Failure, PodPlan};
use crate::pod_images::{ImageNeed, ImageVolumes, PodImage};
use crate::retry::{self, jittered, later};
use crate::spec::{ContainerKind, Listed, PodView};
use crate::step::Release;
use crate::texts;

/// An event is recorded for a pod that has waited this long for its volumes (row 10.1).
const VOLUMES_PATIENCE: Duration = Duration::from_secs(123);

/// An image that is waited for apart from the worker's task.
pub(super) struct Pull {
    pub effect: EffectId,
    /// The containers that wait for it, by name, with the hash of the spec that each waits with.
    pub waits: BTreeMap<String, (ContainerKind, u64)>,
}

impl PodWorker {
    fn ended(&mut self, operation: &str, ctx: &mut Ctx<Self>) {
        if let Some(task) = self.task.take() {
            let seconds = task.since.elapsed().as_secs_f64();
            self.deps.metrics.worker_seconds.with_label_values(&[operation]).observe(seconds);
        }
        self.unblocked(ctx);
    }

    fn after_error(&self) -> jiff::Timestamp {
        later(self.now(), jittered(retry::AFTER_ERROR, self.deps.clock.random_u64()))
    }

    pub(super) fn synced(&mut self, before: &RuntimePod, outcome: SyncOutcome, ctx: &mut Ctx<Self>) {
        let now = self.now();
        self.ended(if before.is_absent() { "create" } else { "sync" }, ctx);
        self.floors = outcome.floors;
        self.to_be_hooked.clear();
        let Some(desired) = self.desired.clone() else { return };
        let named = PodView::of(&desired.pod).by_name();
        for name in &outcome.started {
            self.past.started(name);
        }
        if outcome.reset {
            self.backoff.restarted_all(now);
        }
        for name in &outcome.created {
            if let Some((_, container)) = named.find(name) {
                self.backoff.started(before, name, container_hash(&container), now);
            }
            self.known.failures.remove(name);
            self.announced.remove(name);
        }
        for (name, failure) in outcome.failures {
            if let Some((_, container)) = named.find(&name) {
                self.remember(&container, failure);
            }
        }
        self.known.pod_retry_at = match &outcome.unmounted {
            Some(volumes) => Some(self.wait_for_volumes(volumes)),
            None => outcome.pod_error.is_some().then(|| self.after_error()),
        };
        if outcome.unmounted.is_none() {
            self.volumes_since = None;
        }
        self.known.prune_retry_at = outcome.prune_failed.then(|| self.after_error());
        self.retry_at = outcome.kill_error.is_some().then(|| self.after_error());
        self.problem = outcome.kill_error.or(outcome.pod_error);
        if let Some(problem) = &self.problem {
            tracing::warn!(problem, pod = %self.uid, "Sync failed");
        }
        self.images.extend(outcome.images);
        self.wait_for_images(&desired, outcome.image_waits, ctx);
        for hook in outcome.hooks {
            self.run_hook(hook, ctx);
        }
        self.resync_at = None;
        if std::mem::take(&mut self.objects_changed) {
            self.retry_objects();
        }
        self.touch(ctx);
        self.tell_report(ctx);
        self.reconcile(ctx);
    }

    /// The time of the next try for volumes that are not mounted. Records an event each time that the wait
    /// has lasted long.
    fn wait_for_volumes(&mut self, volumes: &VolumesNotReady) -> Timestamp {
        let since = *self.volumes_since.get_or_insert(self.sync_began);
        let mut left = VOLUMES_PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() {
            self.record(texts::unmounted_volumes(&volumes.unmounted), "");
            self.volumes_since = Some(Instant::now());
            left = VOLUMES_PATIENCE;
        }
        later(self.now(), left.min(Duration::from_millis(volumes.retry_after_ms)))
    }

    /// The pod's objects have changed: starts that have failed for want of them are tried at once.
    pub(super) fn retry_objects(&mut self) {
        let now = self.now();
        if self.volumes_since.is_some() {
            self.known.pod_retry_at = None;
        }
        for failure in self.known.failures.values_mut() {
            if failure.waiting.reason == texts::CREATE_CONTAINER_CONFIG_ERROR {
                failure.retry_at = failure.retry_at.min(now);
            }
        }
        // The next step may equal the last one, and has a chance to succeed now.
        self.last = None;
    }

    pub(super) fn remember(&mut self, container: &Container, failure: StartFailure) {
        let name = &container.name;
        let retry_at = match failure.retry_after {
            Some(after) => later(self.now(), after),
            None => self.after_error(),
        };
        let remembered = Failure { waiting: failure.waiting, retry_at, hash: container_hash(container) };
        self.known.failures.insert(name.clone(), remembered);
        // The replacement has failed to start: from now on the exit of the old instance counts.
        if self.known.replaced.contains_key(name) {
            Arc::make_mut(&mut self.known.replaced).remove(name);
        }
    }

    /// Adds the instances that this plan kills to be replaced to those of earlier plans that have not been
    /// replaced yet.
    pub(super) fn replaces(&mut self, plan: &PodPlan) {
        let replaced = plan.replaced();
        if !replaced.is_empty() {
            Arc::make_mut(&mut self.known.replaced).extend(replaced);
        }
    }

    /// A look after everything that was done: an instance is replaced as long as it is dead and the newest one.
    pub(super) fn see_replaced(&mut self, ctx: &mut Ctx<Self>) {
        let Some(runtime) = self.observed.clone().filter(|_| !self.known.replaced.is_empty()) else { return };
        let waits = |name: &str, id: &Arc<str>| {
            let newest = runtime.latest(name).filter(|newest| newest.id == *id);
            newest.is_some_and(|newest| newest.state == ContainerState::Exited)
        };
        let before = self.known.replaced.len();
        Arc::make_mut(&mut self.known.replaced).retain(|name, id| waits(name, id));
        if self.known.replaced.len() != before {
            self.tell_report(ctx);
        }
    }

    /// Notes which containers have run, from a look after everything that was done. Another look may still show what
    /// was removed so that it begins anew.
    pub(super) fn see_past(&mut self) {
        if self.settled
            && self.task.is_none()
            && self.awaited.is_none()
            && let Some(runtime) = &self.observed
        {
            self.past.see(runtime);
        }
    }

    /// Waits for images that take long, apart from the worker's task.
    fn wait_for_images(&mut self, desired: &DesiredPod, waits: Vec<ImageWait>, ctx: &mut Ctx<Self>) {
        if waits.is_empty() {
            return;
        }
        let named = PodView::of(&desired.pod).by_name();
        let (context, volumes) = (PullContext::of(&desired.pod), ImageVolumes::of(&desired.pod));
        for ImageWait { kind, container, image } in waits {
            let Some((_, container)) = named.find(&container) else { continue };
            // The pod may have changed during the sync.
            let need = match image {
                PodImage::Container(_) => Some(ImageNeed::of_container(kind, &container)),
                of_volume => {
                    volumes.mounted_by(&container).into_iter().find(|need| need.image == of_volume).cloned()
                }
            };
            if let Some(need) = need {
                self.wait_for_image(kind, &container, &need, &context, ctx);
            }
        }
    }

    /// Several containers that wait for an image of volumes wait for one answer.
    fn wait_for_image(
        &mut self,
        kind: ContainerKind,
        container: &Container,
        need: &ImageNeed,
        context: &PullContext,
        ctx: &mut Ctx<Self>,
    ) {
        let Some(exec) = self.executor() else { return };
        self.known.pulling.insert(container.name.clone());
        let waits = (container.name.clone(), (kind, container_hash(container)));
        if let Some(pull) = self.pulls.get_mut(&need.image) {
            pull.waits.extend([waits]);
            return;
        }
        let step = self.progress.begin(image_step(need));
        let question = ask_image(&exec, context, need);
        let work = async move {
            let _step = step;
            question.await
        };
        let image = need.image.clone();
        let effect = ctx.effect(
            Effect::lasting("EnsureImage"),
            Some(self.uid.clone()),
            work,
            move |worker, answer, ctx| {
                let waits = worker.pulls.remove(&image).map(|pull| pull.waits).unwrap_or_default();
                for (container, (kind, hash)) in waits {
                    worker.known.pulling.remove(&container);
                    worker.image_answered(kind, &container, hash, &image, &answer);
                }
                worker.unblocked(ctx);
                worker.tell_report(ctx);
                worker.reconcile(ctx);
            },
        );
        self.pulls.insert(need.image.clone(), Pull { effect, waits: [waits].into() });
        ctx.set_timer(super::Timer::Progress, super::report::BLOCKED_AFTER);
    }

    fn image_answered(
        &mut self,
        kind: ContainerKind,
        name: &str,
        hash: u64,
        image: &PodImage,
        answer: &ImageAnswer,
    ) {
        let Some(desired) = self.desired.clone() else { return };
        let current = PodView::of(&desired.pod).find(name).map(Listed::container);
        let Some(container) = current.filter(|container| container_hash(container) == hash) else { return };
        match answer {
            Ok(Ok(present)) => {
                self.images.insert(image.clone(), present.clone());
            }
            Ok(Err(error)) => {
                self.record(texts::failed(&error.reason), &kind.field_path(name));
                self.remember(&container, image_failure(error));
            }
            // The next sync asks again.
            Err(error) => {
                tracing::warn!(%error, pod = %self.uid, container = name, "ImageManager did not answer")
            }
        }
    }

    pub(super) fn stopped(&mut self, outcome: StopOutcome, ctx: &mut Ctx<Self>) {
        self.ended("kill", ctx);
        self.stopped_sandboxes.extend(outcome.sandboxes);
        self.failed_to_stop(outcome.error);
        self.touch(ctx);
        self.tell_report(ctx);
        self.reconcile(ctx);
    }

    fn failed_to_stop(&mut self, error: Option<String>) {
        if let Some(error) = &error {
            self.record(texts::failed_kill_pod(error), "");
            self.retry_at = Some(self.after_error());
        }
        self.problem = error;
    }

    pub(super) fn given_back(&mut self, what: Release, done: Result<(), String>, ctx: &mut Ctx<Self>) {
        self.ended("terminated", ctx);
        match done {
            // The pod may have been deleted while it was released without its containers and logs.
            Ok(()) if what.logs || !self.lifecycle.deleted() => {
                self.problem = None;
                self.lifecycle.release();
                // No step waits for this look, but other actors are to see soon that the pod is gone.
                self.touch(ctx);
            }
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(error, pod = %self.uid, "Pod could not be given back");
                self.problem = Some(error);
                self.retry_at = Some(self.after_error());
                self.touch(ctx);
            }
        }
        self.tell_report(ctx);
        self.reconcile(ctx);
    }

    /// Forgets the failures of running containers, whatever answer their start got, except of those that are
    /// about to be killed for a failed hook.
    pub(super) fn forget_failures_of_running(&mut self) {
        let Some(runtime): Option<Arc<RuntimePod>> = self.observed.clone() else { return };
        let failed = &self.known.hook_failed;
        self.known.failures.retain(|name, _| {
            let running = runtime.latest(name).filter(|instance| instance.state == ContainerState::Running);
            running.is_none_or(|instance| failed.get(name) == Some(&instance.id))
        });
    }
}
