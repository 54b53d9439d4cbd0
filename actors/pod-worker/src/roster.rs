//! PURE: which workers there are, and what the pool has to tell each: from the desired pods, the observed
//! pods and the workers' reports (rows 2.4, 3.6, 4.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{DesiredPod, DesiredPods, GonePods, Source, WorkerReport, WorkerState};
use messages::pod_worker::worker::Want;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};
use pod_rules::origin::is_static;
use supervision::blame;

/// The goal that a worker was told last.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// This incarnation of the pool has not told it any goal.
    Nothing,
    Run(Arc<DesiredPod>),
    /// The worker was told to end the pod; with the pod as it was last desired.
    Gone(Option<Arc<DesiredPod>>),
}

#[derive(Clone, Debug)]
struct Worker {
    pod: PodRef,
    told: Told,
    is_static: bool,
    /// Whether an earlier incarnation of the pool has started it.
    is_adopted: bool,
    report: Option<Arc<WorkerReport>>,
}

impl Worker {
    /// Whether the pod holds nothing on this node any more.
    fn is_released(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.state == WorkerState::Terminated && report.released)
    }

    /// Whether the worker is done for good.
    fn is_over(&self) -> bool {
        matches!(self.told, Told::Gone(_))
            && self.is_released()
            && self.report.as_ref().is_some_and(|report| report.deleted)
    }
}

/// An order to the pool about one worker.
#[derive(Clone, Debug)]
pub enum Order {
    /// Start a worker and tell it this goal.
    Start(PodRef, Want),
    /// Tell the worker this goal.
    Tell(PodRef, Want),
    /// The worker is over: forget everything about the pod.
    Forget(PodUid),
}

impl Order {
    /// The pod that the order is about.
    pub fn uid(&self) -> &PodUid {
        match self {
            Self::Start(pod, _) | Self::Tell(pod, _) => &pod.uid,
            Self::Forget(uid) => uid,
        }
    }
}

/// The desired pods, the observed pods and the workers, by UID.
#[derive(Debug, Default)]
pub struct Roster {
    desired: Arc<BTreeMap<PodUid, Arc<DesiredPod>>>,
    gone: GonePods,
    sources_ready: bool,
    superseded: Arc<BTreeSet<PodUid>>,
    observed: BTreeMap<PodUid, Arc<RuntimePod>>,
    workers: BTreeMap<PodUid, Worker>,
    left_alone: BTreeSet<PodUid>,
}

impl Roster {
    /// Adds a worker that an earlier incarnation of the pool has started.
    pub fn adopt(&mut self, uid: &PodUid) {
        let nameless = PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") };
        let worker =
            Worker { pod: nameless, told: Told::Nothing, is_static: true, is_adopted: true, report: None };
        self.workers.entry(uid.clone()).or_insert(worker);
    }

    /// Takes the desired pods from PodManager.
    pub fn desire(&mut self, pods: &DesiredPods) {
        self.desired = pods.pods.clone();
        self.gone = pods.gone.clone();
        self.sources_ready = pods.sources_ready;
        self.superseded = pods.superseded.clone();
    }

    /// Takes Pleg's observation of a pod.
    pub fn observe(&mut self, uid: &PodUid, state: &Arc<RuntimePod>) {
        if let Some(worker) = self.workers.get_mut(uid).filter(|worker| worker.pod.name.is_empty()) {
            worker.pod = state.pod.clone();
        }
        if state.is_absent() {
            self.observed.remove(uid);
        } else {
            self.observed.insert(uid.clone(), state.clone());
        }
    }

    /// Takes a worker's report. True if it may change the next decision: most reports only tell what a pod
    /// waits for, and a report of a forgotten worker changes nothing.
    pub fn report(&mut self, uid: &PodUid, report: &Arc<WorkerReport>) -> bool {
        let Some(worker) = self.workers.get_mut(uid) else { return false };
        let decisive =
            |report: &WorkerReport| (report.state, report.released, report.deleted, report.pod.clone());
        let same = worker.report.as_ref().is_some_and(|before| decisive(before) == decisive(report));
        worker.pod = report.pod.clone();
        worker.report = Some(report.clone());
        if let Told::Run(desired) = &worker.told
            && report.deleted
            && desired.pod.metadata.deletion_timestamp.is_none()
        {
            // An earlier incarnation of the pool had told the worker to end the pod, which cannot be taken
            // back: the pod gets a new worker when this one is over.
            worker.told = Told::Gone(Some(desired.clone()));
        }
        !same
    }

    /// Takes back a start that could not be carried out yet.
    pub fn not_started(&mut self, uid: &PodUid) {
        self.workers.remove(uid);
    }

