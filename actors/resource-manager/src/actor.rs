//! The actor: keeps the classes' shares and has cgroups made and removed.

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
use messages::{PodRef, PodUid};
use pod_spec::resources::QosClass;
use supervision::{Address, AskPort, Ctx, ReplyLater, Subsystem, blame, reply_later};

use crate::capacity::Amounts;
use crate::execute::{Executor, tell};
use crate::ledger::Ledger;
use crate::metrics::ResourceMetrics;
use crate::node::{Enforcement, ReservedCgroup, enforcements};
use crate::values::{PodRules, class_values, pod_values};

/// Upstream's periods: of the classes' update, and of the next attempt to enforce what failed (rows 14.4, 14.7).
const PERIOD: Duration = Duration::from_secs(60);
/// Longest wait for what the runtime holds.
const KNOWN_DEADLINE: Duration = Duration::from_secs(10);

/// The configuration of cgroups.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceManagerConfig {
    /// `cgroupsPerQOS`: pods have cgroups, below those of their classes. Without, the runtime places containers.
    pub per_qos: bool,
    /// What the node lays down for every pod.
    pub pods: PodRules,
    /// What all pods together are held to.
    pub node: Amounts,
    /// The administrator's cgroups that are held to what is reserved.
    pub reserved: Vec<ReservedCgroup>,
    /// How often it is looked what cgroups there are, and the classes' values are made to hold.
    pub housekeeping: Duration,
}

impl Default for ResourceManagerConfig {
    fn default() -> Self {
        Self {
            per_qos: true,
            pods: PodRules::default(),
            node: Amounts::new(),
            reserved: Vec::new(),
            housekeeping: PERIOD,
        }
    }
}

/// What ResourceManager is given.
#[derive(Clone)]
pub struct ResourceManagerDeps {
    /// What it goes by.
    pub config: ResourceManagerConfig,
    /// The machine's cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Pleg: what the runtime holds.
    pub held_pods: AskPort<ResourceManager, GetHeldPods>,
    /// Asked again after a restart.
    pub resend_desired: Address<ResendDesired>,
    /// Events.
    pub events: Address<RecordEvent>,
    /// Counters.
    pub metrics: ResourceMetrics,
}

type ClassValues = [(QosClass, CgroupValues); 2];

/// ResourceManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Look at the cgroups that are there, and have the classes hold their values.
    Housekeeping,
    /// Enforce on the node's cgroups what failed.
    Enforce,
}

/// States what pods may use.
pub struct ResourceManager {
    deps: ResourceManagerDeps,
    executor: Executor,
    ledger: Ledger,
    /// What of the node's is not enforced yet.
    unenforced: Vec<Enforcement>,
    /// The classes' values are being written; and they changed meanwhile.
    updating: Option<bool>,
    /// What the classes hold as far as is known: not written again for every pod that comes or goes.
    held: Option<ClassValues>,
    listing: bool,
    orphans_removed: u64,
}

impl ResourceManager {
    /// An incarnation that knows nothing yet.
    pub fn new(deps: ResourceManagerDeps) -> Self {
        let executor = Executor { cgroups: deps.cgroups.clone(), metrics: deps.metrics.clone() };
        let unenforced = match deps.config.per_qos {
            true => enforcements(deps.cgroups.names(), &deps.config.node, &deps.config.reserved),
            false => Vec::new(),
        };
        Self {
            deps,
            executor,
            ledger: Ledger::default(),
            unenforced,
            updating: None,
            held: None,
            listing: false,
            orphans_removed: 0,
        }
    }

