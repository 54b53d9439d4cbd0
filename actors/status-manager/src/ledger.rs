//! All pods: their facts, their statuses, and the statuses that a new fact changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use messages::facts::{ContainerVerdict, DesiredPods, Source, WorkerReport};
use messages::runtime::{ContainerState, RuntimeHealth, RuntimePod};
use messages::{PodRef, PodUid};
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
pub struct Missing {
    /// The desired pods.
    pub desired: bool,
    /// The runtime's name.
    pub runtime: bool,
    /// The report of some desired pod's worker.
    pub reports: bool,
    /// Stopped pods of which Pleg has not told yet; they cannot end before.
    pub looks: Vec<PodUid>,
}

impl Missing {
    /// Whether no fact is missing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
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
pub struct Ledger {
    node: NodeFacts,
    has_desired: bool,
    sources_ready: bool,
    is_restored: bool,
    pods: BTreeMap<PodUid, Entry>,
}

impl Ledger {
    /// A ledger that knows nothing but the node's addresses, primary first. It computes no status before
    /// [`Ledger::restored`].
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

    /// Takes the desired pods. Returns the pods to compute.
    pub fn desired(&mut self, desired: &DesiredPods) -> Vec<PodUid> {
        self.has_desired = true;
        self.sources_ready = desired.sources_ready;
        let mut touched = Vec::new();
        for (uid, pod) in &*desired.pods {
            blame::for_pod(uid, || {
                let entry = self.pods.entry(uid.clone()).or_default();
                entry.is_desired = true;
                if entry.facts.desired.as_ref().is_none_or(|known| !Arc::ptr_eq(known, pod) && known != pod) {
                    entry.facts.desired = Some(pod.clone());
                    touched.push(uid.clone());
                }
                entry.renew();
            });
        }
        // Before every source has been heard absence means nothing (row 1.7).
        for (uid, entry) in &mut self.pods {
            let is_gone = desired.sources_ready || desired.superseded.contains(uid);
            if is_gone && !desired.pods.contains_key(uid) {
                entry.is_desired = false;
                touched.push(uid.clone());
            }
        }
        touched
    }

