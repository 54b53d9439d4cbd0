//! The actor: keeps the classes' shares current, and makes and removes cgroups.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use bridge_node::cgroups::{CgroupError, CgroupValues, Cgroups};
use messages::event_recorder::{EventObject, EventType, RecordEvent};
use messages::facts::DesiredPodsChanged;
use messages::pleg::GetHeldPods;
use messages::pod_manager::ResendDesired;
use messages::resource_manager::{self, CgroupFailure, EnsurePodCgroup, PodCgroup, RemovePodCgroup};
use messages::runtime::HeldPods;
use messages::{PodRef, PodUid};
use pod_spec::resources::QosClass;
use supervision::{Address, AskPort, Ctx, Effect, ReplyLater, Subsystem, reply_later};

use crate::capacity::Amounts;
use crate::execute::{Executor, tell};
use crate::metrics::ResourceMetrics;
use crate::node::{Enforcement, ProcessCgroups, ReservedCgroup, enforcements};
use crate::pod_cgroups::PodCgroups;
use crate::values::{PodRules, class_values, pod_values};

/// Upstream's periods: of the update of classes, and of new attempts to enforce after a failure (rows 14.4, 14.7).
const PERIOD: Duration = Duration::from_secs(60);
/// Upstream's period of a look at the kubelet's own process that has no cgroup of its own (row 14.10); with one it is [`PERIOD`].
const PROCESS_PERIOD: Duration = Duration::from_secs(300);
/// How long what asks systemd may take: it answers for each slice within its own deadline, and there are many orphans.
const LONG: Duration = Duration::from_secs(3600);
/// Longest wait for what the runtime holds.
const KNOWN_DEADLINE: Duration = Duration::from_secs(10);

/// ResourceManager's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceManagerConfig {
    /// `cgroupsPerQOS`: pods have cgroups, below those of their classes. Otherwise the runtime places containers.
    pub per_qos: bool,
    /// The node's rules for every pod.
    pub pods: PodRules,
    /// The limits of the cgroup of all pods.
    pub node: Amounts,
    /// The administrator's cgroups that are limited to what is reserved for them.
    pub reserved: Vec<ReservedCgroup>,
    /// The kubelet's own process, and those of the system.
    pub processes: ProcessCgroups,
    /// Period of listing the cgroups and of writing the classes' values again.
    pub housekeeping: Duration,
}

impl Default for ResourceManagerConfig {
    fn default() -> Self {
        Self {
            per_qos: true,
            pods: PodRules::default(),
            node: Amounts::new(),
            reserved: Vec::new(),
            processes: ProcessCgroups::default(),
            housekeeping: PERIOD,
        }
    }
}

/// ResourceManager's configuration, effects and addresses.
#[derive(Clone)]
pub struct ResourceManagerDeps {
    /// Configuration.
    pub config: ResourceManagerConfig,
    /// The machine's cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Asks Pleg for the pods that the runtime holds.
    pub held_pods: AskPort<ResourceManager, GetHeldPods>,
    /// PodManager, asked for the desired pods after a restart.
    pub resend_desired: Address<ResendDesired>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// Metrics.
    pub metrics: ResourceMetrics,
}

type ClassValues = [(QosClass, CgroupValues); 2];

/// ResourceManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// List the cgroups, and write the classes' values again.
    Housekeeping,
    /// Enforce again on the node's cgroups what failed.
    Enforce,
    /// Look whether the kubelet and the system's processes are in their cgroups.
    Processes,
}

/// ResourceManager: limits and shares of pods, by cgroups.
pub struct ResourceManager {
    deps: ResourceManagerDeps,
    executor: Executor,
    pod_cgroups: PodCgroups,
    /// The node's cgroups that are not enforced yet.
    unenforced: Vec<Enforcement>,
    /// Why processes are not in their cgroups, as last logged.
    misplaced: Vec<String>,
    /// `Some` while the classes' values are being written; `Some(true)` if they have to be written again after that.
    updating: Option<bool>,
    /// The classes' values as last written: equal values are not written again for every pod that comes or goes.
    held: Option<ClassValues>,
    listing: bool,
    orphans_removed: u64,
}

impl ResourceManager {
    /// An incarnation without facts.
    pub fn new(deps: ResourceManagerDeps) -> Self {
        let executor = Executor { cgroups: deps.cgroups.clone(), metrics: deps.metrics.clone() };
        let unenforced = match deps.config.per_qos {
            true => enforcements(deps.cgroups.names(), &deps.config.node, &deps.config.reserved),
            false => Vec::new(),
        };
        Self {
            deps,
            executor,
            pod_cgroups: PodCgroups::default(),
            unenforced,
            misplaced: Vec::new(),
            updating: None,
            held: None,
            listing: false,
            orphans_removed: 0,
        }
    }

