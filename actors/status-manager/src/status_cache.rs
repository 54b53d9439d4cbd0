//! All pods: their facts, their statuses, and the statuses that a new fact changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::facts::{ContainerVerdict, DesiredPod, SeenPod, Source, WorkerReport};
use messages::pod_set::{Generation, PodSetUpdate};
use messages::runtime::RuntimeHealth;
use messages::supervision::PodsQuarantined;
use messages::{PodRef, PodUid};
use pod_set::{PodSet, Taken};
use supervision::blame;

use crate::compute::compute;
use crate::conditions;
use crate::facts::{NodeFacts, PodFacts};
use crate::publish::Publication;

/// What a new fact has changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A pod has another status than before.
    Told {
        /// The pod.
        pod: PodRef,
        /// Its new status.
        status: Arc<PodStatus>,
    },
    /// A pod is over and forgotten.
    Gone {
        /// The pod.
        uid: PodUid,
    },
}

/// Facts that StatusManager lacks and asks for again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFacts {
    /// The desired pods.
    pub desired: bool,
    /// The runtime's name.
    pub runtime: bool,
    /// The report of some desired pod's worker.
    pub reports: bool,
    /// Stopped pods of whose last look Pleg has not told yet, with the look's token; they cannot end before.
    pub looks: Vec<(PodUid, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Entry {
    facts: PodFacts,
    /// Whether it is among the desired pods, as far as the sources have been heard.
    is_desired: bool,
    status: Option<Arc<PodStatus>>,
    /// The pod's mirror at the API server, if the pod is static.
    mirror: Option<Arc<Pod>>,
    /// Whether `status` is an earlier one with the condition Quarantined added, because StatusManager itself has
    /// quarantined the pod.
    is_left_alone: bool,
}

/// The facts and statuses of all pods. Bounded by the pods that are desired, worked on or held by the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodStatusCache {
    node: NodeFacts,
    desired: PodSet<Arc<DesiredPod>>,
    is_restored: bool,
    /// Whether Pleg and the pool have said all: before, a pod of which they have told nothing may be there.
    has_heard_all: bool,
    pods: BTreeMap<PodUid, Entry>,
    /// As it was told last.
    quarantined: PodsQuarantined,
    /// Static pods that have a mirror at the API server.
    mirrored: BTreeSet<PodUid>,
    /// Desired pods whose worker has said nothing yet.
    silent: BTreeSet<PodUid>,
    /// Pods whose end waits for the runtime's word.
    unseen: BTreeSet<PodUid>,
}

/// What news of the desired pods lead to.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The statuses of these pods are to be computed.
    Compute(Vec<PodUid>),
    /// Something was missed: everything has to be told again.
    Missed,
}

impl PodStatusCache {
    /// A ledger that knows nothing but the node's addresses, primary first. It computes no status before
    /// [`PodStatusCache::restored`].
    pub fn new(host_ips: Vec<String>) -> Self {
        Self { node: NodeFacts { host_ips, ..NodeFacts::default() }, ..Self::default() }
    }

    /// Sets whether pods have the condition PodReadyToStartContainers.
    #[must_use]
    pub fn telling_ready_to_start(mut self, told: bool) -> Self {
        self.node.no_ready_to_start = !told;
        self
    }

    /// Sets whether containers show the signals by which they are stopped.
    #[must_use]
    pub fn telling_stop_signals(mut self, told: bool) -> Self {
        self.node.stop_signals = told;
        self
    }

    /// Sets whether mounts of image volumes show their images.
    #[must_use]
    pub fn telling_image_volume_digests(mut self, told: bool) -> Self {
        self.node.image_volume_digests = told;
        self
    }

