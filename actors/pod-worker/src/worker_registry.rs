//! PURE: which workers there are, and what the pool has to tell each: from the desired pods, the observed
//! pods and the workers' reports (rows 2.4, 3.6, 4.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{DesiredPod, Source, WorkerReport, WorkerState};
use messages::pod_set::PodSetUpdate;
use messages::pod_worker::worker::Want;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};
use pod_rules::origin::is_static;
use pod_set::{PodSet, Taken};
use supervision::blame;

/// The goal that a worker was told last.
#[derive(Clone, Debug, PartialEq)]
enum LastOrder {
    /// This incarnation of the pool has not told it any goal.
    Nothing,
    Run(Arc<DesiredPod>),
    /// The worker was told to end the pod; with the pod as it was last desired.
    Gone(Option<Arc<DesiredPod>>),
}

#[derive(Clone, Debug)]
struct Worker {
    pod: PodRef,
    told: LastOrder,
    is_static: bool,
    /// Whether an earlier incarnation of the pool has started it.
    is_adopted: bool,
    report: Option<Arc<WorkerReport>>,
    /// Whether it has ended, also if its last report was lost.
    has_ended: bool,
}

impl Worker {
    /// Whether the pod holds nothing on this node any more.
    fn is_released(&self) -> bool {
        let is_released =
            |report: &Arc<WorkerReport>| report.state == WorkerState::Terminated && report.released;
        self.has_ended || self.report.as_ref().is_some_and(is_released)
    }

