//! Begins the worker's steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::ActorContext;
use bridge_cri::Rpc;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use messages::image_manager::PresentImage;
use messages::runtime::ContainerState;
use messages::status_manager::GetPodStatus;
use pod_rules::phases;
use supervision::{Ctx, Effect, EffectId};
use tokio::time::Instant;

use super::hooks::with_hook;
use super::report::BLOCKED_AFTER;
use super::{PodWorker, Timer};
use crate::execute::{Executor, Progress, SyncTask, release, stop_all};
use crate::lifecycle::Trigger;
use crate::plan::PodPlan;
use crate::pod_images::{ImageVolumes, PodImage};
use crate::retry::{self, jittered, later};
use crate::spec::PodView;
use crate::step::{Release, Step};
use crate::termination::{TerminationPlan, longest_grace_seconds};
use crate::texts;

/// Longest wait for StatusManager's answer.
const STATUS_DEADLINE: Duration = Duration::from_secs(5);

/// Pause before a step that changed nothing is repeated.
const IN_VAIN_PAUSE: Duration = Duration::from_secs(1);
/// How long a step may take beyond the grace periods in it. Each of its calls has a deadline of its own, and
/// large directories are removed at low priority.
const LONG: Duration = Duration::from_secs(3600);

/// The task under way: at most one at a time touches the pod.
pub(super) struct Task {
    pub effect: EffectId,
    pub since: Instant,
    kind: TaskKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    Settle,
    Sync,
    Stop,
    Release,
}

impl Task {
    pub fn is_sync(&self) -> bool {
        self.kind == TaskKind::Sync
    }

    pub fn is_settle(&self) -> bool {
        self.kind == TaskKind::Settle
    }

    pub fn is_stop(&self) -> bool {
        self.kind == TaskKind::Stop
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            TaskKind::Settle => "settle",
            TaskKind::Sync => "sync",
            TaskKind::Stop => "stop",
            TaskKind::Release => "release",
        }
    }
}

impl PodWorker {
    pub(super) fn begin(&mut self, step: Step, ctx: &mut Ctx<Self>) {
        let step = self.not_in_vain(step);
        match step {
            Step::Restore => self.restore(ctx),
            Step::Settle => self.settle(ctx),
            // The look was asked for when it became necessary.
            Step::Look if self.awaited.is_some() => {}
            Step::Look => self.touch(ctx),
            Step::Sync(plan) => self.sync(*plan, ctx),
            Step::Finish(_) => {
                self.end(&Trigger::Finished, ctx);
                self.reconcile(ctx);
            }
            Step::Terminate(plan) => self.terminate(plan, ctx),
            Step::Stopped => {
                self.lifecycle.stopped();
                self.last_look = self.look;
                self.tell_report(ctx);
                self.reconcile(ctx);
            }
            Step::Release(what) => self.release(what, ctx),
            Step::Rest(until) => self.wake_at(until, ctx),
            // A follower that refused the last report is told it first.
            Step::End if self.report_refused => {}
            Step::End => ctx.stop(),
        }
    }

    /// Puts off a step that was just carried out and is decided again, because it changed nothing.
    fn not_in_vain(&mut self, step: Step) -> Step {
        let works = match &step {
            Step::Sync(plan) => !plan.is_idle(),
            Step::Terminate(_) => true,
            Step::Settle | Step::Look | Step::Rest(_) => return step,
            _ => false,
        };
        if works && self.last.as_ref() == Some(&step) {
            tracing::warn!(pod = %self.uid, "The last step changed nothing");
            self.last = None;
            let again = later(self.now(), jittered(IN_VAIN_PAUSE, self.deps.clock.random_u64()));
            self.retry_at = Some(again);
            return Step::Rest(Some(again));
        }
        self.last = works.then(|| step.clone());
        step
    }

    pub(super) fn executor(&self) -> Option<Executor> {
        let pod = self.pod.clone()?;
        let (progress, sandbox_made) = (self.progress.clone(), self.sandbox_made.clone());
        let (pulls, asks) = (self.pull_time.clone(), self.image_asks.clone());
        let deps = self.deps.for_namespace(&pod.namespace);
        Some(Executor { deps, pod, progress, sandbox_made, pulls, asks })
    }

    fn started(&mut self, kind: TaskKind, effect: EffectId, ctx: &mut Ctx<Self>) {
        self.task = Some(Task { effect, since: Instant::now(), kind });
        ctx.set_timer(Timer::Progress, BLOCKED_AFTER);
    }