    /// Writes the values of the node's cgroups; those that fail are tried again in a minute.
    fn enforce(&mut self, ctx: &mut Ctx<Self>) {
        let wanted = std::mem::take(&mut self.unenforced);
        let executor = self.executor.clone();
        let work = async move {
            let mut done = Vec::new();
            for one in wanted {
                let (cgroup, values) = (&one.cgroup, one.values.clone());
                let ensured = match one.ours {
                    true => executor.ensure(cgroup, values).await,
                    false => executor.update(cgroup, values).await,
                };
                let result = ensured.map(|ensured| tell(cgroup, &ensured));
                done.push((one, result));
            }
            done
        };
        ctx.effect(Effect::within("enforce", LONG), None, work, |actor, done, ctx| {
            for (one, result) in done {
                actor.deps.events.tell_or_count(one.event(&result));
                if let Err(error) = result {
                    tracing::error!(%error, cgroup = one.cgroup, "Failed to enforce node allocatable");
                    actor.unenforced.push(one);
                }
            }
            if !actor.unenforced.is_empty() {
                ctx.set_timer(Timer::Enforce, PERIOD);
            }
        });
    }

    /// Puts the kubelet and the system's processes into their cgroups, again and again: the system begins processes all the time.
    fn place_processes(&mut self, ctx: &mut Ctx<Self>) {
        let wanted = self.deps.config.processes.clone();
        let period = if wanted.moves_any() { PERIOD } else { PROCESS_PERIOD };
        let executor = self.executor.clone();
        let work = async move { executor.place(&wanted).await };
        ctx.effect(Effect::within("processes", LONG), None, work, move |actor, misplaced, ctx| {
            for error in misplaced.iter().filter(|error| !actor.misplaced.contains(error)) {
                tracing::warn!(error, "Failed to ensure state");
            }
            actor.misplaced = misplaced;
            ctx.set_timer(Timer::Processes, period);
        });
    }

    /// Writes the values of the classes' cgroups that follow from their pods, one write at a time.
    fn update_classes(&mut self, ctx: &mut Ctx<Self>) {
        if self.updating.is_some() {
            self.updating = Some(true);
            return;
        }
        let values = [QosClass::Burstable, QosClass::BestEffort]
            .map(|qos| (qos, class_values(qos, self.pod_cgroups.burstable_millis())));
        if self.held.as_ref() == Some(&values) {
            return;
        }
        self.updating = Some(false);
        self.held = None;
        let executor = self.executor.clone();
        let work = async move { executor.classes(&values).await.then_some(values) };
        ctx.effect(Effect::within("classes", LONG), None, work, |actor, held, ctx| {
            actor.held = held;
            if actor.updating.take() == Some(true) {
                actor.update_classes(ctx);
            }
        });
    }

    /// Lists the pods' cgroups: pods that have one count for their class, and cgroups of unknown pods are removed.
    fn look(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.listing, true) {
            return;
        }
        self.pod_cgroups.listing_begins();
        let listed = self.deps.cgroups.list_pod_cgroups();
        ctx.effect("list", None, listed, |actor, listed, ctx| {
            let orphans = match listed {
                Ok(found) => {
                    let found: BTreeSet<PodUid> = found.iter().map(|pod| PodUid::new(&pod.uid)).collect();
                    actor.pod_cgroups.leave_alone(ctx.quarantined());
                    let mut orphans = actor.pod_cgroups.listed(found);
                    // The next listing finds them again, once they are let in.
                    orphans.retain(|uid| !ctx.is_quarantined(uid));
                    orphans
                }
                Err(error) => {
                    tracing::warn!(%error, "Cgroups of pods cannot be listed");
                    Vec::new()
                }
            };
            // Another program may have changed the classes' values.
            actor.held = None;
            actor.update_classes(ctx);
            if orphans.is_empty() {
                actor.listing = false;
                return;
            }
            let held = actor.deps.held_pods.ask(GetHeldPods, KNOWN_DEADLINE);
            ctx.effect("ask Pleg", None, held, |actor, held, ctx| {
                actor.remove_orphans(orphans, held.ok(), ctx);
            });
        });
    }

    /// Removes the cgroups of these unknown pods, one after the other. Since a removal may take long, each is checked again
    /// just before its turn: its pod may have come back.
    fn remove_orphans(&mut self, mut orphans: Vec<PodUid>, held: Option<HeldPods>, ctx: &mut Ctx<Self>) {
        while orphans.pop_if(|uid| !self.pod_cgroups.is_orphan(uid) || ctx.is_quarantined(uid)).is_some() {}
        let Some(uid) = orphans.pop() else {
            self.listing = false;
            return;
        };
        // If Pleg has not answered, the runtime is taken to know all of them.
        let in_runtime = held.as_ref().is_none_or(|held| held.contains_key(&uid));
        let (executor, orphan) = (self.executor.clone(), uid.clone());
        let work = async move { executor.remove_orphan(&orphan, in_runtime).await };
        ctx.effect(Effect::within("orphan", LONG), Some(uid.clone()), work, move |actor, gone, ctx| {
            if gone {
                actor.orphans_removed += 1;
                actor.pod_cgroups.orphan_removed(&uid);
            }
            actor.remove_orphans(orphans, held, ctx);
        });
    }
}

