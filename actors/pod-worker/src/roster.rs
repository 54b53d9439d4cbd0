//! Which workers there are, and what each is to be told: decided from the desired pods, what was observed, and the
//! workers' reports (rows 2.4, 3.6, 4.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{DesiredPod, DesiredPods, GonePods, Source, WorkerReport, WorkerState};
use messages::pod_worker::worker::Want;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};
use pod_rules::origin::is_static;
use supervision::blame;

/// What a worker was told last.
#[derive(Clone, Debug, PartialEq)]
enum Told {
    /// By this incarnation of the pool: nothing.
    Nothing,
    Run(Arc<DesiredPod>),
    /// With the pod as it was last desired.
    Gone(Option<Arc<DesiredPod>>),
}

#[derive(Clone, Debug)]
struct Worker {
    pod: PodRef,
    told: Told,
    is_static: bool,
    /// It was there before this incarnation of the pool.
    is_adopted: bool,
    report: Option<Arc<WorkerReport>>,
}

impl Worker {
    /// It has nothing on this node any more.
    fn is_released(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.state == WorkerState::Terminated && report.released)
    }

    /// It has gone for good.
    fn is_over(&self) -> bool {
        matches!(self.told, Told::Gone(_))
            && self.is_released()
            && self.report.as_ref().is_some_and(|report| report.deleted)
    }
}

/// Something to do about a worker.
#[derive(Clone, Debug)]
pub enum Order {
    /// Start a worker and tell it this.
    Start(PodRef, Want),
    /// Tell the worker this.
    Tell(PodRef, Want),
    /// The worker is over: forget everything about the pod.
    Forget(PodUid),
}

impl Order {
    /// The pod that it is about.
    pub fn uid(&self) -> &PodUid {
        match self {
            Self::Start(pod, _) | Self::Tell(pod, _) => &pod.uid,
            Self::Forget(uid) => uid,
        }
    }
}

/// Pods, observations and workers, by UID.
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
    /// A worker that an earlier incarnation of the pool has started.
    pub fn adopt(&mut self, uid: &PodUid) {
        let nameless = PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") };
        let worker =
            Worker { pod: nameless, told: Told::Nothing, is_static: true, is_adopted: true, report: None };
        self.workers.entry(uid.clone()).or_insert(worker);
    }

    /// The desired pods.
    pub fn desire(&mut self, pods: &DesiredPods) {
        self.desired = pods.pods.clone();
        self.gone = pods.gone.clone();
        self.sources_ready = pods.sources_ready;
        self.superseded = pods.superseded.clone();
    }

    /// What the runtime holds of a pod.
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

    /// A worker's report. Whether it may change what is to be done: most tell only what a pod waits for, and one that
    /// has been forgotten tells nothing.
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
            // An earlier incarnation of the pool had sent it away, and there is no way back: the pod starts anew
            // when it is over.
            worker.told = Told::Gone(Some(desired.clone()));
        }
        !same
    }

    /// A start that could not be carried out yet.
    pub fn not_started(&mut self, uid: &PodUid) {
        self.workers.remove(uid);
    }

    /// The worker's goal, as it was told.
    pub fn goal(&self, uid: &PodUid) -> Option<(PodRef, Want)> {
        let worker = self.workers.get(uid)?;
        match &worker.told {
            Told::Nothing => None,
            Told::Run(desired) => Some((worker.pod.clone(), Want::Run(desired.clone()))),
            Told::Gone(known) => Some((worker.pod.clone(), Want::Gone(known.clone()))),
        }
    }

    /// Whether an end that the pod's status shows is to be believed: as long as no worker of this kubelet has brought
    /// the pod up, and when one had begun to end it. A worker that restarts meets what others wrote meanwhile.
    pub fn trusts_end(&self, uid: &PodUid) -> bool {
        self.workers.get(uid).is_some_and(|worker| match &worker.report {
            None => !worker.is_adopted,
            Some(report) => report.state != WorkerState::Syncing,
        })
    }

    /// Every worker's newest report.
    pub fn reports(&self) -> BTreeMap<PodUid, Arc<WorkerReport>> {
        let reported = |(uid, worker): (&PodUid, &Worker)| Some((uid.clone(), worker.report.clone()?));
        self.workers.iter().filter_map(reported).collect()
    }

    /// Whether there is a worker.
    pub fn has(&self, uid: &PodUid) -> bool {
        self.workers.contains_key(uid)
    }

    /// Whether a pod is desired, rejected or not.
    pub fn is_desired(&self, uid: &PodUid) -> bool {
        self.desired.contains_key(uid)
    }

    /// Whether a pod is desired and comes from a file or URL.
    pub fn is_static(&self, uid: &PodUid) -> bool {
        self.desired.get(uid).is_some_and(|pod| is_static(pod.source))
    }

    /// How many workers there are by lifecycle, whether desired, and whether static: labels of `kubelet_working_pods`.
    /// As upstream, what there is none of is 0.
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

    /// Nothing is decided about these quarantined pods from now on, and again about all others.
    pub fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
    }

    /// What is to be done now. Taken as done.
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
            // From before its end: what comes later is news.
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
                // It ends first; then the pod gets a worker anew.
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

    /// Namespaces and names that static pods hold: two of one full name never overlap, so that after an edit the old
    /// one ends before the new one starts.
    fn names_taken(&self) -> BTreeSet<(Arc<str>, Arc<str>)> {
        let holds = |worker: &&Worker| worker.is_static && !worker.is_released();
        let name = |worker: &Worker| (worker.pod.namespace.clone(), worker.pod.name.clone());
        self.workers.values().filter(holds).map(name).collect()
    }

    /// The runtime holds pods that nobody desires: a worker stops each. Only when all sources were heard, or the one that
    /// the pod is from has another in its place.
    fn end_orphans(&mut self, orders: &mut Vec<Order>) {
        for (uid, state) in self.observed.iter().filter(|(uid, _)| !self.left_alone.contains(*uid)) {
            let _named = blame::name(uid);
            let wanted = self.desired.get(uid).is_some_and(|pod| pod.rejected.is_none());
            let is_gone = self.sources_ready || self.superseded.contains(uid);
            if wanted || !is_gone || self.workers.contains_key(uid) {
                continue;
            }
            // PodManager lets no static pod in before an earlier version of it has gone; of any other pod it may have
            // the name.
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

/// What is known of a pod that is gone, with what its deletion granted it: nobody may have heard of that before.
fn with_grace(known: &Arc<DesiredPod>, granted: Option<&i64>) -> Arc<DesiredPod> {
    let Some(granted) = granted.copied() else { return known.clone() };
    let mut pod = Pod::clone(&known.pod);
    pod.metadata.deletion_grace_period_seconds = Some(granted);
    Arc::new(DesiredPod { pod: Arc::new(pod), ..DesiredPod::clone(known) })
}

/// Whether a worker has the same to do. A pod of the API server changes with every status that it is told, which is
/// no news: an end that others write there is taken back.
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
