//! The handlers of NodeStatus's messages.

use std::sync::Arc;

use actix::Handler;
use messages::facts::{
    CsiDriversObserved, NodeResourcesConfigured, OtherVolumesObserved, PressureObserved, RuntimeObserved,
};
use messages::node_status::{
    NodeStatusConfigured, PostNotReady, ResendNode, StatusPeriods, SubsystemsReported,
};
use supervision::{Ctx, ReplyLater, reply_later};

use super::{NodeStatus, Timer};
use crate::NodeStatusConfig;

impl Handler<RuntimeObserved> for NodeStatus {
    type Result = ();
    fn handle(&mut self, fact: RuntimeObserved, ctx: &mut Ctx<Self>) {
        self.runtime.learn(&fact.0, self.began.elapsed());
        self.heard_of_runtime = true;
        // While the API server fails, the next round is soon enough.
        if self.problem.is_none() {
            self.update(ctx);
        }
    }
}

impl Handler<PressureObserved> for NodeStatus {
    type Result = ();
    fn handle(&mut self, PressureObserved(pressure): PressureObserved, ctx: &mut Ctx<Self>) {
        if self.pressure != Some(pressure) {
            self.pressure = Some(pressure);
            self.update(ctx);
        }
    }
}

impl Handler<OtherVolumesObserved> for NodeStatus {
    type Result = ();
    fn handle(&mut self, volumes: OtherVolumesObserved, ctx: &mut Ctx<Self>) {
        if self.volumes.as_ref() != Some(&volumes) {
            self.volumes = Some(volumes);
            self.update(ctx);
        }
    }
}

impl Handler<CsiDriversObserved> for NodeStatus {
    type Result = ();
    fn handle(&mut self, drivers: CsiDriversObserved, ctx: &mut Ctx<Self>) {
        if self.drivers != drivers {
            self.drivers = drivers;
            self.update(ctx);
        }
    }
}

impl Handler<ResendNode> for NodeStatus {
    type Result = ();
    fn handle(&mut self, ask: ResendNode, ctx: &mut Ctx<Self>) {
        self.told.asked(ask.receiver, ctx);
        self.addresses.asked(ask.receiver, ctx);
    }
}

impl Handler<SubsystemsReported> for NodeStatus {
    type Result = ();
    fn handle(&mut self, reported: SubsystemsReported, ctx: &mut Ctx<Self>) {
        if self.degraded != reported {
            self.degraded = reported;
            self.update(ctx);
        }
    }
}

impl Handler<PostNotReady> for NodeStatus {
    type Result = ReplyLater<bool>;
    fn handle(&mut self, order: PostNotReady, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        self.failed = Some(order.why);
        self.last = Some(reply);
        self.update(ctx);
        later
    }
}

impl Handler<NodeResourcesConfigured> for NodeStatus {
    type Result = ();
    fn handle(&mut self, configured: NodeResourcesConfigured, ctx: &mut Ctx<Self>) {
        let resources = configured.settings;
        if self.deps.config.resources != resources {
            self.deps.config = Arc::new(NodeStatusConfig { resources, ..(*self.deps.config).clone() });
            self.update(ctx);
        }
    }
}

impl Handler<NodeStatusConfigured> for NodeStatus {
    type Result = ();
    fn handle(&mut self, configured: NodeStatusConfigured, ctx: &mut Ctx<Self>) {
        let StatusPeriods { update, report } = configured.settings;
        if (self.deps.config.update, self.deps.config.report) == (update, report) {
            return;
        }
        self.deps.config = Arc::new(NodeStatusConfig { update, report, ..(*self.deps.config).clone() });
        // The posting after the next one is due by it.
        self.reports.set_every(report);
        ctx.set_timer(Timer::Update, update);
    }
}
