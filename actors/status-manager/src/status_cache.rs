//! All pods: their facts, their statuses, and the statuses that a new fact changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::facts::{ContainerVerdict, DesiredPod, Source, WorkerReport};
use messages::pod_set::{Generation, PodSetUpdate};
use messages::runtime::{RuntimeHealth, RuntimePod};
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
    /// Stopped pods of which Pleg has not told yet; they cannot end before.
    pub looks: Vec<PodUid>,
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
            Some(report) => report.released && report.deleted,
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
    pub fn observed(&mut self, uid: &PodUid, state: Arc<RuntimePod>) {
        let entry = self.pods.entry(uid.clone()).or_default();
        entry.facts.observed = Some(state);
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

    /// A subsystem has quarantined a pod because of this panic; with `None`, it has let the pod in again. Whether that is news.
    pub fn quarantined(&mut self, uid: &PodUid, subsystem: Arc<str>, panic: Option<Arc<str>>) -> bool {
        if let Some(panic) = panic {
            let quarantine = &mut self.pods.entry(uid.clone()).or_default().facts.quarantine;
            return quarantine.insert(subsystem, panic.clone()) != Some(panic);
        }
        self.pods.get_mut(uid).is_some_and(|pod| pod.facts.quarantine.remove(&subsystem).is_some())
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
            looks: self.unseen.iter().cloned().collect(),
        }
    }

    /// Whether anything is missing.
    pub fn is_missing_facts(&self) -> bool {
        let has_all = self.silent.is_empty() && self.unseen.is_empty();
        !self.desired.is_known() || self.node.runtime_name.is_none() || !has_all
    }

    fn note_missing(&mut self, uid: &PodUid) {
        let entry = self.pods.get(uid);
        let runs = |facts: &PodFacts| facts.desired.as_ref().is_some_and(|d| d.rejected.is_none());
        let is_silent = entry.is_some_and(|e| e.is_desired && e.facts.report.is_none() && runs(&e.facts));
        let is_unseen = entry.is_some_and(|e| e.facts.observed.is_none() && e.facts.is_stopped());
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
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    use messages::facts::{DesiredPod, WorkerState};
    use pod_set::Journal;

    use crate::scenes::*;

    /// Everything anew.
    fn desired_pods(pods: Vec<DesiredPod>, complete: bool) -> PodSetUpdate<Arc<DesiredPod>> {
        static INCARNATION: AtomicU64 = AtomicU64::new(1);
        let pods = pods.into_iter().map(|pod| (pod.pod_ref.uid.clone(), Arc::new(pod)));
        pod_set::snapshot(INCARNATION.fetch_add(1, Ordering::Relaxed), pods, complete)
    }

    fn none() -> Heard {
        Heard::Compute(Vec::new())
    }

    /// A ledger with one running pod, and the pod's UID.
    fn running_pod() -> (PodStatusCache, PodUid) {
        let uid = pod_ref().uid;
        let mut status_cache = PodStatusCache::new(Vec::new());
        status_cache.restored(BTreeMap::new());
        status_cache.desired(desired_pods(vec![desired(spec("Always", vec![container("a")]))], true));
        status_cache.runtime(&RuntimeHealth { name: Arc::from("containerd"), ..RuntimeHealth::default() });
        status_cache.observed(&uid, Arc::new(observed(vec![running("a", "a0", 0)])));
        status_cache.reported(&uid, Arc::new(report(WorkerState::Syncing)));
        assert!(matches!(status_cache.compute(&uid, at(0)), Some(Change::Told { .. })));
        assert_eq!(status_cache.compute(&uid, at(9)), None, "nothing has changed");
        (status_cache, uid)
    }

    #[test]
    fn nothing_is_computed_before_the_checkpoints_are_read() {
        let uid = pod_ref().uid;
        let mut status_cache = PodStatusCache::new(Vec::new());
        status_cache.desired(desired_pods(vec![desired(spec("Always", vec![container("a")]))], true));
        assert_eq!(status_cache.compute(&uid, at(0)), None);
        let done = PodStatus { phase: Some("Succeeded".into()), ..PodStatus::default() };
        assert_eq!(status_cache.restored(BTreeMap::from([(uid.clone(), done)])), std::slice::from_ref(&uid));
        status_cache.compute(&uid, at(1));
        assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some("Succeeded"));
    }

    #[test]
    fn a_pod_is_forgotten_when_nobody_wants_it_and_its_worker_has_let_go() {
        let (mut status_cache, uid) = running_pod();
        assert_eq!(status_cache.desired(desired_pods(vec![], false)), none(), "absence means nothing yet");
        assert_eq!(status_cache.desired(desired_pods(vec![], true)), Heard::Compute(vec![uid.clone()]));
        assert_eq!(status_cache.compute(&uid, at(1)), None, "its worker still has it");
        let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
        status_cache.reported(&uid, Arc::new(gone.clone()));
        assert!(!matches!(status_cache.compute(&uid, at(2)), Some(Change::Gone { .. })));
        status_cache.reported(&uid, Arc::new(WorkerReport { released: true, ..gone }));
        assert_eq!(status_cache.compute(&uid, at(3)), Some(Change::Gone { uid: uid.clone() }));
        assert_eq!((status_cache.status(&uid), status_cache.phases().0), (None, 0));
    }

    #[test]
    fn news_of_one_pod_are_computed_for_that_one_and_what_was_missed_is_known() {
        let (mut status_cache, uid) = running_pod();
        let pod = |name: &str| {
            let mut pod = desired(spec("Always", vec![container("a")]));
            pod.pod_ref.uid = PodUid::new(name);
            Arc::new(pod)
        };
        let mut journal = Journal::new(u64::MAX);
        journal.put(&uid, Arc::new(desired(spec("Always", vec![container("a")]))));
        journal.completed();
        assert_eq!(status_cache.desired(journal.snapshot()), none());
        let other = PodUid::new("other");
        assert_eq!(
            status_cache.desired(journal.put(&other, pod("other"))),
            Heard::Compute(vec![other.clone()])
        );
        assert!(
            status_cache.is_missing_facts() && status_cache.missing().reports,
            "its worker has said nothing"
        );
        status_cache.reported(&other, Arc::new(report(WorkerState::Syncing)));
        assert!(!status_cache.is_missing_facts());
        assert_eq!(status_cache.desired(journal.put(&other, pod("other"))), none(), "the same again");
        let _lost = journal.remove(&other, messages::pod_set::GonePod::default());
        assert_eq!(status_cache.desired(PodSetUpdate::Digest(journal.digest())), Heard::Missed);
    }

    #[test]
    fn a_static_pod_that_is_put_back_begins_anew() {
        let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
        let over = Arc::new(WorkerReport { released: true, ..gone.clone() });
        for (source, phase) in [(Source::File, "Pending"), (Source::Api, "Failed")] {
            let (mut status_cache, uid) = running_pod();
            let pod = desired(spec("Never", vec![container("a")]));
            status_cache.desired(desired_pods(vec![DesiredPod { source, ..pod }], true));
            status_cache.observed(&uid, Arc::new(stopped(vec![exited("a", "a0", 0, 1)])));
            status_cache.reported(&uid, Arc::new(gone.clone()));
            status_cache.compute(&uid, at(1));
            assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some("Failed"));
            status_cache.observed(&uid, Arc::new(RuntimePod::absent(pod_ref())));
            status_cache.reported(&uid, over.clone());
            status_cache.compute(&uid, at(2));
            assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some(phase), "{source:?}");
        }
    }

    #[test]
    fn a_pod_that_was_made_anew_has_nothing_of_the_end_before_it() {
        let (mut status_cache, uid) = running_pod();
        let pod = desired(spec("Never", vec![container("a")]));
        status_cache.desired(desired_pods(vec![DesiredPod { source: Source::File, ..pod }], true));
        status_cache.observed(&uid, Arc::new(stopped(vec![exited("a", "a0", 0, 1)])));
        let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
        status_cache.reported(&uid, Arc::new(gone));
        status_cache.compute(&uid, at(1));
        assert!(status_cache.status_since(&uid, None).is_some() && status_cache.is_removed_static(&uid));
        let made_anew = Some(Generation { incarnation: 1, number: 7 });
        assert_eq!(status_cache.status_since(&uid, made_anew), None, "of the pod before");
        // That the worker before has let go is never heard.
        status_cache.observed(&uid, Arc::new(RuntimePod::absent(pod_ref())));
        status_cache.reported(&uid, Arc::new(WorkerReport { made_anew, ..report(WorkerState::Syncing) }));
        status_cache.compute(&uid, at(2));
        let status = status_cache.status_since(&uid, made_anew).expect("its own");
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert!(!status_cache.is_removed_static(&uid));
    }

    #[test]
    fn every_pod_follows_the_nodes_addresses() {
        let (mut status_cache, uid) = running_pod();
        assert_eq!(status_cache.status(&uid).unwrap().host_ip, None);
        let both = || vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()];
        assert_eq!(status_cache.addresses(both()), std::slice::from_ref(&uid));
        status_cache.compute(&uid, at(1));
        let status = status_cache.status(&uid).unwrap();
        assert_eq!(status.host_ip.as_deref(), Some("192.0.2.7"));
        assert_eq!(status.host_ips.as_ref().map(Vec::len), Some(2));
        assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"), "its own network");
        assert!(status_cache.addresses(both()).is_empty(), "no news");
        assert!(status_cache.addresses(Vec::new()).is_empty(), "none is known for the moment");
    }

    #[test]
    fn what_is_missing_is_known() {
        let status_cache = PodStatusCache::new(Vec::new());
        let missing = status_cache.missing();
        assert!(missing.desired && missing.runtime);
        let (mut status_cache, uid) = running_pod();
        assert_eq!(status_cache.missing(), MissingFacts::default());
        status_cache.pods.get_mut(&uid).unwrap().facts.observed = None;
        assert!(!status_cache.is_missing_facts());
        status_cache.reported(&uid, Arc::new(report(WorkerState::Terminated)));
        assert_eq!(status_cache.missing(), MissingFacts { looks: vec![uid], ..MissingFacts::default() });
    }
}