    /// The goal that the worker was told last; `None` if this incarnation told none.
    pub fn goal(&self, uid: &PodUid) -> Option<(PodRef, Want)> {
        let worker = self.workers.get(uid)?;
        match &worker.told {
            Told::Nothing => None,
            Told::Run(desired) => Some((worker.pod.clone(), Want::Run(desired.clone()))),
            Told::Gone(known) => Some((worker.pod.clone(), Want::Gone(known.clone()))),
        }
    }

    /// Whether a worker may believe an end that the pod's status at the API server shows: yes while no worker
    /// of this kubelet has started the pod, and once a worker has begun to end it. Otherwise other clients
    /// may have written that status while the pod ran.
    pub fn trusts_end(&self, uid: &PodUid) -> bool {
        self.workers.get(uid).is_some_and(|worker| match &worker.report {
            None => !worker.is_adopted,
            Some(report) => report.state != WorkerState::Syncing,
        })
    }

    /// The newest report of every worker.
    pub fn reports(&self) -> BTreeMap<PodUid, Arc<WorkerReport>> {
        let reported = |(uid, worker): (&PodUid, &Worker)| Some((uid.clone(), worker.report.clone()?));
        self.workers.iter().filter_map(reported).collect()
    }

    /// Whether the pod has a worker.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid)
    }

    /// Whether a pod is desired, rejected ones included.
    pub fn is_desired(&self, uid: &PodUid) -> bool {
        self.desired.contains_key(uid)
    }

    /// Whether a pod is desired and comes from a file or URL.
    pub fn is_static(&self, uid: &PodUid) -> bool {
        self.desired.get(uid).is_some_and(|pod| is_static(pod.source))
    }

    /// The number of workers by lifecycle, by whether the pod is desired, and by whether it is static: the
    /// labels of `kubelet_working_pods`. As upstream, combinations without a worker are 0.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str, &'static str), i64> {
        const WHOSE: [(&str, &str); 5] = [
            ("desired", "true"),
            ("desired", ""),
            ("orphan", "true"),
            ("orphan", ""),
            ("runtime_only", "unknown"),
        ];
        let mut counts = BTreeMap::new();
        for state in ["sync", "terminating", "terminated"] {
            counts.extend(WHOSE.map(|(config, fixed)| ((state, config, fixed), 0)));
        }
        for (uid, worker) in &self.workers {
            let state = match worker.report.as_ref().map(|report| report.state) {
                None | Some(WorkerState::Syncing) => "sync",
                Some(WorkerState::Terminating) => "terminating",
                Some(WorkerState::Terminated) => "terminated",
            };
            let (config, fixed) = match self.desired.get(uid) {
                Some(_) => ("desired", if worker.is_static { "true" } else { "" }),
                None if worker.told == Told::Gone(None) => ("runtime_only", "unknown"),
                None => ("orphan", if worker.is_static { "true" } else { "" }),
            };
            *counts.entry((state, config, fixed)).or_default() += 1;
        }
        counts
    }

    /// Sets the quarantined pods: nothing is decided about them from now on, and about all others decisions
    /// are made again.
    pub fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
    }

    /// The orders that are due now. They count as carried out.
    pub fn decide(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        self.forget_the_gone(&mut orders);
        self.tell_workers(&mut orders);
        self.start_desired(&mut orders);
        self.end_orphans(&mut orders);
        orders
    }

    fn forget_the_gone(&mut self, orders: &mut Vec<Order>) {
        let over = |(uid, worker): &(&PodUid, &Worker)| worker.is_over() && !self.left_alone.contains(*uid);
        let over: Vec<PodUid> = self.workers.iter().filter(over).map(|(uid, _)| uid.clone()).collect();
        for uid in over {
            let _named = blame::name(&uid);
            self.workers.remove(&uid);
            // The observation is from before the pod's end; a later one starts anew.
            self.observed.remove(&uid);
            orders.push(Order::Forget(uid));
        }
    }

    fn tell_workers(&mut self, orders: &mut Vec<Order>) {
        let left_alone = &self.left_alone;
        for (uid, worker) in self.workers.iter_mut().filter(|(uid, _)| !left_alone.contains(*uid)) {
            let _named = blame::name(uid);
            let runnable = self.desired.get(uid).filter(|pod| pod.rejected.is_none());
            match (runnable, &worker.told) {
                // The worker ends the pod first; then the pod gets a new worker.
                (Some(_), Told::Gone(_)) => {}
                (Some(desired), Told::Run(known)) if is_same_work(known, desired) => {}
                (Some(desired), _) => {
                    worker.pod = desired.pod_ref.clone();
                    worker.is_static = is_static(desired.source);
                    worker.told = Told::Run(desired.clone());
                    orders.push(Order::Tell(worker.pod.clone(), Want::Run(desired.clone())));
                }
                (None, Told::Gone(_)) => {}
                (None, told) if self.sources_ready || self.superseded.contains(uid) => {
                    let known = match told {
                        Told::Run(known) => Some(with_grace(known, self.gone.get(uid))),
                        _ => None,
                    };
                    worker.told = Told::Gone(known.clone());
                    orders.push(Order::Tell(worker.pod.clone(), Want::Gone(known)));
                }
                (None, _) => {}
            }
        }
    }

    fn start_desired(&mut self, orders: &mut Vec<Order>) {
        let missing: Vec<Arc<DesiredPod>> = self
            .desired
            .iter()
            .filter(|(uid, pod)| pod.rejected.is_none() && !self.workers.contains_key(*uid))
            .filter(|(uid, _)| !self.left_alone.contains(*uid))
            .map(|(_, pod)| pod.clone())
            .collect();
        if missing.is_empty() {
            return;
        }
        let mut names = self.names_taken();
        for desired in missing {
            let pod = &desired.pod_ref;
            let _named = blame::name(&pod.uid);
            if is_static(desired.source) && !names.insert((pod.namespace.clone(), pod.name.clone())) {
                continue;
            }
            self.workers.insert(
                desired.pod_ref.uid.clone(),
                Worker {
                    pod: desired.pod_ref.clone(),
                    told: Told::Run(desired.clone()),
                    is_static: is_static(desired.source),
                    is_adopted: false,
                    report: None,
                },
            );
            orders.push(Order::Start(desired.pod_ref.clone(), Want::Run(desired)));
        }
    }

    /// Namespaces and names of the static pods that hold something on the node. Two static pods of one full
    /// name never overlap: after an edit the old one ends before the new one starts.
    fn names_taken(&self) -> BTreeSet<(Arc<str>, Arc<str>)> {
        let holds = |worker: &&Worker| worker.is_static && !worker.is_released();
        let name = |worker: &Worker| (worker.pod.namespace.clone(), worker.pod.name.clone());
        self.workers.values().filter(holds).map(name).collect()
    }

    /// Starts a worker to end each pod that the runtime holds and that is not desired: once all sources were
    /// heard, or when the pod's own source has another pod in its place.
    fn end_orphans(&mut self, orders: &mut Vec<Order>) {
        for (uid, state) in self.observed.iter().filter(|(uid, _)| !self.left_alone.contains(*uid)) {
            let _named = blame::name(uid);
            let wanted = self.desired.get(uid).is_some_and(|pod| pod.rejected.is_none());
            let is_gone = self.sources_ready || self.superseded.contains(uid);
            if wanted || !is_gone || self.workers.contains_key(uid) {
                continue;
            }
            // Not counted as static: PodManager admits no static pod before an earlier one of its name has
            // gone, and any other pod may have the same name.
            let worker = Worker {
                pod: state.pod.clone(),
                told: Told::Gone(None),
                is_static: false,
                is_adopted: false,
                report: None,
            };
            self.workers.insert(uid.clone(), worker);
            orders.push(Order::Start(state.pod.clone(), Want::Gone(None)));
        }
    }
}