    /// Whether the worker is done for good.
    fn is_over(&self) -> bool {
        let is_deleted = || self.report.as_ref().is_some_and(|report| report.deleted);
        self.has_ended || (matches!(self.told, LastOrder::Gone(_)) && self.is_released() && is_deleted())
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

/// The labels of `kubelet_working_pods`: lifecycle, whether desired, and whether static.
type Labels = (&'static str, &'static str, &'static str);

/// Pods, observations and workers, by UID.
#[derive(Debug, Default)]
pub struct WorkerRegistry {
    desired: PodSet<Arc<DesiredPod>>,
    observed: BTreeMap<PodUid, Arc<RuntimePod>>,
    workers: BTreeMap<PodUid, Worker>,
    left_alone: BTreeSet<PodUid>,
    /// Pods of which something has changed since the last decision.
    touched: BTreeSet<PodUid>,
    /// Static pods that wait until another one no longer has their name.
    nameless: BTreeSet<PodUid>,
    /// As which each worker is counted, and how many workers are counted as what.
    counted: BTreeMap<PodUid, Labels>,
    counts: BTreeMap<Labels, i64>,
}

impl WorkerRegistry {
    /// Adds a worker that an earlier incarnation of the pool has started.
    pub fn adopt(&mut self, uid: &PodUid) {
        let nameless = PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") };
        let worker = Worker {
            pod: nameless,
            told: LastOrder::Nothing,
            is_static: true,
            is_adopted: true,
            report: None,
            has_ended: false,
        };
        self.workers.entry(uid.clone()).or_insert(worker);
        self.touched.insert(uid.clone());
    }

    /// News of the desired pods. Whether something was missed and has to be asked for.
    pub fn desire(&mut self, update: PodSetUpdate<Arc<DesiredPod>>) -> bool {
        match self.desired.take(update) {
            Taken::Nothing => {}
            Taken::Pod(uid, _) => {
                self.touched.insert(uid);
            }
            Taken::All(_) => self.touch_all(),
            Taken::Missed => return true,
        }
        false
    }

    /// Every pod is to be decided about.
    pub fn touch_all(&mut self) {
        let uids = self.desired.uids().chain(self.workers.keys()).chain(self.observed.keys());
        self.touched = uids.cloned().collect();
    }

    /// Takes Pleg's observation of a pod.
    pub fn observe(&mut self, uid: &PodUid, state: &Arc<RuntimePod>) {
        self.touched.insert(uid.clone());
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
        self.touched.insert(uid.clone());
        let decisive =
            |report: &WorkerReport| (report.state, report.released, report.deleted, report.pod.clone());
        let same = worker.report.as_ref().is_some_and(|before| decisive(before) == decisive(report));
        worker.pod = report.pod.clone();
        worker.report = Some(report.clone());
        if let LastOrder::Run(desired) = &worker.told
            && report.deleted
            && desired.pod.metadata.deletion_timestamp.is_none()
        {
            // An earlier incarnation of the pool had told the worker to end the pod, which cannot be taken
            // back: the pod gets a new worker when this one is over.
            worker.told = LastOrder::Gone(Some(desired.clone()));
        }
        !same
    }

    /// The worker has ended, which none does before nothing is left of its pod. Whether that is news.
    pub fn ended(&mut self, uid: &PodUid) -> bool {
        let Some(worker) = self.workers.get_mut(uid) else { return false };
        self.touched.insert(uid.clone());
        !std::mem::replace(&mut worker.has_ended, true)
    }

    /// A start that could not be carried out yet: it is decided about anew when [`WorkerRegistry::touch`] says so.
    pub fn not_started(&mut self, uid: &PodUid) {
        self.workers.remove(uid);
        self.count(uid);
    }

    /// The pod is to be decided about: what kept it from being started or from being decided about is over.
    pub fn touch(&mut self, uid: &PodUid) {
        self.touched.insert(uid.clone());
    }

    /// The goal that the worker was told last; `None` if this incarnation told none.
    pub fn goal(&self, uid: &PodUid) -> Option<(PodRef, Want)> {
        let worker = self.workers.get(uid)?;
        match &worker.told {
            LastOrder::Nothing => None,
            LastOrder::Run(desired) => Some((worker.pod.clone(), Want::Run(desired.clone()))),
            LastOrder::Gone(known) => Some((worker.pod.clone(), Want::Gone(known.clone()))),
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
        self.desired.contains(uid)
    }

    /// Whether a pod is desired and comes from a file or URL.
    pub fn is_static(&self, uid: &PodUid) -> bool {
        self.desired.get(uid).is_some_and(|pod| is_static(pod.source))
    }

    /// How many workers there are by lifecycle, whether desired, and whether static: labels of `kubelet_working_pods`.
    /// As upstream, what there is none of is 0.
    pub fn counts(&self) -> BTreeMap<Labels, i64> {
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
        counts.extend(&self.counts);
        counts
    }

    /// Counts the pod's worker as what it is now.
    fn count(&mut self, uid: &PodUid) {
        let labels = self.workers.get(uid).map(|worker| {
            let state = match worker.report.as_ref().map(|report| report.state) {
                None | Some(WorkerState::Syncing) => "sync",
                Some(WorkerState::Terminating) => "terminating",
                Some(WorkerState::Terminated) => "terminated",
            };
            let fixed = if worker.is_static { "true" } else { "" };
            match self.desired.contains(uid) {
                true => (state, "desired", fixed),
                false if worker.told == LastOrder::Gone(None) => (state, "runtime_only", "unknown"),
                false => (state, "orphan", fixed),
            }
        });
        let before = match labels {
            Some(labels) => self.counted.insert(uid.clone(), labels),
            None => self.counted.remove(uid),
        };
        if let Some(before) = before {
            *self.counts.entry(before).or_default() -= 1;
        }
        if let Some(labels) = labels {
            *self.counts.entry(labels).or_default() += 1;
        }
    }

    /// Nothing is decided about these quarantined pods from now on. When one of them is let in, [`WorkerRegistry::touch`] says so.
    pub fn leave_alone(&mut self, pods: BTreeSet<PodUid>) {
        self.left_alone = pods;
    }

    /// What is to be done now about pods of which something has changed. Taken as done.
    pub fn decide(&mut self) -> Vec<Order> {
        let mut orders = Vec::new();
        let mut touched = std::mem::take(&mut self.touched);
        let left_alone = self.left_alone.clone();
        let mut has_room = false;
        for uid in touched.difference(&left_alone) {
            let _named = blame::name(uid);
            has_room |= self.forget_gone(uid, &mut orders);
        }
        if has_room {
            // A name may be free.
            touched.append(&mut self.nameless);
        }
        let decided: Vec<&PodUid> = touched.difference(&left_alone).collect();
        for uid in &decided {
            let _named = blame::name(uid);
            self.tell_worker(uid, &mut orders);
        }
        let mut names = None;
        for uid in &decided {
            let _named = blame::name(uid);
            self.start_desired(uid, &mut names, &mut orders);
        }
        for uid in decided {
            let _named = blame::name(uid);
            self.end_orphan(uid, &mut orders);
        }
        for uid in &touched {
            self.count(uid);
        }
        orders
    }

    /// Forgets the pod if its worker is over. Whether that, or what its worker has given back, may leave room for another.
    fn forget_gone(&mut self, uid: &PodUid, orders: &mut Vec<Order>) -> bool {
        let Some(worker) = self.workers.get(uid) else { return false };
        let is_released = worker.is_released();
        if worker.is_over() {
            self.workers.remove(uid);
            // From before its end: what comes later is news.
            self.observed.remove(uid);
            orders.push(Order::Forget(uid.clone()));
        }
        is_released
    }

    fn tell_worker(&mut self, uid: &PodUid, orders: &mut Vec<Order>) {
        let Some(worker) = self.workers.get_mut(uid) else { return };
        let runnable = self.desired.get(uid).filter(|pod| pod.rejected.is_none());
        match (runnable, &worker.told) {
            // It ends first; then the pod gets a worker anew.
            (Some(_), LastOrder::Gone(_)) => {}
            (Some(desired), LastOrder::Run(known)) if is_same_work(known, desired) => {}
            (Some(desired), _) => {
                worker.pod = desired.pod_ref.clone();
                worker.is_static = is_static(desired.source);
                worker.told = LastOrder::Run(desired.clone());
                orders.push(Order::Tell(worker.pod.clone(), Want::Run(desired.clone())));
            }
            (None, LastOrder::Gone(_)) => {}
            (None, told) if is_unwanted(&self.desired, uid) => {
                let granted = self.desired.gone(uid).and_then(|gone| gone.granted_seconds);
                let known = match told {
                    LastOrder::Run(known) => Some(with_grace(known, granted)),
                    _ => None,
                };
                worker.told = LastOrder::Gone(known.clone());
                orders.push(Order::Tell(worker.pod.clone(), Want::Gone(known)));
            }
            (None, _) => {}
        }
    }

    fn start_desired(&mut self, uid: &PodUid, names: &mut Option<Names>, orders: &mut Vec<Order>) {
        self.nameless.remove(uid);
        let desired = self.desired.get(uid).filter(|pod| pod.rejected.is_none());
        let Some(desired) = desired.filter(|_| !self.workers.contains_key(uid)).cloned() else { return };
        let pod = desired.pod_ref.clone();
        if is_static(desired.source) {
            let names = names.get_or_insert_with(|| self.names_taken());
            if !names.insert((pod.namespace.clone(), pod.name.clone())) {
                self.nameless.insert(uid.clone());
                return;
            }
        }
        let worker = Worker {
            pod: pod.clone(),
            told: LastOrder::Run(desired.clone()),
            is_static: is_static(desired.source),
            is_adopted: false,
            report: None,
            has_ended: false,
        };
        self.workers.insert(uid.clone(), worker);
        orders.push(Order::Start(pod, Want::Run(desired)));
    }

    /// Namespaces and names that static pods hold: two of one full name never overlap, so that after an edit the old
    /// one ends before the new one starts.
    fn names_taken(&self) -> Names {
        let holds = |worker: &&Worker| worker.is_static && !worker.is_released();
        let name = |worker: &Worker| (worker.pod.namespace.clone(), worker.pod.name.clone());
        self.workers.values().filter(holds).map(name).collect()
    }

    /// Has a worker stop a pod that the runtime holds and no source desires, once all sources were heard or the source of
    /// the pod has another in its place.
    fn end_orphan(&mut self, uid: &PodUid, orders: &mut Vec<Order>) {
        let wanted = self.desired.get(uid).is_some_and(|pod| pod.rejected.is_none());
        if wanted || !is_unwanted(&self.desired, uid) || self.workers.contains_key(uid) {
            return;
        }
        let Some(state) = self.observed.get(uid) else { return };
        // PodManager lets no static pod in before an earlier version of it has gone; of any other pod it may have
        // the name.
        let worker = Worker {
            pod: state.pod.clone(),
            told: LastOrder::Gone(None),
            is_static: false,
            is_adopted: false,
            report: None,
            has_ended: false,
        };
        orders.push(Order::Start(state.pod.clone(), Want::Gone(None)));
        self.workers.insert(uid.clone(), worker);
    }
}

/// Namespaces and names.
type Names = BTreeSet<(Arc<str>, Arc<str>)>;

/// Whether a pod that is not to run here is to end: it is refused, or its absence means removal. A pod that cannot be read
/// goes on as it is.
fn is_unwanted(desired: &PodSet<Arc<DesiredPod>>, uid: &PodUid) -> bool {
    desired.is_removed(uid) || (desired.is_complete() && desired.contains(uid))
}

/// What is known of a pod that is gone, with the grace period that its deletion granted, which may be new to its worker.
fn with_grace(known: &Arc<DesiredPod>, granted: Option<i64>) -> Arc<DesiredPod> {
    let Some(granted) = granted else { return known.clone() };
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
