//! Which workers there are, and what each is to be told: decided from the desired pods, what was observed, and the
//! workers' reports (rows 2.4, 3.6, 4.7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use messages::facts::{DesiredPod, DesiredPods, GonePods, Source, WorkerReport, WorkerState};
use messages::pod_worker::worker::Want;
use messages::runtime::RuntimePod;
use messages::{PodRef, PodUid};

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

/// Pods, observations and workers, by UID.
#[derive(Debug, Default)]
pub struct Roster {
    desired: Arc<BTreeMap<PodUid, Arc<DesiredPod>>>,
    gone: GonePods,
    sources_ready: bool,
    superseded: Arc<BTreeSet<PodUid>>,
    observed: BTreeMap<PodUid, Arc<RuntimePod>>,
    workers: BTreeMap<PodUid, Worker>,
}

impl Roster {
    /// A worker that an earlier incarnation of the pool has started.
    pub fn adopt(&mut self, uid: &PodUid) {
        let nameless = PodRef { uid: uid.clone(), namespace: Arc::from(""), name: Arc::from("") };
        let worker = Worker { pod: nameless, told: Told::Nothing, is_static: true, report: None };
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
        self.desired.get(uid).is_some_and(|pod| is_static(pod))
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
        let over: Vec<PodUid> =
            self.workers.iter().filter(|(_, worker)| worker.is_over()).map(|(uid, _)| uid.clone()).collect();
        for uid in over {
            self.workers.remove(&uid);
            // From before its end: what comes later is news.
            self.observed.remove(&uid);
            orders.push(Order::Forget(uid));
        }
    }

