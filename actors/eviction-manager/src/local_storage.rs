//! Pods that use more of the node's own disk than their limits: the counting of pods' files, and the eviction of such
//! pods (row 19.7). This goes on beside the measuring of the node, and neither waits for the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPods, Rejection, WorkerState};
use messages::pod_worker::EvictPod;
use pod_rules::critical::is_critical;
use pod_rules::reasons::EVICTED;
use supervision::Ctx;

use crate::actor::{EvictionManager, Timer};
use crate::candidates::{self, HARD_GRACE_SECONDS};
use crate::execute::{self, Counted};
use crate::limits::{Exceeded, Limits, exceeded, limits};
use crate::message::Said;
use crate::rounds::{Lane, Next, Rounds};

/// A pod, and the limits by which it may be evicted, if it has any.
struct Known {
    pod: Arc<DesiredPod>,
    limits: Option<Arc<Limits>>,
}

/// The pods with limits.
#[derive(Default)]
pub(crate) struct Limited {
    /// All desired pods.
    pods: BTreeMap<PodUid, Known>,
    rounds: Rounds,
    /// Whether images and layers lie on the node's own disk; `None` while that is unknown.
    one_disk: Option<bool>,
}

impl Limited {
    /// Takes in whether images and layers lie on the node's own disk, if a measurement has told.
    pub(crate) fn learn(&mut self, one_disk: Option<bool>) {
        self.one_disk = one_disk.or(self.one_disk);
    }

    /// The number of pods with limits.
    pub(crate) fn len(&self) -> usize {
        self.pods.values().filter(|known| known.limits.is_some()).count()
    }

    fn limits(&self, uid: &PodUid) -> Option<(Arc<DesiredPod>, Arc<Limits>)> {
        let known = self.pods.get(uid)?;
        Some((known.pod.clone(), known.limits.clone()?))
    }
}

/// The limits by which a pod may be evicted: none for critical pods, and for pods that the node refuses to run.
fn limits_of(pod: &DesiredPod) -> Option<Arc<Limits>> {
    let counts = pod.rejected.is_none() && !is_critical(&pod.pod, pod.source);
    counts.then(|| limits(&pod.pod)).flatten().map(Arc::new)
}

impl EvictionManager {
    /// Takes in the pods' limits. Only pods that are new or have changed are read.
    pub(crate) fn note_limits(&mut self, desired: &DesiredPods, ctx: &mut Ctx<Self>) {
        if !self.deps.config.local_storage {
            return;
        }
        let mut before = std::mem::take(&mut self.limited.pods);
        for (uid, pod) in desired.pods.iter() {
            let known = before.remove(uid).filter(|known| Arc::ptr_eq(&known.pod, pod));
            // A quarantined pod is not counted; its limits are read when it is let in.
            let known = known
                .filter(|_| !ctx.is_quarantined(uid))
                .or_else(|| ctx.for_pod(uid, |_| Known { pod: pod.clone(), limits: limits_of(pod) }));
            let Some(known) = known else { continue };
            self.limited.pods.insert(uid.clone(), known);
        }
        self.arrange(ctx);
    }

    /// A pod that is being evicted or has ended is no longer counted.
    pub(crate) fn note_report(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.limited.limits(uid).is_some() {
            self.arrange(ctx);
        }
    }

    fn arrange(&mut self, ctx: &mut Ctx<Self>) {
        let (now, reports) = (self.began.elapsed(), &self.reports);
        let stays = |uid: &PodUid| {
            let report = reports.get(uid);
            let over = report.is_some_and(|report| report.state == WorkerState::Terminated);
            !over && !candidates::is_being_evicted(report)
        };
        let limited = self.limited.pods.iter().filter(|(uid, known)| known.limits.is_some() && stays(uid));
        self.limited.rounds.of(limited.map(|(uid, _)| uid), now);
        Lane::ALL.into_iter().for_each(|lane| self.count_next(lane, ctx));
    }

    /// Begins the next count of a lane, if it is due.
    pub(crate) fn count_next(&mut self, lane: Lane, ctx: &mut Ctx<Self>) {
        let began = self.began.elapsed();
        let uid = match self.limited.rounds.next(lane, began) {
            Next::Count(uid) => uid,
            Next::Wait(time) => return ctx.set_timer(Timer::Count(lane), time),
            Next::Rest => return ctx.cancel_timer(&Timer::Count(lane)),
        };
        let Some((pod, limits)) = self.limited.limits(&uid) else { return };
        let known = (self.limited.one_disk, self.places.clone());
        let work = execute::count(self.deps.ways.clone(), pod, limits, lane.time_max(), known);
        ctx.effect("count files", Some(uid.clone()), work, move |actor, counted, ctx| {
            actor.counted(lane, &uid, &counted, began, ctx);
        });
    }

    fn counted(&mut self, lane: Lane, uid: &PodUid, counted: &Counted, began: Duration, ctx: &mut Ctx<Self>) {
        self.limited.learn(counted.one_disk);
        self.limited.rounds.ended(lane, !counted.cut, began, self.began.elapsed());
        if let Some((pod, limits)) = self.limited.limits(uid)
            && !candidates::is_being_evicted(self.reports.get(uid))
            && let Some(exceeded) = exceeded(&limits, &counted.usage, self.limited.one_disk == Some(true))
        {
            self.end(&pod, exceeded);
        }
        Lane::ALL.into_iter().for_each(|lane| self.count_next(lane, ctx));
    }

    fn end(&mut self, pod: &DesiredPod, exceeded: Exceeded) {
        let why = Rejection { reason: EVICTED.to_owned(), message: exceeded.message.clone() };
        let uid = pod.pod_ref.uid.clone();
        // After a refusal the next count tries again.
        if self.deps.evict.tell(EvictPod { uid, grace_seconds: Some(HARD_GRACE_SECONDS), why }).is_err() {
            return;
        }
        tracing::warn!(pod = %pod.pod_ref, signal = exceeded.signal, "Pod is evicted");
        self.evicted += 1;
        self.deps.metrics.evicted(exceeded.signal);
        self.announce(&pod.pod_ref, Said { message: exceeded.message, annotations: BTreeMap::new() });
    }
}
