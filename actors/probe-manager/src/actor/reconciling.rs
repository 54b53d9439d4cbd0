//! What follows from news of all pods.

use std::collections::BTreeSet;
use std::time::Duration;

use messages::PodUid;
use supervision::Ctx;

use super::ProbeManager;
use crate::timer::Timer;

impl ProbeManager {
    /// Brings all pods in line with the newest facts, one after another.
    pub(super) fn reconcile_all(&mut self, ctx: &mut Ctx<Self>) {
        if !self.desired.is_known() || self.restored.is_none() {
            return;
        }
        // PodManager leaves these as they were, so that nothing follows from their absence here.
        for uid in self.desired.unread_uids().cloned().collect::<Vec<PodUid>>() {
            self.leave(&uid);
        }
        let uids = self.pods.keys().chain(self.ending.keys()).chain(self.desired.uids());
        let uids = uids.chain(self.told.set().unread_uids());
        let uids: BTreeSet<PodUid> = uids.cloned().collect();
        for uid in uids {
            if ctx.is_quarantined(&uid) {
                self.leave(&uid);
            } else {
                ctx.set_timer(Timer::Reconcile(uid.clone()), Duration::ZERO);
                self.unreconciled.insert(uid);
            }
        }
        self.all_reconciled(ctx);
    }

    /// Tells that the set of verdicts is complete, once every pod of it has been looked at.
    pub(super) fn all_reconciled(&mut self, ctx: &mut Ctx<Self>) {
        if self.unreconciled.is_empty() && self.desired.is_complete() {
            self.told.completed();
            self.told.wake(ctx);
            self.drop_stale_checkpoints(ctx);
        }
    }
}
