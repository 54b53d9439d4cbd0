//! The pod's `activeDeadlineSeconds` (row 3.9).

use jiff::{SignedDuration, Timestamp};
use messages::facts::WorkerState;
use supervision::Ctx;

use super::{PodWorker, Timer};
use crate::lifecycle::Trigger;
use crate::retry;
use crate::texts;

impl PodWorker {
    /// Takes StatusManager's answer since when the pod has been active. A pod without a start time is active
    /// from now on.
    pub(super) fn active_since(&mut self, start: Option<Timestamp>, ctx: &mut Ctx<Self>) {
        self.start_time = Some(start.unwrap_or_else(|| self.now()));
        self.set_deadline(ctx);
    }

    fn deadline(&self) -> Option<Timestamp> {
        let spec = self.desired.as_ref()?.pod.spec.as_ref()?;
        let seconds = spec.active_deadline_seconds?;
        let allowed = SignedDuration::from_secs(seconds);
        Some(self.start_time?.saturating_add(allowed).unwrap_or(Timestamp::MAX))
    }

    pub(super) fn set_deadline(&mut self, ctx: &mut Ctx<Self>) {
        match self.deadline().filter(|_| self.lifecycle.state() == WorkerState::Syncing) {
            Some(deadline) => ctx.set_timer(Timer::Deadline, retry::until(deadline, self.now())),
            None => ctx.cancel_timer(&Timer::Deadline),
        }
    }

    /// Ends the pod if its deadline has passed, whatever task is under way.
    pub(super) fn see_deadline(&mut self, ctx: &mut Ctx<Self>) {
        let Some(deadline) = self.deadline() else { return };
        if self.lifecycle.state() != WorkerState::Syncing {
            return;
        }
        if self.now() < deadline {
            // The timer runs by the monotonic clock, and the wall clock may have been set meanwhile.
            self.set_deadline(ctx);
            return;
        }
        self.record(texts::deadline_exceeded(), "");
        self.end(&Trigger::Overdue, ctx);
    }
}
