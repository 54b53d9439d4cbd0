//! Measuring the volumes of pods for the actors that show the figures (row 10.27).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use messages::PodUid;
use messages::volume_manager::GetVolumeStats;
use supervision::{Ctx, Reply, ReplyLater, reply_later};

use super::{Timer, VolumeManager};
use crate::measure::{self, Usages};

/// An asker is answered after this time with what is known then.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) type StatsAnswer = <GetVolumeStats as actix::Message>::Result;

impl VolumeManager {
    fn give_stats(&self, askers: Vec<Reply<StatsAnswer>>) {
        if askers.is_empty() {
            return;
        }
        let mut missing = BTreeMap::new();
        let (mut told, at) = (self.measurements.known(), self.deps.backends.clock.now());
        // Of pods that have not been measured yet, or of which nothing is known to be mounted yet, it is told which figures are
        // missing.
        let unknown = self
            .desired
            .iter()
            .filter(|(uid, _)| self.measurements.are_measured() && !told.contains_key(*uid));
        missing.extend(
            unknown.map(|(uid, desired)| {
                (uid.clone(), Arc::new(measure::stats(&desired.pod, Usages::new(), at)))
            }),
        );
        told.extend(missing);
        for asker in askers {
            asker.send(told.clone());
        }
    }

    /// Begins what is due and has a place.
    fn measure_next(&mut self, ctx: &mut Ctx<Self>) {
        while let Some(uid) = self.measurements.begin(self.origin.elapsed()) {
            let Some(mounted) = self.mounted.get(&uid) else {
                self.measured(&uid, Usages::new(), ctx);
                continue;
            };
            let look = measure::volumes(
                self.backends_of(&uid),
                uid.clone(),
                mounted.volumes.clone(),
                self.deps.metrics.clone(),
            );
            // Each look ends by itself, long before an effect is overdue.
            ctx.effect("measure volumes", Some(uid.clone()), look, move |actor, measured, ctx| {
                actor.measured(&uid, measured, ctx);
                actor.measure_next(ctx);
            });
        }
    }

    fn measured(&mut self, uid: &PodUid, measured: Usages, ctx: &mut Ctx<Self>) {
        let at = self.deps.backends.clock.now();
        let stats = self.desired.get(uid).map(|desired| measure::stats(&desired.pod, measured, at));
        let answered = self.measurements.ended(uid, stats.unwrap_or_default(), self.origin.elapsed());
        if !answered.is_empty() {
            ctx.cancel_timer(&Timer::Stats);
        }
        self.give_stats(answered);
    }

    /// The askers have waited long enough.
    pub(super) fn stats_are_late(&mut self) {
        let askers = self.measurements.late();
        self.give_stats(askers);
    }
}

impl actix::Handler<GetVolumeStats> for VolumeManager {
    type Result = ReplyLater<StatsAnswer>;

    fn handle(&mut self, _: GetVolumeStats, ctx: &mut Ctx<Self>) -> Self::Result {
        let (later, reply) = reply_later();
        let known = self.mounted.keys().filter_map(|uid| self.desired.get(uid));
        let pods: BTreeMap<PodUid, Arc<str>> =
            known.map(|desired| (desired.pod_ref.uid.clone(), desired.pod_ref.namespace.clone())).collect();
        match self.measurements.ask(&pods, self.origin.elapsed(), reply) {
            Some(reply) => self.give_stats(vec![reply]),
            None => ctx.set_timer(Timer::Stats, PATIENCE),
        }
        self.measure_next(ctx);
        later
    }
}