fn failure(error: &CgroupError) -> CgroupFailure {
    CgroupFailure { message: error.to_string() }
}

/// Upstream's event, without the pod's cgroup in Go's notation.
fn not_ensured(pod: &PodRef, error: &CgroupError) -> RecordEvent {
    RecordEvent {
        object: EventObject::Pod { pod: pod.clone(), field_path: Arc::from("") },
        event_type: EventType::Warning,
        reason: Arc::from("FailedCreatePodContainer"),
        message: Arc::from(format!("unable to ensure pod container exists: {error}")),
    }
}

impl Actor for ResourceManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ResourceManager {
    const NAME: &'static str = resource_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        self.deps.metrics.set_version(self.deps.cgroups.version());
        self.place_processes(ctx);
        if self.deps.config.per_qos {
            self.enforce(ctx);
            self.look(ctx);
            ctx.set_timer(Timer::Housekeeping, self.deps.config.housekeeping);
        }
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Housekeeping => {
                ctx.set_timer(Timer::Housekeeping, self.deps.config.housekeeping);
                self.look(ctx);
            }
            Timer::Enforce => self.enforce(ctx),
            Timer::Processes => self.place_processes(ctx),
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.pod_cgroups.settle(pod);
        if self.deps.config.per_qos {
            self.update_classes(ctx);
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.pod_cgroups.present(),
            "unenforced": self.unenforced.iter().map(|one| &one.cgroup).collect::<Vec<_>>(),
            "misplaced": self.misplaced,
            "orphansRemoved": self.orphans_removed,
        })
    }
}

impl Handler<DesiredPodsChanged> for ResourceManager {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        self.pod_cgroups.leave_alone(ctx.quarantined());
        if self.pod_cgroups.desired(update) {
            self.deps.resend_desired.tell_level(ResendDesired { receiver: Self::NAME });
        }
        if self.deps.config.per_qos {
            self.update_classes(ctx);
        }
    }
}

impl Handler<EnsurePodCgroup> for ResourceManager {
    type Result = ReplyLater<Result<Arc<PodCgroup>, CgroupFailure>>;
    fn handle(&mut self, ensure: EnsurePodCgroup, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let pod = ensure.pod;
        if !self.deps.config.per_qos {
            reply.send(Ok(Arc::new(PodCgroup { name: Arc::from("") })));
            return later;
        }
        let qos = QosClass::of(&pod.pod);
        let name = match self.deps.cgroups.names().pod(qos, pod.pod_ref.uid.as_str()) {
            Ok(name) => name,
            Err(error) => {
                reply.send(Err(failure(&error)));
                return later;
            }
        };
        self.pod_cgroups.made(&pod);
        self.update_classes(ctx);
        let values = pod_values(&pod.pod, &self.deps.config.pods);
        let (executor, uid) = (self.executor.clone(), pod.pod_ref.uid.clone());
        let work = async move {
            let ensured = executor.ensure(&name, values).await?;
            tell(&name, &ensured);
            Ok(Arc::new(PodCgroup { name: name.into() }))
        };
        ctx.effect(Effect::within("ensure", LONG), Some(uid), work, move |actor, ensured, _| {
            if let Err(error) = &ensured {
                actor.deps.events.tell_or_count(not_ensured(&pod.pod_ref, error));
            }
            reply.send(ensured.map_err(|error| failure(&error)));
        });
        later
    }
}

impl Handler<RemovePodCgroup> for ResourceManager {
    type Result = ReplyLater<Result<(), CgroupFailure>>;
    fn handle(&mut self, remove: RemovePodCgroup, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let (executor, uid) = (self.executor.clone(), remove.pod.uid.clone());
        let work = async move { executor.kill_and_remove(&remove.pod.uid).await };
        ctx.effect(Effect::within("remove", LONG), Some(uid.clone()), work, move |actor, removed, ctx| {
            if removed.is_ok() {
                actor.pod_cgroups.removed(&uid);
                if actor.deps.config.per_qos {
                    actor.update_classes(ctx);
                }
            }
            reply.send(removed.map_err(|error| failure(&error)));
        });
        later
    }
}