    fn wake_at(&mut self, moment: Option<Timestamp>, ctx: &mut Ctx<Self>) {
        match moment {
            Some(moment) => ctx.set_timer(Timer::Wake, retry::until(moment, self.now())),
            None => ctx.cancel_timer(&Timer::Wake),
        }
    }

    /// Asks StatusManager whether the pod ended before this worker began: such a pod must not run again.
    fn restore(&mut self, ctx: &mut Ctx<Self>) {
        if self.asking {
            return;
        }
        self.asking = true;
        let question = GetPodStatus { uid: self.uid.clone(), made_anew: self.made_anew };
        let question = self.deps.status.ask(question, STATUS_DEADLINE);
        ctx.effect("GetPodStatus", Some(self.uid.clone()), question, |worker, answer, ctx| {
            worker.asking = false;
            match answer {
                Ok(status) => {
                    worker.restored = true;
                    let start = status.as_ref().and_then(|status| status.start_time.as_ref());
                    // What ran before the pod was made anew is no part of its life.
                    if worker.made_anew.is_none() {
                        worker.past.add(status.as_deref());
                    }
                    worker.active_since(start.map(|start| start.0), ctx);
                    if status.as_deref().is_some_and(phases::has_ended) {
                        worker.end(&Trigger::Finished, ctx);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, pod = %worker.uid, "StatusManager did not answer");
                    worker.retry_at = Some(later(worker.now(), retry::AFTER_LOST_ANSWER));
                }
            }
            worker.reconcile(ctx);
        });
    }

    fn settle(&mut self, ctx: &mut Ctx<Self>) {
        let (runtime, uid) = (self.deps.runtime.clone(), self.uid.clone());
        self.progress = Progress::default();
        let hurried = self.hurried;
        let calls = runtime.in_flight(uid.as_str()).into_iter();
        let waited_for = calls.filter(|call| !hurried || call.rpc != Rpc::StopContainer);
        let in_flight = waited_for.max_by_key(|call| call.age);
        let step = self.progress.begin(in_flight.map_or_else(String::new, |call| format!("{:?}", call.rpc)));
        let work = async move {
            let _step = step;
            match hurried {
                true => runtime.settled_but_for_stops(uid.as_str()).await,
                false => runtime.settled(uid.as_str()).await,
            }
        };
        let effect =
            ctx.effect(Effect::lasting("settle"), Some(self.uid.clone()), work, |worker, (), ctx| {
                worker.task = None;
                worker.settled = true;
                worker.unblocked(ctx);
                worker.touch(ctx);
                worker.reconcile(ctx);
            });
        self.started(TaskKind::Settle, effect, ctx);
    }

    fn sync(&mut self, plan: PodPlan, ctx: &mut Ctx<Self>) {
        self.say_back_off(&plan);
        if plan.needs_network {
            self.say_network_not_ready();
        }
        if *self.waiting != plan.waiting {
            self.waiting = Arc::new(plan.waiting.clone());
        }
        self.count_start();
        if plan.is_idle() {
            self.rest(&plan, ctx);
            self.tell_report(ctx);
            return;
        }
        let (Some(exec), Some(desired), Some(runtime)) =
            (self.executor(), self.desired.clone(), self.observed.clone())
        else {
            return;
        };
        let images = self.images_for(&desired.pod, &plan);
        self.starting |= plan.create_sandbox.is_some();
        self.to_be_hooked = with_hook(&desired.pod, &plan);
        self.replaces(&plan);
        self.tell_report(ctx);
        let killed = plan.kill.iter().map(|kill| kill.id.clone());
        let live = runtime.live().map(|container| container.id.clone()).filter(|_| plan.kill_pod);
        let pre_stops = self.pre_stops_of(killed.chain(live).collect(), &exec, ctx);
        self.sync_began = Instant::now();
        self.objects_changed = false;
        let anew = plan.reset.iter().map(|reset| reset.name.clone());
        let anew: Vec<_> = anew.chain(plan.purge.iter().map(|gone| gone.name.to_string())).collect();
        let (runtime, floors) = (runtime.clone(), self.floors.clone());
        // Kills may come one after another, and the kill of the whole pod after them.
        let stops = u32::try_from(plan.kill.len()).unwrap_or(u32::MAX).saturating_add(1);
        let grace = Duration::from_secs(longest_grace_seconds(&desired.pod)).saturating_mul(stops);
        let task = SyncTask { exec, desired, runtime: runtime.clone(), plan, images, floors, pre_stops };
        let effect = ctx.effect(
            Effect::within("sync", grace.saturating_add(LONG)),
            Some(self.uid.clone()),
            task.run(),
            move |worker, outcome, ctx| {
                worker.past.begin_anew(&anew);
                worker.synced(&runtime, outcome, ctx);
            },
        );
        self.started(TaskKind::Sync, effect, ctx);
    }

