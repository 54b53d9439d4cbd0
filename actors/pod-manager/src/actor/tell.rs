//! What PodManager has told of the desired pods, and telling what is new. Two sets travel: StatusManager's has every
//! change of a pod's object at the API server, all others' have none of a change that a status patch makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use messages::PodUid;
use messages::facts::{DesiredPod, DesiredPodsChanged, Source};
use messages::pod_set::{GonePod, PodSetUpdate};
use messages::status_manager::MirrorPods;
use pod_set::{Digests, Journal};
use supervision::{Address, Ctx, blame};

use super::{PodManager, Timer};
use crate::decide::Outcome;
use crate::same::{is_same, is_same_but_status};

/// How long after a change the pods are counted that are not over.
const COUNTED_AFTER: Duration = Duration::from_secs(2);

/// The desired pods, as they were told.
#[derive(Debug)]
pub(super) struct Told {
    /// For all but StatusManager.
    pods: Journal<Arc<DesiredPod>>,
    /// For StatusManager.
    objects: Journal<Arc<DesiredPod>>,
    statics: BTreeMap<PodUid, Arc<Pod>>,
    superseded: BTreeSet<PodUid>,
    mirrors: Arc<BTreeMap<PodUid, Arc<Pod>>>,
    /// A decision was taken: before the first one nothing is told.
    has_decided: bool,
    digests: Digests,
    /// The pods that are not over are counted soon.
    to_be_counted: bool,
}

