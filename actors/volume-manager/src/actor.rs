//! The actor: one operation per pod at a time, however many askers wait for it; operations of different pods
//! run side by side.

mod handlers;
mod measuring;
mod sweeping;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_node::mounts::{MountError, SwapFacts};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::{DesiredPod, OtherVolumesObserved};
use messages::pleg::GetHeldPods;
use messages::pod_manager::ResendDesired;
use messages::volume_manager::{MountedVolumes, VolumeError, VolumesNotReady};
use messages::{PodRef, PodUid};
use pod_rules::reasons::{FAILED, FAILED_MOUNT};
use pod_set::PodSet;
use supervision::{Address, AskPort, Ctx, Effect, Reply, Subsystem, blame};
use tokio::time::Instant;

use crate::backoff::MountBackoff;
use crate::execute::{self, Backends, DirectoryEnd, MountOutcome, Timed, UnmountOutcome};
use crate::measurements::Measurements;
use crate::metrics::{Operation, VolumeMetrics};
use crate::operations::{Asked, Kind, Operations};
use crate::orphans::{Orphans, SweepPolicy};
use crate::plan;

/// After this time an asker is told that its volumes are not there yet (row 10.1).
const SLOW: Duration = Duration::from_secs(123);

type MountAnswer = Result<Arc<MountedVolumes>, VolumesNotReady>;
type UnmountAnswer = Result<(), VolumeError>;

/// How often the volumes of objects are refreshed without a change that was reported: tokens expire (rows
/// 10.8 and 10.9).
const REFRESH: Duration = Duration::from_secs(60);

/// The message of the event on a machine that swaps and cannot keep a tmpfs out of the swap; upstream's text.
const SWAPPED_OUT: &str = "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.";

/// After this time a refused asker may ask again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The effects, neighbours and settings of VolumeManager.
#[derive(Clone)]
pub struct VolumeManagerDeps {
    /// How often orphaned directories are looked for, and how long each is kept.
    pub sweep: SweepPolicy,
    /// For how long figures of volumes are good (`volumeStatsAggPeriod`); `None` if volumes are not measured.
    pub figures_for: Option<Duration>,
    /// Wall clock.
    pub clock: Arc<dyn Clock>,
    /// The effects on mounts and directories.
    pub backends: Backends,
    /// The recorder of events.
    pub events: Address<RecordEvent>,
    /// Pleg, which is asked which pods the runtime holds before a directory is removed.
    pub held_pods: AskPort<VolumeManager, GetHeldPods>,
    /// The actors that are told of volumes of other kubelets' plugins.
    pub others_watchers: Vec<Address<OtherVolumesObserved>>,
    /// PodManager, which is asked to send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// Metrics, which outlive the incarnation.
    pub metrics: VolumeMetrics,
}

/// A timer of the actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The pod's operation has taken long: its askers are told.
    Slow(PodUid),
    /// Look for orphaned directories.
    Sweep,
    /// Refresh the volumes of objects.
    Refresh,
    /// The actors that asked for figures have waited long enough.
    Stats,
}

enum MountAsker {
    Mount(Reply<MountAnswer>),
    Unmount(Reply<UnmountAnswer>),
    /// No worker waits: an orphan is cleaned away, or volumes are refreshed.
    Sweep,
}

impl MountAsker {
    fn refuse(self, error: VolumeError) {
        match self {
            Self::Mount(reply) => {
                let retry_after_ms = millis(REFUSED_PAUSE);
                reply.send(Err(VolumesNotReady { error, unmounted: Vec::new(), retry_after_ms }));
            }
            Self::Unmount(reply) => reply.send(Err(error)),
            Self::Sweep => {}
        }
    }
}

/// The ready volumes of a pod, and their plugins.
struct Mounted {
    volumes: Arc<MountedVolumes>,
    plugins: Vec<String>,
}

/// Mounts, refreshes and unmounts the volumes of pods, and removes orphaned pod directories.
pub struct VolumeManager {
    deps: VolumeManagerDeps,
    origin: Instant,
    operations: BTreeMap<PodUid, Operations<MountAsker>>,
    /// Pods of which a worker has asked for mounts that are not undone yet.
    asked_for: BTreeMap<PodUid, Arc<DesiredPod>>,
    mounted: BTreeMap<PodUid, Mounted>,
    /// How many of these volumes each plugin has.
    by_plugin: BTreeMap<String, i64>,
    /// Volumes that could not be mounted.
    backoff: MountBackoff,
    desired: PodSet<Arc<DesiredPod>>,
    orphans: Orphans,
    /// Orphans that cannot be removed; each is reported once.
    stuck: BTreeSet<PodUid>,
    /// Pods that have ended and are still desired: the rest of their directories is removed when they are
    /// desired no longer.
    ended: BTreeSet<PodUid>,
    /// Pods whose objects have changed while another operation on their volumes was under way.
    changed: BTreeSet<PodUid>,
    measurements: Measurements<Reply<measuring::StatsAnswer>>,
}

