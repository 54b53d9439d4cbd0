//! Pods that use more of the node's own disk than their limits: the counting of pods' files, and the eviction of such
//! pods (row 19.7). This goes on beside the measuring of the node, and neither waits for the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use messages::PodUid;
use messages::facts::{DesiredPod, Rejection, WorkerState};
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

/// A pod and its limits, which end it.
struct KnownPod {
    pod: Arc<DesiredPod>,
    limits: Arc<Limits>,
}

/// The pods with limits.
#[derive(Default)]
pub(crate) struct Limited {
    /// Of those that are desired.
    pods: BTreeMap<PodUid, KnownPod>,
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
        self.pods.len()
    }

    fn limits(&self, uid: &PodUid) -> Option<(Arc<DesiredPod>, Arc<Limits>)> {
        let known = self.pods.get(uid)?;
        Some((known.pod.clone(), known.limits.clone()))
    }
}

/// The limits by which a pod may be evicted: none for critical pods, and for pods that the node refuses to run.
fn limits_of(pod: &DesiredPod) -> Option<Arc<Limits>> {
    let counts = pod.rejected.is_none() && !is_critical(&pod.pod, pod.source);
    counts.then(|| limits(&pod.pod)).flatten().map(Arc::new)
}

impl EvictionManager {
    /// Learns which of these pods have limits, and which are desired no more.
    pub(crate) fn note_limits(&mut self, uids: impl IntoIterator<Item = PodUid>, ctx: &mut Ctx<Self>) {
        if !self.deps.config.local_storage {
            return;
        }
        let mut is_news = false;
        for uid in uids {
            // One that is left alone is not counted, and looked at when it is let in.
            let desired = self.desired.get(&uid);
            let limits = desired.and_then(|pod| ctx.for_pod(&uid, |_| limits_of(pod)).flatten());
            let known = desired.zip(limits).map(|(pod, limits)| KnownPod { pod: pod.clone(), limits });
            let before = match known {
                Some(known) => self.limited.pods.insert(uid.clone(), known),
                None => self.limited.pods.remove(&uid),
            };
            if before.is_some() || self.limited.pods.contains_key(&uid) {
                self.arrange(&uid);
                is_news = true;
            }
        }
        if is_news {
            self.count_on(ctx);
        }
    }

    /// A pod that is being evicted or has ended is no longer counted.
    pub(crate) fn note_report(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        if self.limited.limits(uid).is_some() {
            self.arrange(uid);
            self.count_on(ctx);
        }
    }

    fn arrange(&mut self, uid: &PodUid) {
        let report = self.reports.get(uid);
        let over = report.is_some_and(|report| report.state == WorkerState::Terminated);
        let known = self.limited.pods.get(uid).filter(|_| !over && !candidates::is_being_evicted(report));
        let namespace = known.map(|known| known.pod.pod_ref.namespace.clone());
        self.limited.rounds.set(uid, namespace, self.began.elapsed());
    }

    fn count_on(&mut self, ctx: &mut Ctx<Self>) {
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
        let work = execute::count(self.deps.backends.clone(), pod, limits, lane.time_max(), known);
        ctx.effect("count files", Some(uid.clone()), work, move |actor, counted, ctx| {
            actor.counted(lane, &uid, &counted, began, ctx);
        });
    }

    fn counted(&mut self, lane: Lane, uid: &PodUid, counted: &Counted, began: Duration, ctx: &mut Ctx<Self>) {
        self.limited.learn(counted.one_disk);
        self.limited.rounds.ended(lane, !counted.cut, began, self.began.elapsed());
        if let Some((pod, limits)) = self.limited.limits(uid)
            && self.reports.is_complete()
            && !candidates::is_being_evicted(self.reports.get(uid))
            && let Some(exceeded) = exceeded(&limits, &counted.usage, self.limited.one_disk == Some(true))
        {
            self.end(&pod, exceeded);
        }
        Lane::ALL.into_iter().for_each(|lane| self.count_next(lane, ctx));
    }

    fn end(&mut self, pod: &DesiredPod, exceeded: Exceeded) {
        let why = Rejection::new(EVICTED, exceeded.message.clone());
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
