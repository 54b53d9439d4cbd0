//! What observers are told of pods.

use std::collections::BTreeSet;

use messages::PodUid;
use messages::facts::{PodObserved, SeenPod};
use pod_set::Teller;
use supervision::{Address, Ctx};

use super::{Pleg, Timer};

/// The pods as observers are told of them.
pub(super) struct Told {
    pods: Teller<SeenPod, PodObserved, Timer>,
    /// The pods of the first whole list that have not been looked at; `None` before that list.
    baseline: Option<BTreeSet<PodUid>>,
}

impl Told {
    pub(super) fn new(incarnation: u64, observers: &[Address<PodObserved>]) -> Self {
        let pods = Teller::new(incarnation, observers.iter().cloned(), PodObserved, Timer::Tell);
        Self { pods, baseline: None }
    }

    /// The pods of which the runtime holds something.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&PodUid, &SeenPod)> {
        self.pods.set().iter().filter(|(_, seen)| !seen.state.is_absent())
    }

    /// The pod, if the runtime holds something of it.
    pub(super) fn get(&self, uid: &PodUid) -> Option<&SeenPod> {
        self.pods.set().get(uid).filter(|seen| !seen.state.is_absent())
    }

    /// Takes what a look has found.
    pub(super) fn seen(&mut self, uid: &PodUid, mut seen: SeenPod) {
        let known = self.pods.set().get(uid);
        // A later look answers what earlier ones were asked for.
        seen.touch = known.map_or(0, |known| known.touch).max(seen.touch);
        if known != Some(&seen) {
            if seen.state.is_absent() { self.pods.put_last(uid, seen) } else { self.pods.put(uid, seen) }
        }
        self.looked(uid);
    }

    /// The look at the pod has failed or takes long: it is there, and what is known of it holds.
    pub(super) fn unseen(&mut self, uid: &PodUid) {
        if self.pods.set().get(uid).is_none() {
            self.pods.unread(uid);
        }
        self.looked(uid);
    }

    /// Takes the pods that a whole list wants looked at. Those of the first one are the baseline.
    pub(super) fn listed(&mut self, wanted: BTreeSet<PodUid>) {
        if self.baseline.is_none() {
            self.baseline = Some(wanted);
            self.complete();
        }
    }

    fn looked(&mut self, uid: &PodUid) {
        if self.baseline.as_mut().is_some_and(|left| left.remove(uid)) {
            self.complete();
        }
    }

    /// When every pod of the baseline has been looked at, a pod that is not in the set is not in the runtime.
    fn complete(&mut self) {
        if self.baseline.as_ref().is_some_and(BTreeSet::is_empty) {
            self.pods.completed();
        }
    }

    /// Tells the observers that what an earlier incarnation told holds until this one knows better.
    pub(super) fn begin(&mut self, ctx: &mut Ctx<Pleg>) {
        self.pods.begin(ctx);
    }

    pub(super) fn asked(&mut self, receiver: &str, ctx: &mut Ctx<Pleg>) {
        self.pods.asked(receiver, ctx);
    }

    pub(super) fn due(&mut self, ctx: &mut Ctx<Pleg>) {
        self.pods.due(ctx);
    }

    /// Sets the timer for what is to be told later.
    pub(super) fn wake(&mut self, ctx: &mut Ctx<Pleg>) {
        self.pods.wake(ctx);
    }
}
