//! The node's pressure (row 19.8). New pods wait some seconds for it while it is unknown; then it counts as none, so that a node
//! whose EvictionManager is down takes pods.

use std::time::Duration;

use actix::{Handler, MessageResult};
use messages::eviction_manager::ResendPressure;
use messages::facts::PressureObserved;
use messages::pod_manager::GetPressure;
use supervision::{Ctx, Subsystem};

use super::{PodManager, Timer};

/// How often EvictionManager is asked for the pressure while pods wait for it, and how many times.
const ASK_FOR_PRESSURE: Duration = Duration::from_secs(1);
const ASKS_MAX: u32 = 5;

impl PodManager {
    /// Pods wait for the pressure: EvictionManager is asked for it, unless that goes on already.
    pub(super) fn ask_for_pressure(&mut self, ctx: &mut Ctx<Self>) {
        if self.pressure_asks == 0 {
            self.ask_for_pressure_again(ctx);
        }
    }

    pub(super) fn ask_for_pressure_again(&mut self, ctx: &mut Ctx<Self>) {
        if self.known.pressure.is_some() {
            return;
        }
        if self.pressure_asks == ASKS_MAX {
            tracing::warn!("The node's pressure is unknown; pods are admitted as if there were none");
            self.known.awaits_pressure = false;
            self.decide(ctx);
            return;
        }
        self.pressure_asks += 1;
        // Lost: it is asked for again.
        self.deps.pressure.tell_level(ResendPressure { receiver: Self::NAME });
        ctx.set_timer(Timer::AskForPressure, ASK_FOR_PRESSURE);
    }
}

impl Handler<PressureObserved> for PodManager {
    type Result = ();
    fn handle(&mut self, PressureObserved(pressure): PressureObserved, ctx: &mut Ctx<Self>) {
        // Refused pods stay refused, and running pods are not judged again.
        let is_first = self.known.pressure.replace(pressure).is_none();
        ctx.cancel_timer(&Timer::AskForPressure);
        if is_first && self.waiting > 0 {
            self.decide(ctx);
        }
    }
}

impl Handler<GetPressure> for PodManager {
    type Result = MessageResult<GetPressure>;
    fn handle(&mut self, _: GetPressure, _ctx: &mut Ctx<Self>) -> Self::Result {
        MessageResult(self.known.pressure)
    }
}
