//! The actor: one operation per pod at a time, however many askers wait for it; operations of different pods
//! run side by side.

mod devices;
mod drivers;
mod handlers;
mod measuring;
mod refreshing;
mod sweeping;
mod telling;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use messages::PodUid;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::facts::{CsiDriversObserved, DesiredPod, OtherVolumesObserved};
use messages::node_status::ResendNode;
use messages::object_cache::PodObjectsChanged;
use messages::pleg::GetHeldPods;
use messages::pod_manager::ResendDesired;
use messages::pod_worker::EvictPod;
use messages::volume_manager::{MountedVolumes, VolumeError, VolumesNotReady};
use pod_rules::reasons::FAILED_MOUNT;
use pod_set::{Level, PodSet};
use prometheus::IntCounterVec;
use supervision::{Address, AskPort, Ctx, Effect, Reply, Subsystem, blame};
use tokio::time::Instant;

use self::measuring::StatsAnswer;
use crate::backends::Backends;
use crate::backoff::MountBackoff;
use crate::devices::Device;
use crate::execute::{self, MountOutcome};
use crate::found;
use crate::kinds;
use crate::measurements::Measurements;
use crate::metrics::{Timed, VolumeMetrics};
use crate::operations::{Asked, Kind, Operations};
use crate::orphans::{Orphans, SweepPolicy};
use crate::plan;
use crate::selinux::Selinux;
use crate::unmount::{self, DirectoryEnd, UnmountOutcome};
use texts::{exhausted_text, mount_event, unprocessed_text};

/// After this time an asker is told that its volumes are not there yet (row 10.1).
const SLOW: Duration = Duration::from_secs(123);

type MountAnswer = Result<Arc<MountedVolumes>, VolumesNotReady>;
type UnmountAnswer = Result<(), VolumeError>;

/// How often the volumes of objects are refreshed without a change that was reported: tokens expire (rows
/// 10.8 and 10.9).
const REFRESH: Duration = Duration::from_secs(60);

/// After this time a refused asker may ask again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// The settings of volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Figures of volumes are good for this long (`volumeStatsAggPeriod`); `None` if volumes are not measured.
    pub stats_period: Option<Duration>,
    /// How volumes are labelled; `None` on a node without SELinux.
    pub selinux: Option<Selinux>,
    /// Feature gate `CSIVolumeHealth`.
    pub tells_health: bool,
}

impl Default for VolumeSettings {
    fn default() -> Self {
        Self { stats_period: Some(Duration::from_secs(60)), selinux: None, tells_health: false }
    }
}

/// The effects, neighbours and settings of VolumeManager.
#[derive(Clone)]
pub struct VolumeManagerDeps {
    /// How often orphaned directories are looked for, and how long each is kept.
    pub sweep: SweepPolicy,
    /// The effects on mounts and directories.
    pub backends: Backends,
    /// The recorder of events.
    pub events: Address<RecordEvent>,
    /// Pleg, which is asked which pods the runtime holds before a directory is removed.
    pub held_pods: AskPort<VolumeManager, GetHeldPods>,
    /// The actors that are told of volumes of other kubelets' plugins.
    pub others_watchers: Vec<Address<OtherVolumesObserved>>,
    /// The actors that are told of the CSI drivers of this node.
    pub driver_watchers: Vec<Address<CsiDriversObserved>>,
    /// NodeStatus, which is asked to send the Node again; `None` without a cluster.
    pub resend_node: Option<Address<ResendNode>>,
    /// ConfigManager, asked after a restart for what has changed of the node's resources.
    pub configuration: Address<ResendConfiguration>,
    /// PodWorkerPool: pods whose volumes can be tried again go on.
    pub waiters: Address<PodObjectsChanged>,
    /// PodWorkerPool: ends pods that cannot run here.
    pub evict: Address<EvictPod>,
    /// PodManager, which is asked to send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// Metrics, which outlive the incarnation.
    pub metrics: VolumeMetrics,
    /// PodManager's counts of the pods that were refused, by reason; `None` where they are not counted.
    pub rejections: Option<IntCounterVec>,
    /// The settings of the configuration.
    pub settings: VolumeSettings,
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
    /// Refresh the pod's volumes again, which has failed.
    Again(PodUid),
    /// The askers for figures of volumes have waited long enough.
    Stats,
    /// Try again to take a device from the node.
    Release(Device),
    /// Try again to make the CSINode.
    Introduce,
    /// Tell again which volumes are in use.
    TellVolumes,
    /// Tell the CSI drivers again.
    TellDrivers,
    /// Follow the CSI drivers again.
    FollowDrivers,
    /// Ask a CSI driver again how many volumes the node takes.
    Capacity(String),
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
    /// Pods whose volumes could not be refreshed, and the delays after which that is tried again.
    refresh_delays: BTreeMap<PodUid, Duration>,
    measurements: Measurements<Reply<StatsAnswer>>,
    /// The attached volumes that were found in directories; `None` before the first look.
    found: Option<OtherVolumesObserved>,
    told_volumes: Level<OtherVolumesObserved, Timer>,
    told_drivers: Level<CsiDriversObserved, Timer>,
    /// Devices that are taken from the node.
    releases: BTreeMap<Device, devices::Release>,
    /// The CSI drivers, and the Node that the cluster knows them by.
    csi: drivers::Registered,
    /// Pods that cannot run here, which were told so.
    rejected: BTreeSet<PodUid>,
    /// Mounted pods of whose volumes it is known whether they are shown anew from time to time.
    renewals_known: BTreeSet<PodUid>,
}