/// A removed pod with the grace period that its deletion granted: the worker may not have heard of that
/// deletion before.
fn with_grace(known: &Arc<DesiredPod>, granted: Option<&i64>) -> Arc<DesiredPod> {
    let Some(granted) = granted.copied() else { return known.clone() };
    let mut pod = Pod::clone(&known.pod);
    pod.metadata.deletion_grace_period_seconds = Some(granted);
    Arc::new(DesiredPod { pod: Arc::new(pod), ..DesiredPod::clone(known) })
}

/// Whether two desired pods mean the same work. A pod of the API server changes with each status that is
/// written there, which is no new work: StatusManager takes back an end that other clients write.
fn is_same_work(known: &Arc<DesiredPod>, desired: &Arc<DesiredPod>) -> bool {
    if Arc::ptr_eq(known, desired) {
        return true;
    }
    if known.source != Source::Api || desired.source != Source::Api {
        return known == desired;
    }
    let (a, b) = (&known.pod, &desired.pod);
    let (old, new) = (&a.metadata, &b.metadata);
    known.pod_ref == desired.pod_ref
        && known.rejected == desired.rejected
        && old.labels == new.labels
        && old.annotations == new.annotations
        && old.deletion_timestamp == new.deletion_timestamp
        && old.deletion_grace_period_seconds == new.deletion_grace_period_seconds
        && a.spec == b.spec
}

#[cfg(test)]
mod tests;