    /// Takes the mirrors of static pods, by the static pods' UIDs. Returns the pods that have another mirror now.
    pub fn mirrors(&mut self, mirrors: &BTreeMap<PodUid, Arc<Pod>>) -> Vec<PodUid> {
        for uid in mirrors.keys() {
            self.pods.entry(uid.clone()).or_default();
        }
        let mut touched = Vec::new();
        for (uid, entry) in &mut self.pods {
            blame::for_pod(uid, || {
                let mirror = mirrors.get(uid);
                if entry.mirror.as_ref() != mirror {
                    entry.mirror = mirror.cloned();
                    touched.push(uid.clone());
                }
            });
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
        if entry.facts.observed.as_ref().is_none_or(|known| !contradicts(known, &state)) {
            entry.facts.observed = Some(state);
        }
    }

    /// Takes the report of a pod's worker.
    pub fn reported(&mut self, uid: &PodUid, report: Arc<WorkerReport>) {
        let entry = self.pods.entry(uid.clone()).or_default();
        entry.facts.report = Some(report);
        entry.renew();
    }

    /// Takes a worker's report out of PodWorkerPool's answer, unless the worker has reported itself. Returns whether it
    /// was taken.
    pub fn report_if_unknown(&mut self, uid: &PodUid, report: Arc<WorkerReport>) -> bool {
        let is_news = self.pods.get(uid).is_none_or(|e| e.facts.report.is_none());
        if is_news {
            self.reported(uid, report);
        }
        is_news
    }

    /// Takes the settled probe verdicts of a pod.
    pub fn verdicts(&mut self, uid: &PodUid, verdicts: Arc<BTreeMap<String, ContainerVerdict>>) {
        self.pods.entry(uid.clone()).or_default().facts.verdicts = Some(verdicts);
    }

    /// A subsystem has quarantined a pod because of this panic; with `None`, it has let the pod in again.
    pub fn quarantined(&mut self, uid: &PodUid, subsystem: Arc<str>, panic: Option<Arc<str>>) {
        let quarantine = &mut self.pods.entry(uid.clone()).or_default().facts.quarantine;
        match panic {
            Some(panic) => quarantine.insert(subsystem, panic),
            None => quarantine.remove(&subsystem),
        };
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
    pub fn missing(&self) -> Missing {
        let unseen = |e: &Entry| e.facts.observed.is_none() && e.facts.is_stopped();
        let silent = |e: &Entry| {
            e.is_desired
                && e.facts.report.is_none()
                && e.facts.desired.as_ref().is_some_and(|d| d.rejected.is_none())
        };
        Missing {
            desired: !self.has_desired,
            runtime: self.node.runtime_name.is_none(),
            reports: self.pods.values().any(silent),
            looks: self.pods.iter().filter(|(_, e)| unseen(e)).map(|(uid, _)| uid.clone()).collect(),
        }
    }

    /// Computes the pod's status from its facts; returns the change, if there is one.
    pub fn compute(&mut self, uid: &PodUid, now: Timestamp) -> Option<Change> {
        if !self.is_restored {
            return None;
        }
        let entry = self.pods.get_mut(uid)?;
        if self.sources_ready && entry.is_over() {
            self.pods.remove(uid);
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
    fn is_over(&self) -> bool {
        let runtime_empty = self.facts.observed.as_ref().is_none_or(|o| o.is_absent());
        !self.is_desired && self.facts.report.as_ref().map_or(runtime_empty, |r| r.released)
    }
}

/// Whether a container that has exited runs again in `seen`: that never happens, so `seen` is older than `known`. (The
/// look's number does not tell: a restarted Pleg counts anew.)
fn contradicts(known: &RuntimePod, seen: &RuntimePod) -> bool {
    known.containers.iter().filter(|k| k.state == ContainerState::Exited).any(|k| {
        seen.containers
            .iter()
            .any(|s| s.id == k.id && matches!(s.state, ContainerState::Running | ContainerState::Created))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use messages::facts::{DesiredPod, WorkerState};

    use crate::scenes::*;

    fn desired_pods(pods: Vec<DesiredPod>, sources_ready: bool) -> DesiredPods {
        let pods = pods.into_iter().map(|pod| (pod.pod_ref.uid.clone(), Arc::new(pod))).collect();
        DesiredPods { pods: Arc::new(pods), sources_ready, gone: Arc::default(), superseded: Arc::default() }
    }

    /// A ledger with one running pod, and the pod's UID.
    fn running_pod() -> (Ledger, PodUid) {
        let uid = pod_ref().uid;
        let mut ledger = Ledger::new(Vec::new());
        ledger.restored(BTreeMap::new());
        ledger.desired(&desired_pods(vec![desired(spec("Always", vec![container("a")]))], true));
        ledger.runtime(&RuntimeHealth { name: Arc::from("containerd"), ..RuntimeHealth::default() });
        ledger.observed(&uid, Arc::new(observed(vec![running("a", "a0", 0)])));
        ledger.reported(&uid, Arc::new(report(WorkerState::Syncing)));
        assert!(matches!(ledger.compute(&uid, at(0)), Some(Change::Told { .. })));
        assert_eq!(ledger.compute(&uid, at(9)), None, "nothing has changed");
        (ledger, uid)
    }

    #[test]
    fn nothing_is_computed_before_the_checkpoints_are_read() {
        let uid = pod_ref().uid;
        let mut ledger = Ledger::new(Vec::new());
        ledger.desired(&desired_pods(vec![desired(spec("Always", vec![container("a")]))], true));
        assert_eq!(ledger.compute(&uid, at(0)), None);
        let done = PodStatus { phase: Some("Succeeded".into()), ..PodStatus::default() };
        assert_eq!(ledger.restored(BTreeMap::from([(uid.clone(), done)])), std::slice::from_ref(&uid));
        ledger.compute(&uid, at(1));
        assert_eq!(ledger.status(&uid).unwrap().phase.as_deref(), Some("Succeeded"));
    }

    #[test]
    fn a_pod_is_forgotten_when_nobody_wants_it_and_its_worker_has_let_go() {
        let (mut ledger, uid) = running_pod();
        assert!(ledger.desired(&desired_pods(vec![], false)).is_empty(), "absence means nothing yet");
        assert_eq!(ledger.desired(&desired_pods(vec![], true)), std::slice::from_ref(&uid));
        assert_eq!(ledger.compute(&uid, at(1)), None, "its worker still has it");
        let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
        ledger.reported(&uid, Arc::new(gone.clone()));
        assert!(!matches!(ledger.compute(&uid, at(2)), Some(Change::Gone { .. })));
        ledger.reported(&uid, Arc::new(WorkerReport { released: true, ..gone }));
        assert_eq!(ledger.compute(&uid, at(3)), Some(Change::Gone { uid: uid.clone() }));
        assert_eq!((ledger.status(&uid), ledger.phases().0), (None, 0));
    }

    #[test]
    fn a_static_pod_that_is_put_back_begins_anew() {
        let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
        let over = Arc::new(WorkerReport { released: true, ..gone.clone() });
        for (source, phase) in [(Source::File, "Pending"), (Source::Api, "Failed")] {
            let (mut ledger, uid) = running_pod();
            let pod = desired(spec("Never", vec![container("a")]));
            ledger.desired(&desired_pods(vec![DesiredPod { source, ..pod }], true));
            ledger.observed(&uid, Arc::new(stopped(vec![exited("a", "a0", 0, 1)])));
            ledger.reported(&uid, Arc::new(gone.clone()));
            ledger.compute(&uid, at(1));
            assert_eq!(ledger.status(&uid).unwrap().phase.as_deref(), Some("Failed"));
            ledger.observed(&uid, Arc::new(RuntimePod::absent(pod_ref())));
            ledger.reported(&uid, over.clone());
            ledger.compute(&uid, at(2));
            assert_eq!(ledger.status(&uid).unwrap().phase.as_deref(), Some(phase), "{source:?}");
        }
    }

    #[test]
    fn the_pools_answer_does_not_overwrite_what_a_worker_said_itself() {
        let (mut ledger, uid) = running_pod();
        ledger.reported(&uid, Arc::new(report(WorkerState::Terminating)));
        assert!(!ledger.report_if_unknown(&uid, Arc::new(report(WorkerState::Syncing))));
        let known = ledger.pods[&uid].facts.report.as_ref().map(|r| r.state);
        assert_eq!(known, Some(WorkerState::Terminating));
        ledger.pods.get_mut(&uid).unwrap().facts.report = None;
        assert!(ledger.report_if_unknown(&uid, Arc::new(report(WorkerState::Syncing))));
    }

    #[test]
    fn every_pod_follows_the_nodes_addresses() {
        let (mut ledger, uid) = running_pod();
        assert_eq!(ledger.status(&uid).unwrap().host_ip, None);
        let both = || vec!["192.0.2.7".to_owned(), "2001:db8::7".to_owned()];
        assert_eq!(ledger.addresses(both()), std::slice::from_ref(&uid));
        ledger.compute(&uid, at(1));
        let status = ledger.status(&uid).unwrap();
        assert_eq!(status.host_ip.as_deref(), Some("192.0.2.7"));
        assert_eq!(status.host_ips.as_ref().map(Vec::len), Some(2));
        assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.5"), "its own network");
        assert!(ledger.addresses(both()).is_empty(), "no news");
        assert!(ledger.addresses(Vec::new()).is_empty(), "none is known for the moment");
    }

    #[test]
    fn a_look_that_is_older_than_what_is_known_is_ignored() {
        let (mut ledger, uid) = running_pod();
        ledger.observed(&uid, Arc::new(observed(vec![exited("a", "a0", 0, 1)])));
        ledger.compute(&uid, at(1));
        let known = ledger.status(&uid);
        ledger.observed(&uid, Arc::new(observed(vec![running("a", "a0", 0)])));
        assert_eq!(ledger.compute(&uid, at(2)), None);
        assert_eq!(ledger.status(&uid), known);
    }

    #[test]
    fn what_is_missing_is_known() {
        let ledger = Ledger::new(Vec::new());
        let missing = ledger.missing();
        assert!(missing.desired && missing.runtime);
        let (mut ledger, uid) = running_pod();
        assert!(ledger.missing().is_empty());
        ledger.pods.get_mut(&uid).unwrap().facts.observed = None;
        ledger.reported(&uid, Arc::new(report(WorkerState::Terminated)));
        assert_eq!(ledger.missing(), Missing { looks: vec![uid], ..Missing::default() });
    }
}
