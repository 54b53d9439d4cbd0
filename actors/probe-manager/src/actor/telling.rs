//! What followers are told of verdicts.

use std::sync::Arc;

use actix::{Handler, MessageResult};
use messages::PodUid;
use messages::pod_set::GonePod;
use messages::probe_manager::{GetVerdicts, ResendVerdicts};
use supervision::Ctx;

use super::ProbeManager;
use crate::timer::Timer;

impl ProbeManager {
    /// Tells and writes down the pod's verdicts. That is work for each of its containers, which answers change one by one, so
    /// that it is done at most once in a time that grows with the number of containers.
    pub(super) fn changed(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let now = self.origin.elapsed();
        let Some(probes) = self.pods.get_mut(uid) else { return };
        match probes.rests(now) {
            Some(rest) => ctx.set_timer(Timer::Changed(uid.clone()), rest),
            None => {
                self.publish(uid, ctx);
                self.save(uid, ctx);
            }
        }
    }

    /// Tells the followers the settled verdicts of a pod.
    pub(super) fn publish(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let Some(probes) = self.pods.get(uid) else { return };
        let verdicts = Arc::new(probes.verdicts());
        if self.told.set().get(uid) != Some(&verdicts) {
            self.told.put(uid, verdicts);
            self.told.wake(ctx);
        }
    }

    /// The pod has probes, and nothing is told of it yet, or it is left alone: what was told of it holds.
    pub(super) fn leave(&mut self, uid: &PodUid) {
        if self.told.set().get(uid).is_none() {
            self.told.unread(uid);
        }
    }

    /// A pod without probes has no verdicts any more. Of one that is not known yet, or whose checkpoint could not be read, what
    /// was told holds.
    pub(super) fn forget_verdicts(&mut self, uid: &PodUid) {
        let is_known = match self.desired.get(uid) {
            Some(desired) if desired.rejected.is_none() => {
                self.restored.is_some() && !self.unread.contains(uid)
            }
            Some(_) => true,
            None => self.desired.is_removed(uid),
        };
        if is_known && !self.pods.contains_key(uid) {
            self.told.remove(uid, GonePod::default());
        }
    }
}

impl Handler<ResendVerdicts> for ProbeManager {
    type Result = ();

    fn handle(&mut self, ask: ResendVerdicts, ctx: &mut Ctx<Self>) {
        self.told.asked(ask.receiver, ctx);
    }
}

impl Handler<GetVerdicts> for ProbeManager {
    type Result = MessageResult<GetVerdicts>;

    fn handle(&mut self, _: GetVerdicts, _ctx: &mut Ctx<Self>) -> Self::Result {
        let verdicts = self.told.set().iter().map(|(uid, verdicts)| (uid.clone(), verdicts.clone()));
        MessageResult(verdicts.collect())
    }
}