    /// The status of a pod as last computed or restored.
    pub fn status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.pods.get(uid)?.status.clone()
    }

    /// The status of a pod that was made anew at this time; `None` while only the end of the one before it is known.
    pub fn status_since(&self, uid: &PodUid, made_anew: Option<Generation>) -> Option<Arc<PodStatus>> {
        let report = self.pods.get(uid)?.facts.report.as_ref();
        self.status(uid).filter(|_| report.is_none_or(|report| report.made_anew >= made_anew))
    }

    /// Whether this is a static pod that ends, or has ended, because its manifest was removed.
    pub fn is_removed_static(&self, uid: &PodUid) -> bool {
        let Some(PodFacts { desired, report, .. }) = self.pods.get(uid).map(|entry| &entry.facts) else {
            return false;
        };
        let is_static = desired.as_ref().is_some_and(|desired| desired.source != Source::Api);
        is_static && report.as_ref().is_some_and(|report| report.deleted)
    }

    /// The statuses of all pods that have one.
    pub fn statuses(&self) -> BTreeMap<PodUid, Arc<PodStatus>> {
        let told = |(uid, entry): (&PodUid, &Entry)| Some((uid.clone(), entry.status.clone()?));
        self.pods.iter().filter_map(told).collect()
    }

    /// How many pods are known, and how many of them have each phase.
    pub fn phases(&self) -> (usize, BTreeMap<String, usize>) {
        let mut phases = BTreeMap::new();
        for status in self.pods.values().filter_map(|e| e.status.as_ref()) {
            *phases.entry(status.phase.clone().unwrap_or_default()).or_insert(0) += 1;
        }
        (self.pods.len(), phases)
    }

    /// Takes the statuses of earlier incarnations, from the checkpoints. Returns the pods to compute.
    pub fn restored(&mut self, statuses: BTreeMap<PodUid, PodStatus>) -> Vec<PodUid> {
        for (uid, status) in statuses {
            let entry = self.pods.entry(uid).or_default();
            entry.status.get_or_insert_with(|| Arc::new(status));
        }
        self.is_restored = true;
        self.pods.keys().cloned().collect()
    }

    /// News of the desired pods.
    pub fn desired(&mut self, update: PodSetUpdate<Arc<DesiredPod>>) -> Heard {
        let touched = match self.desired.take(update) {
            Taken::Nothing => BTreeSet::new(),
            Taken::Pod(uid, _) => BTreeSet::from([uid]),
            Taken::All(_) => self.desired.uids().chain(self.pods.keys()).cloned().collect(),
            Taken::Missed => return Heard::Missed,
        };
        let is_news = |uid: &PodUid| blame::step(uid, || self.note_desired(uid)).unwrap_or_default();
        Heard::Compute(touched.into_iter().filter(is_news).collect())
    }

    /// Takes over whether the pod is desired, and how. Whether its status is to be computed.
    pub fn note_desired(&mut self, uid: &PodUid) -> bool {
        let is_news = if let Some(pod) = self.desired.get(uid) {
            let entry = self.pods.entry(uid.clone()).or_default();
            let known = entry.facts.desired.as_ref();
            let is_news = known.is_none_or(|known| !Arc::ptr_eq(known, pod) && known != pod);
            if is_news {
                entry.facts.desired = Some(pod.clone());
            }
            entry.is_desired = true;
            entry.renew();
            is_news
        } else {
            // Before every source has been heard absence means nothing (row 1.7).
            let removed = self.pods.get_mut(uid).filter(|_| self.desired.is_removed(uid));
            removed.map(|entry| entry.is_desired = false).is_some()
        };
        self.note_missing(uid);
        is_news
    }

    /// Takes the mirrors of static pods, by the static pods' UIDs. Returns the pods that have another mirror now.
    pub fn mirrors(&mut self, mirrors: &BTreeMap<PodUid, Arc<Pod>>) -> Vec<PodUid> {
        let now: BTreeSet<PodUid> = mirrors.keys().cloned().collect();
        let before = std::mem::replace(&mut self.mirrored, now);
        let mut touched = Vec::new();
        for uid in before.union(&self.mirrored) {
            let mirror = mirrors.get(uid);
            // Of a pod that is forgotten there is nothing to take away.
            if mirror.is_none() && !self.pods.contains_key(uid) {
                continue;
            }
            let entry = self.pods.entry(uid.clone()).or_default();
            let is_same = blame::step(uid, || entry.mirror.as_ref() == mirror).unwrap_or_default();
            if !is_same {
                entry.mirror = mirror.cloned();
                touched.push(uid.clone());
            }
        }
        touched
    }

    /// What the API server is to know of a pod; `None` for a pod that the ledger does not have.
    pub fn publication(&self, uid: &PodUid) -> Option<Publication> {
        let entry = self.pods.get(uid)?;
        let desired = entry.facts.desired.as_ref().filter(|_| entry.is_desired);
        let is_api = desired.is_some_and(|desired| desired.source == Source::Api);
        let object = match is_api {
            true => desired.map(|desired| desired.pod.clone()),
            false => entry.mirror.clone(),
        };
        let rejected = desired.is_some_and(|desired| desired.rejected.is_some());
        let report = entry.facts.report.as_ref();
        // A status that was computed while facts were missing only repeats the previous one.
        let is_known = report.is_some() && entry.facts.observed.is_some() && self.node.runtime_name.is_some();
        let is_told = rejected || is_known || entry.is_left_alone;
        let is_finished = match report {
            // The API server is told first how the pod has ended.
            Some(report) => report.released && report.deleted && entry.facts.has_last_look(),
            None => rejected,
        };
        Some(Publication {
            object,
            is_mirror: !is_api,
            status: entry.status.clone().filter(|_| is_told),
            is_finished,
        })
    }

    /// Takes Pleg's observation of a pod.
    pub fn observed(&mut self, uid: &PodUid, seen: SeenPod) {
        let facts = &mut self.pods.entry(uid.clone()).or_default().facts;
        facts.observed = Some(seen.state);
        // A Pleg that has begun anew knows no token of those before.
        facts.look = facts.look.max(seen.touch);
        self.note_missing(uid);
    }

    /// Takes the report of a pod's worker.
    pub fn reported(&mut self, uid: &PodUid, report: Arc<WorkerReport>) {
        let entry = self.pods.entry(uid.clone()).or_default();
        // The last report of the worker before may not have come.
        if entry.facts.report.as_ref().is_some_and(|before| before.made_anew < report.made_anew) {
            entry.status = None;
        }
        entry.facts.report = Some(report);
        entry.renew();
        self.note_missing(uid);
    }

    /// Whether Pleg and the pool have said all. Returns the pods to compute: those that may be over only with that.
    pub fn heard_all(&mut self, has_heard_all: bool) -> Vec<PodUid> {
        if std::mem::replace(&mut self.has_heard_all, has_heard_all) || !has_heard_all {
            return Vec::new();
        }
        let unheard = |entry: &Entry| !entry.is_desired && entry.facts.report.is_none();
        self.pods.iter().filter(|(_, entry)| unheard(entry)).map(|(uid, _)| uid.clone()).collect()
    }

    /// How long a pod has waited for images, as its worker reports.
    pub fn pulled(&self, uid: &PodUid) -> Duration {
        let report = self.pods.get(uid).and_then(|entry| entry.facts.report.as_ref());
        Duration::from_millis(report.map_or(0, |report| report.pulled_ms))
    }

    /// Whether the pod is being deleted at the API server.
    pub fn is_being_deleted(&self, uid: &PodUid) -> bool {
        let desired = self.pods.get(uid).and_then(|entry| entry.facts.desired.as_ref());
        desired.is_some_and(|desired| desired.pod.metadata.deletion_timestamp.is_some())
    }

    /// The newest report of the pod's worker.
    pub fn report(&self, uid: &PodUid) -> Option<Arc<WorkerReport>> {
        self.pods.get(uid)?.facts.report.clone()
    }

    /// How many containers the pod's status tells of, at most.
    pub fn containers(&self, uid: &PodUid) -> usize {
        let Some(Entry { facts, .. }) = self.pods.get(uid) else { return 0 };
        let desired = facts.desired.as_ref().and_then(|desired| desired.pod.spec.as_ref());
        let desired = desired.map_or(0, |spec| {
            let init = spec.init_containers.iter().flatten().count();
            spec.containers.len() + init + spec.ephemeral_containers.iter().flatten().count()
        });
        desired.max(facts.observed.as_ref().map_or(0, |observed| observed.containers.len()))
    }

    /// Whether anything is known of the pod.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Takes the settled probe verdicts of a pod.
    pub fn verdicts(&mut self, uid: &PodUid, verdicts: Arc<BTreeMap<String, ContainerVerdict>>) {
        self.pods.entry(uid.clone()).or_default().facts.verdicts = Some(verdicts);
    }

    /// Takes the pods that subsystems have quarantined, all of them: any other has been let in. Returns the pods to compute.
    pub fn quarantined(&mut self, now: PodsQuarantined) -> Vec<PodUid> {
        let before = std::mem::replace(&mut self.quarantined, now.clone());
        let mut changed = BTreeSet::new();
        for (subsystem, uid) in before.0.keys().filter(|one| !now.0.contains_key(*one)) {
            let pod = self.pods.get_mut(uid);
            if pod.is_some_and(|pod| pod.facts.quarantine.remove(subsystem).is_some()) {
                changed.insert(uid.clone());
            }
        }
        for ((subsystem, uid), panic) in now.0.iter() {
            let quarantine = &mut self.pods.entry(uid.clone()).or_default().facts.quarantine;
            if quarantine.insert(subsystem.clone(), panic.clone()).as_ref() != Some(panic) {
                changed.insert(uid.clone());
            }
        }
        changed.into_iter().collect()
    }

    /// Takes the runtime's name, which is the prefix of container IDs, and what its handlers can do. Returns the pods
    /// to compute.
    pub fn runtime(&mut self, health: &RuntimeHealth) -> Vec<PodUid> {
        let can = health.handlers.iter().filter(|handler| handler.recursive_read_only_mounts);
        let can: BTreeSet<String> = can.map(|handler| handler.name.clone()).collect();
        let known =
            self.node.runtime_name.as_ref() == Some(&health.name) && self.node.recursive_read_only == can;
        // A runtime that does not answer has no name; its last known name stays.
        if health.name.is_empty() || known {
            return Vec::new();
        }
        self.node.runtime_name = Some(health.name.clone());
        self.node.recursive_read_only = can;
        self.pods.keys().cloned().collect()
    }

    /// Takes the node's addresses, primary first. Returns the pods to compute.
    pub fn addresses(&mut self, host_ips: Vec<String>) -> Vec<PodUid> {
        // A Node without addresses, as before a cloud controller has set them, takes none away.
        if host_ips.is_empty() || self.node.host_ips == host_ips {
            return Vec::new();
        }
        self.node.host_ips = host_ips;
        self.pods.keys().cloned().collect()
    }

    /// Adds the condition Quarantined to the last status of a pod, and returns whether that changes it. For pods that
    /// StatusManager itself has quarantined: no other fact is looked at.
    pub fn say_quarantined(&mut self, uid: &PodUid, now: Timestamp) -> bool {
        let Some(entry) = self.pods.get_mut(uid).filter(|_| self.is_restored) else { return false };
        let desired = entry.facts.desired.as_ref();
        let of_api = desired.filter(|pod| pod.source == Source::Api).map(|pod| &pod.pod);
        let at_server = of_api.or(entry.mirror.as_ref()).and_then(|pod| pod.status.as_ref());
        let Some(mut status) = entry.status.as_deref().or(at_server).cloned().or_else(|| {
            desired.map(|_| PodStatus {
                phase: Some(pod_rules::phases::PENDING.to_owned()),
                ..PodStatus::default()
            })
        }) else {
            return false;
        };
        conditions::say_quarantined(status.conditions.get_or_insert_default(), &entry.facts.quarantine, now);
        let is_news = entry.status.as_deref() != Some(&status);
        entry.status = Some(Arc::new(status));
        entry.is_left_alone = true;
        is_news
    }

    /// The facts that have not come yet and may have been lost on the way.
    pub fn missing(&self) -> MissingFacts {
        MissingFacts {
            desired: !self.desired.is_known(),
            runtime: self.node.runtime_name.is_none(),
            reports: !self.silent.is_empty(),
            looks: self.unseen.iter().map(|uid| (uid.clone(), self.last_look(uid))).collect(),
        }
    }

    /// Whether anything is missing.
    pub fn is_missing_facts(&self) -> bool {
        let has_all = self.silent.is_empty() && self.unseen.is_empty();
        !self.desired.is_known() || self.node.runtime_name.is_none() || !has_all
    }

    fn last_look(&self, uid: &PodUid) -> u64 {
        let report = self.pods.get(uid).and_then(|entry| entry.facts.report.as_ref());
        report.map_or(0, |report| report.last_look)
    }

    fn note_missing(&mut self, uid: &PodUid) {
        let entry = self.pods.get(uid);
        let runs = |facts: &PodFacts| facts.desired.as_ref().is_some_and(|d| d.rejected.is_none());
        let is_silent = entry.is_some_and(|e| e.is_desired && e.facts.report.is_none() && runs(&e.facts));
        let has_seen = |facts: &PodFacts| facts.observed.is_some() && facts.has_last_look();
        let is_unseen = entry.is_some_and(|e| e.facts.is_stopped() && !has_seen(&e.facts));
        for (set, belongs) in [(&mut self.silent, is_silent), (&mut self.unseen, is_unseen)] {
            if belongs {
                set.insert(uid.clone());
            } else {
                set.remove(uid);
            }
        }
    }

    /// Computes the pod's status from its facts; returns the change, if there is one.
    pub fn compute(&mut self, uid: &PodUid, now: Timestamp) -> Option<Change> {
        if !self.is_restored {
            return None;
        }
        let entry = self.pods.get_mut(uid)?;
        let may_be_over = self.desired.is_complete() && !self.desired.is_unread(uid);
        if may_be_over && entry.is_over(self.has_heard_all) {
            self.pods.remove(uid);
            self.note_missing(uid);
            return Some(Change::Gone { uid: uid.clone() });
        }
        entry.is_left_alone = false;
        let pod = entry.facts.desired.as_ref()?.pod_ref.clone();
        let status = compute(&entry.facts, &self.node, entry.status.as_deref(), now)?;
        if entry.status.as_deref() == Some(&status) {
            return None;
        }
        let status = Arc::new(status);
        entry.status = Some(status.clone());
        Some(Change::Told { pod, status })
    }
}

impl Entry {
    /// Forgets the status of a static pod that was removed and put back: it has the same UID, but begins anew (row
    /// 4.7).
    fn renew(&mut self) {
        let is_static = self.facts.desired.as_ref().is_some_and(|d| d.source != Source::Api);
        let was_removed = self.facts.report.as_ref().is_some_and(|r| r.released && r.deleted);
        if self.is_desired && is_static && was_removed {
            self.facts.report = None;
            self.status = None;
        }
    }

    /// Whether the pod is neither desired nor worked on, and the runtime holds nothing of it.
    fn is_over(&self, has_heard_all: bool) -> bool {
        let runtime_empty = has_heard_all && self.facts.observed.as_ref().is_none_or(|o| o.is_absent());
        !self.is_desired && self.facts.report.as_ref().map_or(runtime_empty, |r| r.released)
    }
}

#[cfg(test)]
mod tests;