impl VolumeManager {
    /// A fresh incarnation.
    pub fn new(deps: VolumeManagerDeps) -> Self {
        let orphans = Orphans::new(deps.sweep);
        let measurements = Measurements::new(deps.figures_for);
        Self {
            deps,
            origin: Instant::now(),
            operations: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            mounted: BTreeMap::new(),
            by_plugin: BTreeMap::new(),
            backoff: MountBackoff::default(),
            desired: PodSet::default(),
            orphans,
            stuck: BTreeSet::new(),
            changed: BTreeSet::new(),
            ended: BTreeSet::new(),
            measurements,
        }
    }

    /// Which part of a pod's directory stays when its volumes are undone: the endings, while the pod is still
    /// listed.
    fn leave(&mut self, uid: &PodUid) -> DirectoryEnd {
        let stays =
            self.desired.get(uid).is_some_and(|desired| desired.pod.metadata.deletion_timestamp.is_none());
        if stays {
            self.ended.insert(uid.clone());
            DirectoryEnd::Endings
        } else {
            self.ended.remove(uid);
            DirectoryEnd::Nothing
        }
    }

    /// Removes what was left of a pod that has ended, if it is listed no longer.
    fn forget_ended(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if !self.desired.contains(uid) && self.ended.remove(uid) {
            self.ask(uid.clone(), Kind::Unmount, MountAsker::Sweep, ctx);
        }
    }

    fn ask(&mut self, uid: PodUid, kind: Kind, asker: MountAsker, ctx: &mut Ctx<Self>) {
        match self.operations.entry(uid.clone()).or_default().ask(kind, asker) {
            Asked::Begin => self.begin(uid, kind, ctx),
            Asked::Waits => {}
            Asked::Full(asker) => asker.refuse(VolumeError {
                volume: String::new(),
                message: "too many operations wait for this pod's volumes".to_owned(),
            }),
        }
    }

