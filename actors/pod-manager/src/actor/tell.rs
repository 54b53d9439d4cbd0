//! What PodManager has told of the desired pods, and telling what is new. Two sets travel: StatusManager's has every
//! change of a pod's object at the API server, all others' have none of a change that a status patch makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPodsChanged, Source};
use messages::pod_set::GonePod;
use messages::status_manager::MirrorPods;
use pod_set::{Level, Teller};
use supervision::{Ctx, blame};

use super::{PodManager, PodManagerDeps, Timer};
use crate::decide::Outcome;
use crate::same::{is_same, is_same_but_status};

/// How long after a change the pods are counted that are not over.
const COUNTED_AFTER: Duration = Duration::from_secs(2);

/// The desired pods, as they were told.
#[derive(Debug)]
pub(super) struct Told {
    /// For all but StatusManager.
    pub(super) pods: Teller<Arc<DesiredPod>, DesiredPodsChanged, Timer>,
    /// For StatusManager.
    pub(super) objects: Teller<Arc<DesiredPod>, DesiredPodsChanged, Timer>,
    statics: BTreeMap<PodUid, Arc<Pod>>,
    superseded: BTreeSet<PodUid>,
    pub(super) mirrors: Level<MirrorPods, Timer>,
    /// The pods that are not over are counted soon.
    to_be_counted: bool,
}