impl VolumeManager {
    /// A fresh incarnation.
    pub fn new(deps: VolumeManagerDeps) -> Self {
        let orphans = Orphans::new(deps.sweep);
        let measurements = Measurements::new(deps.settings.stats_period);
        Self {
            told_volumes: Level::new(deps.others_watchers.iter().cloned(), Timer::TellVolumes),
            told_drivers: Level::new(deps.driver_watchers.iter().cloned(), Timer::TellDrivers),
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
            refresh_delays: BTreeMap::new(),
            ended: BTreeSet::new(),
            measurements,
            found: None,
            releases: BTreeMap::new(),
            csi: drivers::Registered::default(),
            renewals_known: BTreeSet::new(),
            rejected: BTreeSet::new(),
        }
    }

    /// What stays of a pod whose volumes are undone: the endings of a finished pod stay while the pod is listed. A pod that
    /// is not listed while a source has not been heard may be a finished one, too.
    fn leave(&mut self, uid: &PodUid) -> DirectoryEnd {
        let stays = match self.desired.get(uid) {
            Some(desired) => desired.pod.metadata.deletion_timestamp.is_none(),
            None => !self.desired.is_removed(uid),
        };
        if stays {
            self.ended.insert(uid.clone());
            DirectoryEnd::Endings
        } else {
            self.ended.remove(uid);
            DirectoryEnd::Nothing
        }
    }

