//! The actor: has cgroups made and removed, one thing at a time per pod.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Handler};
use messages::PodUid;
use messages::facts::DesiredPods;
use messages::pod_manager::ResendDesired;
use messages::resource_manager::{self, CgroupFailure, EnsurePodCgroup, PodCgroup, RemovePodCgroup};
use messages::resources::QosClass;
use runtime_bridge::cgroups::{CgroupError, Cgroups};
use supervision::{Address, Ctx, ReplyLater, Subsystem, reply_later};

/// What ResourceManager is given.
#[derive(Clone)]
pub struct ResourceManagerDeps {
    /// The machine's cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Asked again after a restart.
    pub resend_desired: Address<ResendDesired>,
    /// How often it is looked for cgroups of pods that nobody knows; it goes at the second look.
    pub sweep: Duration,
}

/// States what pods may use.
pub struct ResourceManager {
    deps: ResourceManagerDeps,
    desired: Option<DesiredPods>,
    /// Cgroups of pods that nobody wanted at the last look.
    suspects: BTreeSet<PodUid>,
}

/// ResourceManager's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Look for cgroups of pods that are gone.
    Sweep,
}

impl ResourceManager {
    /// An incarnation that knows nothing yet.
    pub fn new(deps: ResourceManagerDeps) -> Self {
        Self { deps, desired: None, suspects: BTreeSet::new() }
    }

    /// What a kubelet left that was killed: a pod that has never run has no worker that would give back its cgroup.
    fn sweep(&mut self, ctx: &mut Ctx<Self>) {
        let listed = self.deps.cgroups.list_pod_cgroups();
        ctx.effect("list", None, listed, |actor, listed, ctx| {
            ctx.set_timer(Timer::Sweep, actor.deps.sweep);
            let Some(desired) = actor.desired.as_ref().filter(|desired| desired.sources_ready) else {
                return;
            };
            let found = listed.unwrap_or_else(|error| {
                tracing::warn!(%error, "Cgroups of pods cannot be listed");
                Vec::new()
            });
            let found = found.iter().map(|pod| PodUid::new(&pod.uid));
            let unwanted: BTreeSet<PodUid> = found.filter(|uid| !desired.pods.contains_key(uid)).collect();
            for uid in unwanted.intersection(&actor.suspects) {
                // One with processes in it stays: its pod is being stopped.
                let removed = actor.deps.cgroups.remove_pod_cgroup(uid.as_str());
                ctx.effect("sweep", Some(uid.clone()), removed, |_, removed, _| {
                    if let Err(error) = removed {
                        tracing::debug!(%error, "The cgroup of a pod that is gone stays for now");
                    }
                });
            }
            actor.suspects = unwanted;
        });
    }
}

fn failure(error: &CgroupError) -> CgroupFailure {
    CgroupFailure { message: error.to_string() }
}

impl Actor for ResourceManager {
    type Context = Ctx<Self>;
}

impl Subsystem for ResourceManager {
    const NAME: &'static str = resource_manager::RECEIVER;
    type Timer = Timer;

    fn on_start(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Sweep, self.deps.sweep);
        let _ = self.deps.resend_desired.tell(ResendDesired);
    }

    fn on_timer(&mut self, timer: Timer, ctx: &mut Ctx<Self>) {
        match timer {
            Timer::Sweep => self.sweep(ctx),
        }
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "pods": self.desired.as_ref().map(|desired| desired.pods.len()) })
    }
}

impl Handler<DesiredPods> for ResourceManager {
    type Result = ();
    fn handle(&mut self, desired: DesiredPods, _ctx: &mut Ctx<Self>) {
        self.desired = Some(desired);
    }
}

impl Handler<EnsurePodCgroup> for ResourceManager {
    type Result = ReplyLater<Result<Arc<PodCgroup>, CgroupFailure>>;
    fn handle(&mut self, ensure: EnsurePodCgroup, _ctx: &mut Ctx<Self>) -> Self::Result {
        let qos = QosClass::of(&ensure.pod.pod);
        let name = self.deps.cgroups.names().pod(qos, ensure.pod.pod_ref.uid.as_str());
        let (later, reply) = reply_later();
        reply.send(name.map(|name| Arc::new(PodCgroup { name: name.into() })).map_err(|e| failure(&e)));
        later
    }
}

impl Handler<RemovePodCgroup> for ResourceManager {
    type Result = ReplyLater<Result<(), CgroupFailure>>;
    fn handle(&mut self, remove: RemovePodCgroup, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let removed = self.deps.cgroups.remove_pod_cgroup(remove.pod.uid.as_str());
        ctx.effect("remove", Some(remove.pod.uid), removed, |_, removed, _| {
            reply.send(removed.map_err(|error| failure(&error)));
        });
        later
    }
}