    /// Has the node's cgroups hold what they shall; what fails is tried again in a minute.
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
        ctx.effect("enforce", None, work, |actor, done, ctx| {
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

    /// Has the classes' cgroups hold what their pods ask for, one writer at a time.
    fn update_classes(&mut self, ctx: &mut Ctx<Self>) {
        if self.updating.is_some() {
            self.updating = Some(true);
            return;
        }
        let values = [QosClass::Burstable, QosClass::BestEffort]
            .map(|qos| (qos, class_values(qos, self.ledger.burstable_millis())));
        if self.held.as_ref() == Some(&values) {
            return;
        }
        self.updating = Some(false);
        self.held = None;
        let executor = self.executor.clone();
        let work = async move { executor.classes(&values).await.then_some(values) };
        ctx.effect("classes", None, work, |actor, held, ctx| {
            actor.held = held;
            if actor.updating.take() == Some(true) {
                actor.update_classes(ctx);
            }
        });
    }

    /// Looks at what cgroups there are: who has one counts, and whom nobody knows loses it.
    fn look(&mut self, ctx: &mut Ctx<Self>) {
        if std::mem::replace(&mut self.listing, true) {
            return;
        }
        self.ledger.listing_begins();
        let listed = self.deps.cgroups.list_pod_cgroups();
        ctx.effect("list", None, listed, |actor, listed, ctx| {
            let orphans = match listed {
                Ok(found) => {
                    let found: BTreeSet<PodUid> = found.iter().map(|pod| PodUid::new(&pod.uid)).collect();
                    actor.ledger.leave_alone(ctx.quarantined());
                    let mut orphans = actor.ledger.listed(found);
                    // The next listing finds them again.
                    orphans.retain(|uid| !ctx.is_quarantined(uid));
                    orphans
                }
                Err(error) => {
                    tracing::warn!(%error, "Cgroups of pods cannot be listed");
                    Vec::new()
                }
            };
            // Somebody else may have changed them.
            actor.held = None;
            actor.update_classes(ctx);
            let executor = actor.executor.clone();
            let known = (!orphans.is_empty()).then(|| actor.deps.held_pods.ask(GetHeldPods, KNOWN_DEADLINE));
            let work = async move {
                let known = match known {
                    Some(known) => known.await.ok(),
                    None => None,
                };
                // As long as nobody says otherwise the runtime may know all of them.
                executor
                    .remove_orphans(orphans, |uid| known.as_ref().is_none_or(|known| known.contains_key(uid)))
                    .await
            };
            ctx.effect("orphans", None, work, |actor, gone, _| {
                actor.listing = false;
                actor.orphans_removed += gone.len() as u64;
                gone.iter().for_each(|uid| blame::for_pod(uid, || actor.ledger.removed(uid)));
            });
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
        }
    }

    fn on_release(&mut self, pod: &PodUid, ctx: &mut Ctx<Self>) {
        self.ledger.settle(pod);
        if self.deps.config.per_qos {
            self.update_classes(ctx);
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({
            "pods": self.ledger.present(),
            "unenforced": self.unenforced.iter().map(|one| &one.cgroup).collect::<Vec<_>>(),
            "orphansRemoved": self.orphans_removed,
        })
    }
}

impl Handler<DesiredPodsChanged> for ResourceManager {
    type Result = ();
    fn handle(&mut self, DesiredPodsChanged(update): DesiredPodsChanged, ctx: &mut Ctx<Self>) {
        self.ledger.leave_alone(ctx.quarantined());
        if self.ledger.desired(update) {
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
        self.ledger.made(&pod);
        self.update_classes(ctx);
        let values = pod_values(&pod.pod, &self.deps.config.pods);
        let (executor, uid) = (self.executor.clone(), pod.pod_ref.uid.clone());
        let work = async move {
            let ensured = executor.ensure(&name, values).await?;
            tell(&name, &ensured);
            Ok(Arc::new(PodCgroup { name: name.into() }))
        };
        ctx.effect("ensure", Some(uid), work, move |actor, ensured, _| {
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
        ctx.effect("remove", Some(uid.clone()), work, move |actor, removed, ctx| {
            if removed.is_ok() {
                actor.ledger.removed(&uid);
                if actor.deps.config.per_qos {
                    actor.update_classes(ctx);
                }
            }
            reply.send(removed.map_err(|error| failure(&error)));
        });
        later
    }
}
