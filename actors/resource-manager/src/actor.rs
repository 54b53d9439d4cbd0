//! The actor: has cgroups made and removed, one thing at a time per pod.

use std::sync::Arc;

use actix::{Actor, Handler};
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
}

/// States what pods may use.
pub struct ResourceManager {
    deps: ResourceManagerDeps,
    desired: Option<DesiredPods>,
}

impl ResourceManager {
    /// An incarnation that knows nothing yet.
    pub fn new(deps: ResourceManagerDeps) -> Self {
        Self { deps, desired: None }
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
    type Timer = ();

    fn on_start(&mut self, _ctx: &mut Ctx<Self>) {
        let _ = self.deps.resend_desired.tell(ResendDesired);
    }

    fn on_timer(&mut self, (): (), _ctx: &mut Ctx<Self>) {}

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