    fn begin(&mut self, uid: PodUid, kind: Kind, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Slow(uid.clone()), SLOW);
        let backends = self.deps.backends.clone();
        let pod = Some(uid.clone());
        match (kind, self.asked_for.get(&uid)) {
            (Kind::Mount, Some(desired)) => {
                let held = self.backoff.held(&uid, self.origin.elapsed());
                let mount = execute::mount(backends, uid.clone(), desired.pod.clone(), held);
                // A pod has as many volumes as its author likes: each has its own deadline, and the pod alone waits.
                ctx.effect(Effect::lasting("mount volumes"), pod, mount, move |actor, outcome, ctx| {
                    actor.mounted(uid, outcome, ctx)
                });
            }
            (Kind::Mount, None) => self.mounted(uid, MountOutcome::default(), ctx),
            (Kind::Refresh, _) => self.begin_refresh(uid, ctx),
            (Kind::Unmount, _) => {
                self.backoff.forget(&uid);
                let leave = self.leave(&uid);
                let unmount = execute::unmount(backends, uid.clone(), leave);
                // What a pod has filled is removed at low priority, after what other pods have filled.
                ctx.effect(Effect::lasting("unmount volumes"), pod, unmount, move |actor, outcome, ctx| {
                    actor.unmounted(uid, &outcome, ctx);
                });
            }
        }
    }

    /// The pod's operation is over: begins the next one, and returns the askers of the one that is over.
    fn ended(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) -> Vec<MountAsker> {
        ctx.cancel_timer(&Timer::Slow(uid.clone()));
        let Some(operations) = self.operations.get_mut(uid) else { return Vec::new() };
        let (askers, next) = operations.ended();
        match next {
            Some(kind) => self.begin(uid.clone(), kind, ctx),
            None => {
                self.operations.remove(uid);
                if self.changed.remove(uid) {
                    self.refresh(uid, ctx);
                }
            }
        }
        askers
    }

    /// Refreshes the pod's volumes of objects, now or when the operation under way is over. No asker waits
    /// for it.
    fn refresh(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if !self.desired.get(uid).is_some_and(|desired| plan::shows_objects(&desired.pod)) {
            return;
        }
        if self.operations.contains_key(uid) {
            self.changed.insert(uid.clone());
        } else {
            self.ask(uid.clone(), Kind::Refresh, MountAsker::Sweep, ctx);
        }
    }

    fn begin_refresh(&mut self, uid: PodUid, ctx: &mut Ctx<Self>) {
        let Some(desired) = self.desired.get(&uid).cloned() else { return drop(self.ended(&uid, ctx)) };
        let refresh = execute::refresh(self.deps.backends.clone(), uid.clone(), desired.pod.clone());
        let refreshing = Effect::lasting("refresh volumes");
        ctx.effect(refreshing, Some(uid.clone()), refresh, move |actor, errors, ctx| {
            for error in &errors {
                actor.record(&desired.pod_ref, mount_event(error));
            }
            drop(actor.ended(&uid, ctx));
        });
    }

    fn refresh_all(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Refresh, REFRESH);
        let uids: Vec<PodUid> = self.desired.uids().cloned().collect();
        for uid in &uids {
            ctx.for_pod(uid, |ctx| self.refresh(uid, ctx));
        }
    }

    fn mounted(&mut self, uid: PodUid, outcome: MountOutcome, ctx: &mut Ctx<Self>) {
        self.count(Operation::Mount, &outcome.timed);
        if let Some(desired) = self.asked_for.get(&uid) {
            for error in outcome.errors.iter().chain(&outcome.stale) {
                self.record(&desired.pod_ref, mount_event(error));
            }
        }
        let volumes = Arc::new(MountedVolumes { host_paths: outcome.mounted });
        self.set_mounted(&uid, Some(Mounted { volumes: volumes.clone(), plugins: outcome.plugins }));
        self.gauge();
        let now = self.origin.elapsed();
        self.backoff.tried(&uid, &outcome.held, &outcome.errors, now);
        if self.changed.contains(&uid) {
            // The objects changed, perhaps after this try, so the missing ones may be there now: all volumes
            // may be tried at once.
            self.backoff.forget(&uid);
        }
        let wrong = || outcome.errors.iter().chain(outcome.held.values());
        let answer: MountAnswer = match wrong().next() {
            None => Ok(volumes),
            Some(error) => {
                let names: BTreeSet<&String> = wrong().map(|error| &error.volume).collect();
                let unmounted = names.into_iter().filter(|name| !name.is_empty()).cloned().collect();
                let retry_after_ms = millis(self.backoff.next(&uid, now));
                Err(VolumesNotReady { error: error.clone(), unmounted, retry_after_ms })
            }
        };
        for asker in self.ended(&uid, ctx) {
            if let MountAsker::Mount(reply) = asker {
                reply.send(answer.clone());
            }
        }
    }

    fn unmounted(&mut self, uid: PodUid, outcome: &UnmountOutcome, ctx: &mut Ctx<Self>) {
        let done = &outcome.done;
        self.count(Operation::Unmount, &outcome.timed);
        if let (Err(error), Some(desired)) =
            (done, self.asked_for.get(&uid).or_else(|| self.desired.get(&uid)))
            && outcome.of_others
        {
            self.record(&desired.pod_ref, ("FailedUnMount", error.message.clone()));
        }
        let again = self.operations.get(&uid).is_some_and(|operations| operations.queued() > 1);
        if done.is_ok() {
            self.set_mounted(&uid, None);
            self.stuck.remove(&uid);
            if !again {
                self.asked_for.remove(&uid);
            }
            self.gauge();
        }
        for asker in self.ended(&uid, ctx) {
            match asker {
                MountAsker::Unmount(reply) => reply.send(done.clone()),
                MountAsker::Sweep => self.swept(&uid, done),
                MountAsker::Mount(_) => {}
            }
        }
    }

    fn count(&self, operation: Operation, timed: &[Timed]) {
        for Timed { plugin, ok, took } in timed {
            self.deps.metrics.operated(plugin, operation, *ok, *took);
        }
    }

    fn gauge(&self) {
        let of = |state| self.by_plugin.iter().map(move |(plugin, count)| ((state, plugin.clone()), *count));
        let counts = of("actual_state_of_world").chain(of("desired_state_of_world"));
        self.deps.metrics.volumes(&counts.collect());
    }

    /// What is mounted for the pod from now on.
    fn set_mounted(&mut self, uid: &PodUid, mounted: Option<Mounted>) {
        for plugin in mounted.iter().flat_map(|mounted| &mounted.plugins) {
            *self.by_plugin.entry(plugin.clone()).or_default() += 1;
        }
        let before = match mounted {
            Some(mounted) => self.mounted.insert(uid.clone(), mounted),
            None => self.mounted.remove(uid),
        };
        for plugin in before.iter().flat_map(|before| &before.plugins) {
            if let Some(count) = self.by_plugin.get_mut(plugin) {
                *count -= 1;
            }
        }
        self.by_plugin.retain(|_, count| *count > 0);
    }

    fn record(&self, pod: &PodRef, (reason, message): (&'static str, String)) {
        let object = EventObject::Pod { pod: pod.clone(), field_path: "".into() };
        self.tell_event(object, reason, message);
    }

    fn tell_event(&self, object: EventObject, reason: &'static str, message: String) {
        // A full recorder counts what it drops; no volume waits for an event.
        self.deps.events.tell_or_count(RecordEvent {
            object,
            event_type: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
        });
    }

    /// Records an event if memory-backed volumes may be swapped out. Called in the first incarnation only, as
    /// upstream does.
    fn see_swap(&self, swap: Result<SwapFacts, MountError>) {
        match swap {
            Ok(SwapFacts { on: true, noswap: false }) => {
                let message = SWAPPED_OUT.to_owned();
                self.tell_event(EventObject::Node, "PossibleMemoryBackedVolumesOnDisk", message);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "Cannot tell whether volumes in memory are swapped out"),
        }
    }

    /// An operation takes longer than its askers should wait for without an answer. The operation goes on;
    /// its askers are told so, and when they ask again they join it.
    fn slow(&mut self, uid: PodUid, ctx: &mut Ctx<Self>) {
        let Some(operations) = self.operations.get_mut(&uid) else { return };
        let Some(kind) = operations.under_way() else { return };
        let askers = operations.take_askers();
        ctx.set_timer(Timer::Slow(uid.clone()), SLOW);
        let (message, unmounted) = match (kind, self.asked_for.get(&uid)) {
            // The worker records the event "Unable to attach or mount volumes: …".
            (Kind::Mount, Some(desired)) => {
                ("mounting takes longer than two minutes and goes on", plan::used_names(&desired.pod))
            }
            _ => ("unmounting takes longer than two minutes and goes on", Vec::new()),
        };
        for asker in askers {
            let error = VolumeError { volume: String::new(), message: message.to_owned() };
            match asker {
                MountAsker::Mount(reply) => {
                    let (unmounted, retry_after_ms) = (unmounted.clone(), millis(REFUSED_PAUSE));
                    reply.send(Err(VolumesNotReady { error, unmounted, retry_after_ms }));
                }
                other => other.refuse(error),
            }
        }
    }
}