    /// Takes the images that the containers to start need, those of their volumes among them, out of what was answered.
    fn images_for(&mut self, pod: &Pod, plan: &PodPlan) -> BTreeMap<PodImage, Arc<PresentImage>> {
        if self.images.is_empty() {
            return BTreeMap::new();
        }
        let (named, volumes) = (PodView::of(pod).by_name(), ImageVolumes::of(pod));
        let mut needed = BTreeSet::new();
        for start in &plan.start {
            needed.insert(PodImage::Container(Arc::from(start.name.as_str())));
            let container = named.find(&start.name).map(|(_, container)| container);
            let of_volumes = container.iter().flat_map(|container| volumes.mounted_by(container));
            needed.extend(of_volumes.map(|need| need.image.clone()));
        }
        needed.iter().filter_map(|image| self.images.remove_entry(image)).collect()
    }

    /// There is no step: waits for a message, or until the next moment at which there may be one.
    fn rest(&mut self, plan: &PodPlan, ctx: &mut Ctx<Self>) {
        let now = self.now();
        if plan.look_after.is_some_and(|moment| moment <= now) {
            self.touch(ctx);
        }
        let frequency = self.deps.config.sync_frequency;
        let resync = match self.resync_at.filter(|at| *at > now) {
            Some(at) => at,
            None => later(now, jittered(frequency, self.deps.clock.random_u64())),
        };
        self.resync_at = Some(resync);
        let network = plan
            .needs_network
            .then(|| later(now, jittered(retry::NETWORK_NOT_READY, self.deps.clock.random_u64())));
        let look = plan.look_after.filter(|moment| *moment > now);
        let moment = [Some(resync), plan.look_again, look, network].into_iter().flatten().min();
        self.wake_at(moment, ctx);
    }

    /// Records one event for each restart delay of a container, not one for each sync.
    fn say_back_off(&mut self, plan: &PodPlan) {
        let Some(pod) = self.pod.clone() else { return };
        for wait in &plan.backing_off {
            if self.announced.insert(wait.name.clone(), wait.until) != Some(wait.until) {
                self.record(texts::back_off(&wait.name, &pod), &wait.kind.field_path(&wait.name));
            }
        }
    }

    /// Observes the metrics of a start: the first sync, and the moment at which all regular containers have
    /// run.
    fn count_start(&mut self) {
        let (Some(desired), Some(runtime)) = (&self.desired, &self.observed) else { return };
        if !self.synced {
            self.synced = true;
            self.deps.metrics.worker_start_seconds.observe(self.seen.elapsed().as_secs_f64());
        }
        let runs = |name: &str| {
            runtime
                .latest(name)
                .is_some_and(|c| matches!(c.state, ContainerState::Running | ContainerState::Exited))
        };
        if self.starting && PodView::of(&desired.pod).regular().iter().all(|container| runs(&container.name))
        {
            self.starting = false;
            self.deps.metrics.pod_start_seconds.observe(self.seen.elapsed().as_secs_f64());
        }
    }

    fn terminate(&mut self, plan: TerminationPlan, ctx: &mut Ctx<Self>) {
        let Some(exec) = self.executor() else { return };
        let killed = plan.kills.iter().map(|kill| kill.id.clone());
        let hooks = self.pre_stops_of(killed.collect(), &exec, ctx);
        let grace = plan.kills.iter().map(|kill| u64::try_from(kill.grace_seconds).unwrap_or(0)).max();
        let within = Duration::from_secs(grace.unwrap_or(0)).saturating_add(LONG);
        let work = stop_all(exec, plan, hooks);
        let effect = ctx.effect(Effect::within("stop", within), Some(self.uid.clone()), work, Self::stopped);
        self.started(TaskKind::Stop, effect, ctx);
    }

    fn release(&mut self, what: Release, ctx: &mut Ctx<Self>) {
        let (Some(exec), Some(held)) = (self.executor(), self.observed.clone()) else { return };
        let work = release(exec, held, what, self.comes_back);
        let effect = ctx.effect(
            Effect::within("release", LONG),
            Some(self.uid.clone()),
            work,
            move |worker, done, ctx| {
                worker.given_back(what, done, ctx);
            },
        );
        self.started(TaskKind::Release, effect, ctx);
    }
}