    fn tell_workers(&mut self, orders: &mut Vec<Order>) {
        for (uid, worker) in &mut self.workers {
            let runnable = self.desired.get(uid).filter(|pod| pod.rejected.is_none());
            match (runnable, &worker.told) {
                // It ends first; then the pod gets a worker anew.
                (Some(_), Told::Gone(_)) => {}
                (Some(desired), Told::Run(known)) if is_same_work(known, desired) => {}
                (Some(desired), _) => {
                    worker.pod = desired.pod_ref.clone();
                    worker.is_static = is_static(desired);
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
            .map(|(_, pod)| pod.clone())
            .collect();
        if missing.is_empty() {
            return;
        }
        let mut names = self.names_taken();
        for desired in missing {
            let pod = &desired.pod_ref;
            if is_static(&desired) && !names.insert((pod.namespace.clone(), pod.name.clone())) {
                continue;
            }
            self.workers.insert(
                desired.pod_ref.uid.clone(),
                Worker {
                    pod: desired.pod_ref.clone(),
                    told: Told::Run(desired.clone()),
                    is_static: is_static(&desired),
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
        for (uid, state) in &self.observed {
            let wanted = self.desired.get(uid).is_some_and(|pod| pod.rejected.is_none());
            let is_gone = self.sources_ready || self.superseded.contains(uid);
            if wanted || !is_gone || self.workers.contains_key(uid) {
                continue;
            }
            // PodManager lets no static pod in before an earlier version of it has gone; of any other pod it may have
            // the name.
            let worker =
                Worker { pod: state.pod.clone(), told: Told::Gone(None), is_static: false, report: None };
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

fn is_static(pod: &DesiredPod) -> bool {
    matches!(pod.source, Source::File | Source::Http)
}

#[cfg(test)]
mod tests {
    use messages::facts::Rejection;
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{running, runtime_pod};

    fn desired(uid: &str, name: &str) -> Arc<DesiredPod> {
        let pod_ref = PodRef { uid: PodUid::new(uid), namespace: Arc::from("ns"), name: Arc::from(name) };
        Arc::new(DesiredPod { pod_ref, pod: Arc::new(Pod::default()), source: Source::File, rejected: None })
    }

    fn pods(pods: &[Arc<DesiredPod>], sources_ready: bool) -> DesiredPods {
        let pods = pods.iter().map(|pod| (pod.pod_ref.uid.clone(), pod.clone())).collect();
        DesiredPods {
            pods: Arc::new(pods),
            sources_ready,
            gone: GonePods::default(),
            superseded: Arc::default(),
        }
    }

    fn observed(uid: &str, name: &str) -> Arc<RuntimePod> {
        let mut pod = runtime_pod(vec![running("c", 0)]);
        pod.pod = desired(uid, name).pod_ref.clone();
        Arc::new(pod)
    }

    fn report(pod: &PodRef, state: WorkerState, released: bool, deleted: bool) -> Arc<WorkerReport> {
        Arc::new(WorkerReport {
            pod: pod.clone(),
            state,
            released,
            starting: Arc::default(),
            replaced: Arc::default(),
            waiting: Arc::default(),
            failed: None,
            deleted,
            blocked_on: None,
        })
    }

    fn text(orders: &[Order]) -> Vec<String> {
        let want = |want: &Want| match want {
            Want::Run(_) => "run",
            Want::Gone(Some(_)) => "gone",
            Want::Gone(None) => "orphan",
        };
        orders
            .iter()
            .map(|order| match order {
                Order::Start(pod, goal) => format!("start {} {}", pod.uid, want(goal)),
                Order::Tell(pod, goal) => format!("tell {} {}", pod.uid, want(goal)),
                Order::Forget(uid) => format!("forget {uid}"),
            })
            .collect()
    }

    #[test]
    fn workers_come_and_go_with_their_pods() {
        let mut roster = Roster::default();
        let (a, b) = (desired("a", "a"), desired("b", "b"));
        roster.desire(&pods(&[a.clone(), b.clone()], true));
        assert_eq!(text(&roster.decide()), ["start a run", "start b run"]);
        roster.desire(&pods(&[a.clone(), b.clone()], true));
        assert!(roster.decide().is_empty());
        roster.desire(&pods(std::slice::from_ref(&b), true));
        assert_eq!(text(&roster.decide()), ["tell a gone"]);
        assert!(roster.decide().is_empty());
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, false, true));
        assert!(roster.decide().is_empty());
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
        assert_eq!(text(&roster.decide()), ["forget a"]);
        assert!(!roster.has(&a.pod_ref.uid) && roster.has(&b.pod_ref.uid));
        assert!(!roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true)));
    }

    #[test]
    fn workers_are_counted_as_upstream_does() {
        let mut roster = Roster::default();
        roster.desire(&pods(&[desired("a", "a")], true));
        roster.decide();
        let counts = roster.counts();
        assert_eq!((counts.len(), counts[&("sync", "desired", "true")]), (15, 1));
        assert_eq!(counts[&("terminated", "runtime_only", "unknown")], 0, "what there is none of is told");
        assert_eq!(counts.values().sum::<i64>(), 1);
    }

    #[test]
    fn a_pod_deleted_by_force_ends_with_the_grace_that_nobody_heard_of_before() {
        let mut roster = Roster::default();
        let a = desired("a", "a");
        roster.desire(&pods(&[a], true));
        roster.decide();
        roster.desire(&DesiredPods { gone: Arc::new([(PodUid::new("a"), 0)].into()), ..pods(&[], true) });
        let orders = roster.decide();
        let [Order::Tell(_, Want::Gone(Some(known)))] = &orders[..] else { panic!("{:?}", text(&orders)) };
        assert_eq!(known.pod.metadata.deletion_grace_period_seconds, Some(0));
    }

    #[test]
    fn absence_means_removal_only_when_all_sources_were_heard() {
        let mut roster = Roster::default();
        let a = desired("a", "a");
        roster.desire(&pods(&[a], false));
        roster.observe(&PodUid::new("x"), &observed("x", "x"));
        assert_eq!(text(&roster.decide()), ["start a run"]);
        roster.desire(&pods(&[], false));
        assert!(roster.decide().is_empty());
        roster.desire(&pods(&[], true));
        assert_eq!(text(&roster.decide()), ["tell a gone", "start x orphan"]);
    }

    #[test]
    fn superseded_pods_end_whatever_other_sources_have_not_been_heard() {
        let mut roster = Roster::default();
        let superseding = |listed: &[Arc<DesiredPod>], uids: &[&str]| DesiredPods {
            superseded: Arc::new(uids.iter().map(|uid| PodUid::new(uid)).collect()),
            ..pods(listed, false)
        };
        let (old, new) = (desired("old", "web"), desired("new", "web"));
        roster.desire(&pods(std::slice::from_ref(&old), false));
        for uid in ["held", "other"] {
            roster.observe(&PodUid::new(uid), &observed(uid, uid));
        }
        assert_eq!(text(&roster.decide()), ["start old run"]);
        roster.desire(&superseding(&[], &["old", "held"]));
        let orders = roster.decide();
        assert_eq!(text(&orders), ["tell old gone", "start held orphan"]);
        roster.desire(&superseding(std::slice::from_ref(&new), &["old", "held"]));
        assert!(roster.decide().is_empty(), "the name is taken still");
        roster.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminated, true, true));
        assert_eq!(text(&roster.decide()), ["forget old", "start new run"]);
        // Put back, it is wanted, whatever was said before.
        roster.desire(&superseding(&[new, desired("other", "other")], &["other"]));
        assert_eq!(text(&roster.decide()), ["start other run"]);
    }

    #[test]
    fn rejected_pods_get_no_worker() {
        let mut roster = Roster::default();
        let mut rejected = (*desired("a", "a")).clone();
        rejected.rejected = Some(Rejection { reason: "OutOfpods".into(), message: String::new() });
        roster.desire(&pods(&[Arc::new(rejected)], true));
        assert!(roster.decide().is_empty());
        roster.observe(&PodUid::new("a"), &observed("a", "a"));
        assert_eq!(text(&roster.decide()), ["start a orphan"]);
    }

    #[test]
    fn an_edited_static_pod_waits_for_its_predecessor() {
        let mut roster = Roster::default();
        let (old, new) = (desired("old", "web"), desired("new", "web"));
        roster.desire(&pods(std::slice::from_ref(&old), true));
        roster.decide();
        roster.desire(&pods(std::slice::from_ref(&new), true));
        assert_eq!(text(&roster.decide()), ["tell old gone"]);
        roster.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminating, false, true));
        assert!(roster.decide().is_empty());
        roster.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminated, true, true));
        assert_eq!(text(&roster.decide()), ["forget old", "start new run"]);
    }

    #[test]
    fn a_pod_that_comes_back_under_its_uid_starts_after_its_end() {
        let mut roster = Roster::default();
        let a = desired("a", "a");
        roster.desire(&pods(std::slice::from_ref(&a), true));
        roster.decide();
        roster.desire(&pods(&[], true));
        assert_eq!(text(&roster.decide()), ["tell a gone"]);
        roster.desire(&pods(std::slice::from_ref(&a), true));
        assert!(roster.decide().is_empty());
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
        assert_eq!(text(&roster.decide()), ["forget a", "start a run"]);
        // A finished pod that is still desired keeps its worker.
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, false));
        assert!(roster.decide().is_empty());
    }

    #[test]
    fn an_adopted_worker_that_is_on_its_way_out_is_not_called_back() {
        let mut roster = Roster::default();
        let a = desired("a", "a");
        roster.adopt(&a.pod_ref.uid);
        roster.desire(&pods(std::slice::from_ref(&a), true));
        assert_eq!(text(&roster.decide()), ["tell a run"]);
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminating, false, true));
        assert!(roster.decide().is_empty());
        roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
        assert_eq!(text(&roster.decide()), ["forget a", "start a run"]);
    }

    #[test]
    fn adopted_workers_are_told_again() {
        let mut roster = Roster::default();
        roster.adopt(&PodUid::new("a"));
        roster.adopt(&PodUid::new("b"));
        assert!(roster.decide().is_empty());
        roster.observe(&PodUid::new("b"), &observed("b", "b"));
        roster.desire(&pods(&[desired("a", "a")], true));
        let orders = roster.decide();
        assert_eq!(text(&orders), ["tell a run", "tell b orphan"]);
        assert!(matches!(&orders[1], Order::Tell(pod, _) if &*pod.name == "b"));
    }

    proptest! {
        /// Whatever comes in which order: at most one worker per pod, none is told to run after it was told to go, and
        /// two static pods of one name never run together.
        #[test]
        fn no_worker_is_sent_back(events in proptest::collection::vec((0u8..5, 0usize..4, proptest::bool::ANY), 1..40)) {
            let all: Vec<_> = ["a", "b", "c", "d"].iter().enumerate()
                .map(|(index, uid)| desired(uid, if index < 2 { "same" } else { uid }))
                .collect();
            let mut roster = Roster::default();
            let mut wanted: Vec<Arc<DesiredPod>> = Vec::new();
            let mut goals: BTreeMap<PodUid, bool> = BTreeMap::new();
            for (event, index, flag) in events {
                let pod = &all[index];
                let uid = &pod.pod_ref.uid;
                match event {
                    0 => if !wanted.contains(pod) { wanted.push(pod.clone()) },
                    1 => wanted.retain(|known| known != pod),
                    2 => roster.observe(uid, &observed(uid.as_str(), &pod.pod_ref.name)),
                    3 => roster.observe(uid, &Arc::new(RuntimePod::absent(pod.pod_ref.clone()))),
                    _ => if goals.contains_key(uid) {
                        let gone = goals[uid];
                        roster.report(uid, &report(&pod.pod_ref, WorkerState::Terminated, flag, gone));
                    },
                }
                roster.desire(&pods(&wanted, flag || event > 1));
                for order in roster.decide() {
                    match order {
                        Order::Start(pod, want) => {
                            let gone = matches!(want, Want::Gone(_));
                            prop_assert!(goals.insert(pod.uid, gone).is_none());
                        }
                        Order::Tell(pod, want) => {
                            let gone = matches!(want, Want::Gone(_));
                            prop_assert!(gone, "nothing but removal changes here");
                            prop_assert_eq!(goals.insert(pod.uid, gone), Some(false));
                        }
                        Order::Forget(uid) => prop_assert_eq!(goals.remove(&uid), Some(true)),
                    }
                }
            }
        }
    }
}