/// The reason and message of the event for a volume that could not be mounted.
fn mount_event(error: &VolumeError) -> (&'static str, String) {
    if error.volume.is_empty() {
        return (FAILED, error.message.clone());
    }
    (FAILED_MOUNT, format!("MountVolume.SetUp failed for volume {:?} : {}", error.volume, error.message))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl actix::Actor for VolumeManager {
    type Context = Ctx<Self>;
}

impl Subsystem for VolumeManager {
    const NAME: &'static str = messages::volume_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        let reconstruct = execute::reconstruct(self.deps.backends.clone());
        ctx.effect("reconstruct volumes", None, reconstruct, |actor, found, _| match found {
            Ok(found) => {
                actor
                    .deps
                    .metrics
                    .reconstructed(found.values().map(|volumes| volumes.host_paths.len()).sum());
                for (uid, found) in found {
                    let _named = blame::name(&uid.clone());
                    let volumes = Arc::new(MountedVolumes { host_paths: found.host_paths });
                    let found = Mounted { volumes, plugins: found.plugins };
                    // A pod whose worker was faster has said more already.
                    if !actor.mounted.contains_key(&uid) {
                        actor.set_mounted(&uid, Some(found));
                    }
                }
                actor.gauge();
            }
            Err(error) => {
                actor.deps.metrics.not_reconstructed();
                tracing::warn!(
                    error = error.message,
                    "what earlier runs left mounted is found as pods ask for it"
                );
            }
        });
        if ctx.incarnation() == 1 {
            let swap = self.deps.backends.mounts.swap();
            ctx.effect("look at swap", None, swap, |actor, swap, _| actor.see_swap(swap));
        }
        self.look_for_others(ctx);
        ctx.set_timer(Timer::Sweep, self.deps.sweep.every);
        ctx.set_timer(Timer::Refresh, REFRESH);
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Slow(uid) => self.slow(uid, ctx),
            Timer::Sweep => {
                self.look_for_others(ctx);
                self.sweep(ctx);
            }
            Timer::Refresh => self.refresh_all(ctx),
            Timer::Stats => self.stats_are_late(),
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Slow(uid) => Some(uid.clone()),
            Timer::Sweep | Timer::Refresh | Timer::Stats => None,
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.forget_ended(pod, ctx);
        self.refresh(pod, ctx);
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.mounted.len(),
            "operations": self.operations.len(),
            "stuckOrphans": self.stuck.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_upstreams() {
        let error = |volume: &str| VolumeError {
            volume: volume.to_owned(),
            message: "hostPath type check failed: /x is not a directory".to_owned(),
        };
        assert_eq!(
            mount_event(&error("data")),
            (
                "FailedMount",
                "MountVolume.SetUp failed for volume \"data\" : hostPath type check failed: /x is not a directory"
                    .to_owned()
            )
        );
        assert_eq!(mount_event(&error("")).0, "Failed");
    }
}