impl Told {
    pub(super) fn new(incarnation: u64, deps: &PodManagerDeps) -> Self {
        let status_observer = std::iter::once(deps.status_observer.clone());
        Self {
            pods: Teller::new(incarnation, deps.observers.iter().cloned(), DesiredPodsChanged, Timer::Tell),
            objects: Teller::new(incarnation, status_observer, DesiredPodsChanged, Timer::TellObjects),
            statics: BTreeMap::new(),
            superseded: BTreeSet::new(),
            mirrors: Level::new([deps.mirrors.clone()], Timer::TellMirrors),
            to_be_counted: false,
        }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = (&PodUid, &Arc<DesiredPod>)> {
        self.pods.set().iter()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&Arc<DesiredPod>> {
        self.pods.set().get(uid)
    }

    pub(super) fn len(&self) -> usize {
        self.pods.set().len()
    }

    pub(super) fn statics(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.statics.values()
    }

    /// Takes the pod as desired in this form.
    fn put(&mut self, desired: Arc<DesiredPod>) {
        let uid = desired.pod_ref.uid.clone();
        if desired.source != Source::Api {
            self.statics.insert(uid.clone(), desired.pod.clone());
        }
        let known = self.objects.set().get(&uid);
        if known.is_some_and(|known| is_same(known, &desired)) {
            return;
        }
        let is_status = known.is_some_and(|known| is_same_but_status(known, &desired));
        self.objects.put(&uid, desired.clone());
        if is_status {
            self.pods.refresh(&uid, desired);
        } else {
            self.pods.put(&uid, desired);
        }
    }

    fn remove(&mut self, uid: &PodUid, gone: GonePod) {
        self.statics.remove(uid);
        self.pods.remove(uid, gone);
        self.objects.remove(uid, gone);
    }

    fn unread(&mut self, uid: &PodUid) {
        self.pods.unread(uid);
        self.objects.unread(uid);
    }
}

impl PodManager {
    /// Tells what a decision about all pods has changed; everything after the first one and when all sources have been
    /// heard.
    pub(super) fn publish(&mut self, outcome: Outcome, ctx: &mut Ctx<Self>) {
        // Of a pod that is left alone nothing may follow from its absence either.
        let unread: BTreeSet<PodUid> = self.sources.unread().chain(&outcome.left_alone).cloned().collect();
        let told = self.told.pods().map(|(uid, _)| uid).chain(self.told.pods.set().unread_uids());
        let told: Vec<PodUid> = told.cloned().collect();
        let gone = told.into_iter().filter(|uid| !outcome.pods.contains_key(uid) && !unread.contains(uid));
        let unsuperseded = self.told.superseded.difference(&outcome.superseded).cloned();
        let superseded = outcome.superseded.iter().cloned();
        let absent: BTreeSet<PodUid> = gone.chain(unsuperseded).chain(superseded).collect();
        for uid in absent.iter().filter(|uid| !outcome.pods.contains_key(*uid)) {
            let superseded = outcome.superseded.contains(uid);
            blame::step(uid, || {
                let gone = GonePod { superseded, ..self.gone(uid) };
                self.told.remove(uid, gone);
            });
        }
        for uid in unread.iter().filter(|uid| !outcome.pods.contains_key(*uid)) {
            self.told.unread(uid);
        }
        for (uid, desired) in outcome.pods {
            if blame::step(&uid, || self.told.put(desired)).is_none() && self.told.get(&uid).is_none() {
                self.told.unread(&uid);
            }
        }
        self.told.superseded = outcome.superseded;
        if self.has_decided_all() {
            self.told.pods.completed();
            self.told.objects.completed();
        }
        // Before the first decision nothing is told.
        self.told.pods.begin(ctx);
        self.told.objects.begin(ctx);
        self.tell_mirrors(ctx);
        self.count(ctx);
    }

    /// Tells that a pod is desired in this form.
    pub(super) fn publish_one(&mut self, desired: Arc<DesiredPod>, ctx: &mut Ctx<Self>) {
        self.told.put(desired);
        self.wake(ctx);
    }

    /// Tells that a new pod of the API server cannot be read, whether that is enough. It is: the pods that are decided about are the same
    /// as before, since nothing was known of this one and nothing is, and all that a decision about them would add is that its absence
    /// means nothing. Only before the first decision, and while another source has the pod or has had it, there is more to it.
    pub(super) fn publish_unread(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) -> bool {
        let is_enough =
            self.has_decided_all() && self.told.get(uid).is_none() && !self.told.superseded.contains(uid);
        if is_enough {
            self.told.unread(uid);
            self.wake(ctx);
        }
        is_enough
    }

    /// Tells that a pod of the API server is gone.
    pub(super) fn publish_gone(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        self.told.remove(uid, self.gone(uid));
        self.wake(ctx);
        self.count(ctx);
    }

    fn wake(&mut self, ctx: &mut Ctx<Self>) {
        self.told.pods.wake(ctx);
        self.told.objects.wake(ctx);
    }

    fn gone(&self, uid: &PodUid) -> GonePod {
        GonePod { superseded: false, ..self.sources.gone(uid).unwrap_or_default() }
    }

    pub(super) fn count(&mut self, ctx: &mut Ctx<Self>) {
        let (all, statics) = (self.told.len() as i64, self.told.statics.len() as i64);
        self.deps.metrics.desired_pods.with_label_values(&["true"]).set(statics);
        self.deps.metrics.desired_pods.with_label_values(&[""]).set(all - statics);
        self.deps.metrics.mirror_pods.set(self.told.mirrors.fact().map_or(0, |told| told.pods.len()) as i64);
        self.count_pods_soon(ctx);
    }

    /// Has the pods counted that are not over: a change of one pod does not cost a look at all, so many changes are
    /// counted together.
    pub(super) fn count_pods_soon(&mut self, ctx: &mut Ctx<Self>) {
        if !std::mem::replace(&mut self.told.to_be_counted, true) {
            ctx.set_timer(Timer::Count, COUNTED_AFTER);
        }
    }

    pub(super) fn count_pods(&mut self) {
        self.told.to_be_counted = false;
        let (mut statics, mut others, mut ephemeral) = (0, 0, 0);
        for (uid, desired) in self.told.pods() {
            let containers = desired.pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_ref());
            ephemeral += containers.map_or(0, Vec::len) as i64;
            if desired.rejected.is_none() && !self.known.is_over(uid, &desired.pod) {
                let active = if self.told.statics.contains_key(uid) { &mut statics } else { &mut others };
                *active += 1;
            }
        }
        let metrics = &self.deps.metrics;
        metrics.active_pods.with_label_values(&["true"]).set(statics);
        metrics.active_pods.with_label_values(&[""]).set(others);
        metrics.ephemeral_containers.set(ephemeral);
    }

    /// Tells one receiver everything. Before the first decision it waits for that, as all others do.
    pub(super) fn tell_all_to(&mut self, receiver: &str, ctx: &mut Ctx<Self>) {
        self.told.pods.asked(receiver, ctx);
        self.told.objects.asked(receiver, ctx);
        self.told.mirrors.asked(receiver, ctx);
    }

    /// Tells StatusManager which pods of the API server stand for static ones.
    pub(super) fn tell_mirrors(&mut self, ctx: &mut Ctx<Self>) {
        let pods = Arc::new(self.mirrors.of(self.told.statics()));
        self.told.mirrors.set(MirrorPods { pods }, ctx);
    }
}