impl Told {
    pub(super) fn new(incarnation: u64) -> Self {
        Self {
            pods: Journal::new(incarnation),
            objects: Journal::new(incarnation),
            statics: BTreeMap::new(),
            superseded: BTreeSet::new(),
            mirrors: Arc::default(),
            has_decided: false,
            digests: Digests::default(),
            to_be_counted: false,
        }
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = (&PodUid, &Arc<DesiredPod>)> {
        self.pods.iter()
    }

    pub(super) fn get(&self, uid: &PodUid) -> Option<&Arc<DesiredPod>> {
        self.pods.get(uid)
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn statics(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.statics.values()
    }

    /// Takes the pod as desired in this form. Returns the update for all followers and the one for StatusManager.
    fn put(&mut self, desired: Arc<DesiredPod>) -> Updates {
        let uid = desired.pod_ref.uid.clone();
        if desired.source != Source::Api {
            self.statics.insert(uid.clone(), desired.pod.clone());
        }
        let known = self.objects.get(&uid);
        if known.is_some_and(|known| is_same(known, &desired)) {
            return Updates::default();
        }
        let is_status = known.is_some_and(|known| is_same_but_status(known, &desired));
        let for_status = Some(self.objects.put(&uid, desired.clone()));
        if is_status {
            self.pods.refresh(&uid, desired);
            return Updates { for_all: None, for_status };
        }
        Updates { for_all: Some(self.pods.put(&uid, desired)), for_status }
    }

    fn remove(&mut self, uid: &PodUid, gone: GonePod) -> Updates {
        self.statics.remove(uid);
        Updates { for_all: self.pods.remove(uid, gone), for_status: self.objects.remove(uid, gone) }
    }

    fn unread(&mut self, uid: &PodUid) -> Updates {
        Updates { for_all: self.pods.unread(uid), for_status: self.objects.unread(uid) }
    }
}

/// What is told of a change.
#[derive(Default)]
struct Updates {
    for_all: Option<PodSetUpdate<Arc<DesiredPod>>>,
    for_status: Option<PodSetUpdate<Arc<DesiredPod>>>,
}

impl PodManager {
    /// Tells what a decision about all pods has changed; everything after the first one and when all sources have been
    /// heard.
    pub(super) fn publish(&mut self, outcome: Outcome, ctx: &mut Ctx<Self>) {
        let mut updates = Vec::new();
        // Of a pod that is left alone nothing may follow from its absence either.
        let unread: BTreeSet<PodUid> = self.sources.unread().chain(&outcome.left_alone).cloned().collect();
        let told = self.told.pods().map(|(uid, _)| uid).chain(self.told.pods.unread_uids());
        let told: Vec<PodUid> = told.cloned().collect();
        let gone = told.into_iter().filter(|uid| !outcome.pods.contains_key(uid) && !unread.contains(uid));
        let unsuperseded = self.told.superseded.difference(&outcome.superseded).cloned();
        let superseded = outcome.superseded.iter().cloned();
        let absent: BTreeSet<PodUid> = gone.chain(unsuperseded).chain(superseded).collect();
        for uid in absent.iter().filter(|uid| !outcome.pods.contains_key(*uid)) {
            let superseded = outcome.superseded.contains(uid);
            let gone = |actor: &mut Self| actor.told.remove(uid, GonePod { superseded, ..actor.gone(uid) });
            updates.extend(blame::step(uid, || gone(self)));
        }
        for uid in unread.iter().filter(|uid| !outcome.pods.contains_key(*uid)) {
            updates.push(self.told.unread(uid));
        }
        for (uid, desired) in outcome.pods {
            let update = blame::step(&uid, || self.told.put(desired));
            let is_told = update.is_some() || self.told.get(&uid).is_some();
            updates.push(
                update.unwrap_or_else(|| if is_told { Updates::default() } else { self.told.unread(&uid) }),
            );
        }
        self.told.superseded = outcome.superseded;
        let is_first = !std::mem::replace(&mut self.told.has_decided, true);
        let is_complete =
            self.has_decided_all() && self.told.pods.completed() & self.told.objects.completed();
        if is_first || is_complete {
            let (pods, objects) = (self.told.pods.snapshot(), self.told.objects.snapshot());
            updates = vec![Updates { for_all: Some(pods), for_status: Some(objects) }];
        }
        updates.into_iter().for_each(|update| self.tell(update, ctx));
        self.tell_mirrors();
        self.count(ctx);
    }

    /// Tells that a pod is desired in this form.
    pub(super) fn publish_one(&mut self, desired: Arc<DesiredPod>, ctx: &mut Ctx<Self>) {
        let update = self.told.put(desired);
        self.tell(update, ctx);
    }

    /// Tells that a pod of the API server is gone.
    pub(super) fn publish_gone(&mut self, uid: &PodUid, ctx: &mut Ctx<Self>) {
        let update = self.told.remove(uid, self.gone(uid));
        self.tell(update, ctx);
        self.count(ctx);
    }

    fn gone(&self, uid: &PodUid) -> GonePod {
        GonePod { superseded: false, ..self.sources.gone(uid).unwrap_or_default() }
    }

    pub(super) fn count(&mut self, ctx: &mut Ctx<Self>) {
        let (all, statics) = (self.told.len() as i64, self.told.statics.len() as i64);
        self.deps.metrics.desired_pods.with_label_values(&["true"]).set(statics);
        self.deps.metrics.desired_pods.with_label_values(&[""]).set(all - statics);
        self.deps.metrics.mirror_pods.set(self.told.mirrors.len() as i64);
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

    fn tell(&mut self, update: Updates, ctx: &mut Ctx<Self>) {
        if update.for_all.is_none() && update.for_status.is_none() {
            return;
        }
        if let Some(update) = update.for_status {
            self.deps.status_observer.tell_level(DesiredPodsChanged(update));
        }
        if let Some(update) = update.for_all {
            for observer in &self.deps.observers {
                observer.tell_level(DesiredPodsChanged(update.clone()));
            }
        }
        if let Some(soon) = self.told.digests.changed() {
            ctx.set_timer(Timer::Digest, soon);
        }
    }

    /// Tells every follower the digest of what it should know by now; a follower that has missed an update asks for it.
    pub(super) fn tell_digests(&mut self, ctx: &mut Ctx<Self>) {
        ctx.set_timer(Timer::Digest, self.told.digests.told());
        if !self.told.has_decided {
            return;
        }
        let digest = |journal: &Journal<_>| DesiredPodsChanged(PodSetUpdate::Digest(journal.digest()));
        self.deps.status_observer.tell_level(digest(&self.told.objects));
        for observer in &self.deps.observers {
            observer.tell_level(digest(&self.told.pods));
        }
        self.deps.mirrors.tell_level(MirrorPods { pods: self.told.mirrors.clone() });
    }

    /// Tells one receiver everything. Before the first decision it waits for that, as all others do.
    pub(super) fn tell_all_to(&self, receiver: &str) {
        if !self.told.has_decided {
            return;
        }
        let is_it = |observer: &&Address<DesiredPodsChanged>| observer.receiver() == receiver;
        for observer in self.deps.observers.iter().filter(is_it) {
            observer.tell_level(DesiredPodsChanged(self.told.pods.snapshot()));
        }
        if is_it(&&self.deps.status_observer) {
            self.deps.status_observer.tell_level(DesiredPodsChanged(self.told.objects.snapshot()));
            self.deps.mirrors.tell_level(MirrorPods { pods: self.told.mirrors.clone() });
        }
    }

    /// Tells StatusManager which pods of the API server stand for static ones, if that has changed.
    pub(super) fn tell_mirrors(&mut self) {
        let mirrors = self.mirrors.of(self.told.statics());
        if *self.told.mirrors != mirrors {
            self.told.mirrors = Arc::new(mirrors);
            self.deps.mirrors.tell_level(MirrorPods { pods: self.told.mirrors.clone() });
        }
    }
}