    /// Removes what was left of a pod that has ended, if no source lists it any longer.
    fn forget_ended(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.desired.is_removed(uid) && self.ended.remove(uid) {
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
        let backends = self.backends_of(&uid);
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
                let unmount = unmount::unmount(backends, uid.clone(), leave);
                // What a pod has filled is removed at low priority, after what other pods have filled.
                ctx.effect(Effect::lasting("unmount volumes"), pod, unmount, move |actor, outcome, ctx| {
                    actor.unmounted(uid, &outcome, ctx);
                });
            }
        }
    }

    /// What work for the pod goes through.
    fn backends_of(&self, uid: &PodUid) -> Backends {
        let desired = self.asked_for.get(uid).or_else(|| self.desired.get(uid));
        self.deps.backends.for_namespace(desired.map(|desired| &*desired.pod_ref.namespace))
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

    fn mounted(&mut self, uid: PodUid, mut outcome: MountOutcome, ctx: &mut Ctx<Self>) {
        self.count(&outcome.timed);
        for judged in &outcome.judged {
            self.deps.metrics.labelled(judged);
        }
        if let Some(desired) = self.asked_for.get(&uid).cloned() {
            for error in outcome.errors.iter().chain(&outcome.stale) {
                let failure = outcome.failures.get(&error.volume);
                if failure.is_none_or(|failure| failure.operation.is_some()) {
                    self.record(&desired.pod_ref, mount_event(error, failure));
                }
            }
            if !outcome.unprocessed.is_empty() {
                self.record(&desired.pod_ref, (FAILED_MOUNT, unprocessed_text(&outcome)));
            }
            if outcome.exhausted {
                self.reject(&uid, &desired.pod_ref, exhausted_text(&outcome));
            }
        }
        let host_paths = std::mem::take(&mut outcome.mounted);
        let volumes = Arc::new(MountedVolumes {
            host_paths,
            groups: std::mem::take(&mut outcome.groups),
            keep_labels: std::mem::take(&mut outcome.keep_labels),
        });
        let plugins = std::mem::take(&mut outcome.plugins);
        self.set_mounted(&uid, Some(Mounted { volumes: volumes.clone(), plugins }));
        self.gauge();
        let now = self.origin.elapsed();
        self.backoff.tried(&uid, &outcome.held, &outcome.errors, &outcome.unprocessed, now);
        if self.changed.contains(&uid) {
            // The objects changed, perhaps after this try, so the missing ones may be there now: all volumes
            // may be tried at once.
            self.backoff.forget(&uid);
        }
        let wrong = || outcome.failed().chain(outcome.held.values());
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
        self.count(&outcome.timed);
        if let (Err(error), Some(desired)) =
            (done, self.asked_for.get(&uid).or_else(|| self.desired.get(&uid)))
            && outcome.of_others
        {
            self.record(&desired.pod_ref, ("FailedUnMount", error.message.clone()));
        }
        let again = self.operations.get(&uid).is_some_and(|operations| operations.queued() > 1);
        self.deps.backends.attachments.begin_anew(&uid);
        self.renewals_known.remove(&uid);
        self.rejected.remove(&uid);
        if done.is_ok() {
            self.set_mounted(&uid, None);
            self.stuck.remove(&uid);
            if !again {
                self.asked_for.remove(&uid);
            }
            self.gauge();
            self.deps.backends.attachments.undone(&uid);
            let used = self.deps.backends.devices.leave(&uid);
            let idle: BTreeSet<Device> = used.into_iter().chain(outcome.devices.iter().cloned()).collect();
            if idle.is_empty() {
                // Nothing of the pod was attached to the node.
                if self.deps.backends.attachments.wants(&uid) {
                    self.look_for_others(ctx);
                }
            }
            for device in idle {
                self.release(device, ctx);
            }
        } else {
            // What could be undone waits for nothing that could not.
            for device in &outcome.devices {
                self.deps.backends.devices.leave_one(device, &uid);
                self.deps.backends.attachments.undone_part(&uid, kinds::reported(device));
                self.release(device.clone(), ctx);
            }
        }
        for asker in self.ended(&uid, ctx) {
            match asker {
                MountAsker::Unmount(reply) => reply.send(done.clone()),
                MountAsker::Sweep => self.swept(&uid, done),
                MountAsker::Mount(_) => {}
            }
        }
    }

    fn count(&self, timed: &[Timed]) {
        for Timed { operation, plugin, ok, took } in timed {
            self.deps.metrics.operated(self.csi.label(plugin), *operation, *ok, *took);
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
        let reconstruct = found::reconstruct(self.deps.backends.clone());
        ctx.effect("reconstruct volumes", None, reconstruct, |actor, found, _| match found {
            Ok(found) => {
                actor
                    .deps
                    .metrics
                    .reconstructed(found.values().map(|volumes| volumes.host_paths.len()).sum());
                for (uid, found) in found {
                    let _named = blame::name(&uid.clone());
                    let volumes = Arc::new(MountedVolumes {
                        host_paths: found.host_paths,
                        ..MountedVolumes::default()
                    });
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
        let wanted = self.deps.backends.attachments.changes();
        ctx.stream(
            "attachable volumes",
            wanted,
            |actor: &mut Self, (), ctx| actor.tell_volumes(ctx),
            |_, _| {},
        );
        self.follow_drivers(ctx);
        if let Some(resend) = &self.deps.resend_node {
            resend.tell_level(ResendNode { receiver: Self::NAME });
        }
        if ctx.incarnation() > 1 {
            self.deps.configuration.tell_level(ResendConfiguration { receiver: Self::NAME });
        }
        ctx.set_timer(Timer::Sweep, self.deps.sweep.every);
        ctx.set_timer(Timer::Refresh, REFRESH);
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Slow(uid) => self.slow(uid, ctx),
            Timer::Sweep => {
                self.look_for_others(ctx);
                self.look_for_idle_devices(ctx);
                self.introduce_again(ctx);
                self.look_at_drivers(ctx);
                self.sweep(ctx);
            }
            Timer::Refresh => self.refresh_all(ctx),
            Timer::Again(uid) => self.refresh(&uid, ctx),
            Timer::Stats => self.stats_are_late(),
            Timer::Release(device) => self.begin_release(device, ctx),
            Timer::Introduce => self.introduce_again(ctx),
            Timer::TellVolumes => self.told_volumes.due(ctx),
            Timer::TellDrivers => self.told_drivers.due(ctx),
            Timer::FollowDrivers => self.follow_drivers(ctx),
            Timer::Capacity(driver) => self.look_at_capacity(driver, true, ctx),
        }
    }

    fn timer_pod(timer: &Timer) -> Option<PodUid> {
        match timer {
            Timer::Slow(uid) | Timer::Again(uid) => Some(uid.clone()),
            _ => None,
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
            "idleDevices": self.releases.len(),
            "csiDrivers": self.csi.names(),
        })
    }
}
