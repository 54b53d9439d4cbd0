use std::sync::atomic::{AtomicU64, Ordering};

use messages::facts::Rejection;
use messages::pod_set::GonePod;
use pod_set::Journal;
use proptest::prelude::*;

use super::*;
use crate::fixtures::{running, runtime_pod};

fn desired(uid: &str, name: &str) -> Arc<DesiredPod> {
    let pod_ref = PodRef { uid: PodUid::new(uid), namespace: Arc::from("ns"), name: Arc::from(name) };
    Arc::new(DesiredPod {
        pod_ref,
        pod: Arc::new(Pod::default()),
        source: Source::File,
        rejected: None,
        made_anew: None,
    })
}

fn journal(pods: &[Arc<DesiredPod>], complete: bool) -> Journal<Arc<DesiredPod>> {
    static INCARNATION: AtomicU64 = AtomicU64::new(1);
    let mut journal = Journal::new(INCARNATION.fetch_add(1, Ordering::Relaxed));
    for pod in pods {
        journal.put(&pod.pod_ref.uid, pod.clone());
    }
    if complete {
        journal.completed();
    }
    journal
}

/// Everything anew.
fn pods(pods: &[Arc<DesiredPod>], complete: bool) -> PodSetUpdate<Arc<DesiredPod>> {
    journal(pods, complete).snapshot()
}

fn observed(uid: &str, name: &str) -> Arc<RuntimePod> {
    let mut pod = runtime_pod(vec![running("c", 0)]);
    pod.pod = desired(uid, name).pod_ref.clone();
    Arc::new(pod)
}

fn report(pod: &PodRef, state: WorkerState, released: bool, deleted: bool) -> Arc<WorkerReport> {
    Arc::new(WorkerReport { released, deleted, ..stage::report(pod, state) })
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
    let mut worker_registry = WorkerRegistry::default();
    let (a, b) = (desired("a", "a"), desired("b", "b"));
    worker_registry.desire(pods(&[a.clone(), b.clone()], true));
    assert_eq!(text(&worker_registry.decide()), ["start a run", "start b run"]);
    worker_registry.desire(pods(&[a.clone(), b.clone()], true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.desire(pods(std::slice::from_ref(&b), true));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone"]);
    assert!(worker_registry.decide().is_empty());
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, false, true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&worker_registry.decide()), ["forget a"]);
    assert!(!worker_registry.has(&a.pod_ref.uid) && worker_registry.has(&b.pod_ref.uid));
    assert!(
        !worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true))
    );
}

#[test]
fn a_worker_that_has_ended_is_over_whatever_it_has_reported() {
    let mut worker_registry = WorkerRegistry::default();
    let (a, b) = (desired("a", "a"), desired("b", "a"));
    worker_registry.desire(pods(std::slice::from_ref(&a), true));
    assert_eq!(text(&worker_registry.decide()), ["start a run"]);
    worker_registry.desire(pods(std::slice::from_ref(&b), true));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone"], "the other waits for its name");
    assert!(worker_registry.ended(&a.pod_ref.uid) && !worker_registry.ended(&a.pod_ref.uid));
    assert_eq!(text(&worker_registry.decide()), ["forget a", "start b run"]);
    assert!(!worker_registry.ended(&a.pod_ref.uid) && worker_registry.has(&b.pod_ref.uid));
}

#[test]
fn one_pods_news_are_decided_about_alone() {
    let mut worker_registry = WorkerRegistry::default();
    let mut told = journal(&[desired("a", "a"), desired("b", "b")], true);
    worker_registry.desire(told.snapshot());
    assert_eq!(text(&worker_registry.decide()), ["start a run", "start b run"]);
    assert!(worker_registry.touched.is_empty());
    worker_registry.desire(told.put(&PodUid::new("c"), desired("c", "c")));
    assert_eq!(worker_registry.touched, [PodUid::new("c")].into());
    assert_eq!(text(&worker_registry.decide()), ["start c run"]);
    worker_registry.desire(told.remove(&PodUid::new("b"), GonePod::default()).unwrap());
    assert_eq!(text(&worker_registry.decide()), ["tell b gone"]);
    assert_eq!(worker_registry.counts()[&("sync", "orphan", "true")], 1);
    let _lost = told.remove(&PodUid::new("a"), GonePod::default());
    assert!(worker_registry.desire(PodSetUpdate::Digest(told.digest())), "it was missed");
    assert!(!worker_registry.desire(told.snapshot()));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone"]);
}

#[test]
fn workers_are_counted_as_upstream_does() {
    let mut worker_registry = WorkerRegistry::default();
    worker_registry.desire(pods(&[desired("a", "a")], true));
    worker_registry.decide();
    let counts = worker_registry.counts();
    assert_eq!((counts.len(), counts[&("sync", "desired", "true")]), (15, 1));
    assert_eq!(counts[&("terminated", "runtime_only", "unknown")], 0, "what there is none of is told");
    assert_eq!(counts.values().sum::<i64>(), 1);
}

#[test]
fn a_pod_deleted_by_force_ends_with_the_grace_that_nobody_heard_of_before() {
    let mut worker_registry = WorkerRegistry::default();
    let a = desired("a", "a");
    worker_registry.desire(pods(&[a], true));
    worker_registry.decide();
    let mut forced = journal(&[], true);
    forced.remove(&PodUid::new("a"), GonePod { granted_seconds: Some(0), superseded: false });
    worker_registry.desire(forced.snapshot());
    let orders = worker_registry.decide();
    let [Order::Tell(_, Want::Gone(Some(known)))] = &orders[..] else { panic!("{:?}", text(&orders)) };
    assert_eq!(known.pod.metadata.deletion_grace_period_seconds, Some(0));
}

#[test]
fn absence_means_removal_only_when_all_sources_were_heard() {
    let mut worker_registry = WorkerRegistry::default();
    let a = desired("a", "a");
    worker_registry.desire(pods(&[a], false));
    worker_registry.observe(&PodUid::new("x"), &observed("x", "x"));
    assert_eq!(text(&worker_registry.decide()), ["start a run"]);
    worker_registry.desire(pods(&[], false));
    assert!(worker_registry.decide().is_empty());
    worker_registry.desire(pods(&[], true));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone", "start x orphan"]);
}

#[test]
fn a_pod_that_cannot_be_read_is_left_as_it_is_until_it_goes() {
    let mut worker_registry = WorkerRegistry::default();
    worker_registry.desire(pods(&[desired("a", "a")], true));
    for uid in ["x", "y"] {
        worker_registry.observe(&PodUid::new(uid), &observed(uid, uid));
    }
    assert_eq!(text(&worker_registry.decide()), ["start a run", "start x orphan", "start y orphan"]);
    // A new pool, which has only what a new PodManager tells.
    let (mut worker_registry, uid) = (WorkerRegistry::default(), PodUid::new);
    for pod in ["x", "y"] {
        worker_registry.observe(&uid(pod), &observed(pod, pod));
    }
    worker_registry.adopt(&uid("a"));
    let mut told = journal(&[], false);
    for pod in ["a", "x"] {
        told.unread(&uid(pod));
    }
    told.completed();
    worker_registry.desire(told.snapshot());
    assert_eq!(text(&worker_registry.decide()), ["start y orphan"]);
    worker_registry.desire(told.remove(&uid("x"), GonePod::default()).unwrap());
    assert_eq!(text(&worker_registry.decide()), ["start x orphan"]);
}

#[test]
fn superseded_pods_end_whatever_other_sources_have_not_been_heard() {
    let mut worker_registry = WorkerRegistry::default();
    let superseding = |listed: &[Arc<DesiredPod>], uids: &[&str]| {
        let mut journal = journal(listed, false);
        for uid in uids.iter().filter(|uid| listed.iter().all(|pod| pod.pod_ref.uid.as_str() != **uid)) {
            journal.remove(&PodUid::new(uid), GonePod { granted_seconds: None, superseded: true });
        }
        journal.snapshot()
    };
    let (old, new) = (desired("old", "web"), desired("new", "web"));
    worker_registry.desire(pods(std::slice::from_ref(&old), false));
    for uid in ["held", "other"] {
        worker_registry.observe(&PodUid::new(uid), &observed(uid, uid));
    }
    assert_eq!(text(&worker_registry.decide()), ["start old run"]);
    worker_registry.desire(superseding(&[], &["old", "held"]));
    let orders = worker_registry.decide();
    assert_eq!(text(&orders), ["tell old gone", "start held orphan"]);
    worker_registry.desire(superseding(std::slice::from_ref(&new), &["old", "held"]));
    assert!(worker_registry.decide().is_empty(), "the name is taken still");
    worker_registry.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&worker_registry.decide()), ["forget old", "start new run"]);
    // Put back, it is wanted, whatever was said before.
    worker_registry.desire(superseding(&[new, desired("other", "other")], &["other"]));
    assert_eq!(text(&worker_registry.decide()), ["start other run"]);
}

#[test]
fn rejected_pods_get_no_worker() {
    let mut worker_registry = WorkerRegistry::default();
    let mut rejected = (*desired("a", "a")).clone();
    rejected.rejected = Some(Rejection::new("OutOfpods", ""));
    worker_registry.desire(pods(&[Arc::new(rejected)], true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.observe(&PodUid::new("a"), &observed("a", "a"));
    assert_eq!(text(&worker_registry.decide()), ["start a orphan"]);
}

#[test]
fn an_edited_static_pod_waits_for_its_predecessor() {
    let mut worker_registry = WorkerRegistry::default();
    let (old, new) = (desired("old", "web"), desired("new", "web"));
    worker_registry.desire(pods(std::slice::from_ref(&old), true));
    worker_registry.decide();
    worker_registry.desire(pods(std::slice::from_ref(&new), true));
    assert_eq!(text(&worker_registry.decide()), ["tell old gone"]);
    worker_registry.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminating, false, true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&worker_registry.decide()), ["forget old", "start new run"]);
}

#[test]
fn a_pod_that_comes_back_under_its_uid_starts_after_its_end() {
    let mut worker_registry = WorkerRegistry::default();
    let a = desired("a", "a");
    worker_registry.desire(pods(std::slice::from_ref(&a), true));
    worker_registry.decide();
    worker_registry.desire(pods(&[], true));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone"]);
    worker_registry.desire(pods(std::slice::from_ref(&a), true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&worker_registry.decide()), ["forget a", "start a run"]);
    // A finished pod that is still desired keeps its worker.
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, false));
    assert!(worker_registry.decide().is_empty());
}

#[test]
fn an_adopted_worker_that_is_on_its_way_out_is_not_called_back() {
    let mut worker_registry = WorkerRegistry::default();
    let a = desired("a", "a");
    worker_registry.adopt(&a.pod_ref.uid);
    worker_registry.desire(pods(std::slice::from_ref(&a), true));
    assert_eq!(text(&worker_registry.decide()), ["tell a run"]);
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminating, false, true));
    assert!(worker_registry.decide().is_empty());
    worker_registry.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&worker_registry.decide()), ["forget a", "start a run"]);
}

#[test]
fn an_end_in_the_status_counts_until_the_pod_runs_here() {
    let mut worker_registry = WorkerRegistry::default();
    let a = desired("a", "a");
    let uid = a.pod_ref.uid.clone();
    worker_registry.desire(pods(std::slice::from_ref(&a), true));
    worker_registry.decide();
    assert!(worker_registry.trusts_end(&uid), "also if its worker restarts before it has said anything");
    worker_registry.report(&uid, &report(&a.pod_ref, WorkerState::Syncing, false, false));
    assert!(!worker_registry.trusts_end(&uid), "its worker may restart");
    worker_registry.report(&uid, &report(&a.pod_ref, WorkerState::Terminated, true, false));
    assert!(worker_registry.trusts_end(&uid));
    let mut next = WorkerRegistry::default();
    next.adopt(&uid);
    next.desire(pods(std::slice::from_ref(&a), true));
    assert_eq!((text(&next.decide()), next.trusts_end(&uid)), (vec!["tell a run".to_owned()], false));
}

#[test]
fn adopted_workers_are_told_again() {
    let mut worker_registry = WorkerRegistry::default();
    worker_registry.adopt(&PodUid::new("a"));
    worker_registry.adopt(&PodUid::new("b"));
    assert!(worker_registry.decide().is_empty());
    worker_registry.observe(&PodUid::new("b"), &observed("b", "b"));
    worker_registry.desire(pods(&[desired("a", "a")], true));
    let orders = worker_registry.decide();
    assert_eq!(text(&orders), ["tell a run", "tell b orphan"]);
    assert!(matches!(&orders[1], Order::Tell(pod, _) if &*pod.name == "b"));
}

proptest! {
    /// Whatever comes in whatever order: at most one worker per pod, no worker is told to run after it was
    /// told to end its pod, and two static pods of one name never run together.
    #[test]
    fn no_worker_is_sent_back(events in proptest::collection::vec((0u8..5, 0usize..4, proptest::bool::ANY), 1..40)) {
        let all: Vec<_> = ["a", "b", "c", "d"].iter().enumerate()
            .map(|(index, uid)| desired(uid, if index < 2 { "same" } else { uid }))
            .collect();
        let mut worker_registry = WorkerRegistry::default();
        let mut wanted: Vec<Arc<DesiredPod>> = Vec::new();
        let mut goals: BTreeMap<PodUid, bool> = BTreeMap::new();
        for (event, index, flag) in events {
            let pod = &all[index];
            let uid = &pod.pod_ref.uid;
            match event {
                0 => if !wanted.contains(pod) { wanted.push(pod.clone()) },
                1 => wanted.retain(|known| known != pod),
                2 => worker_registry.observe(uid, &observed(uid.as_str(), &pod.pod_ref.name)),
                3 => worker_registry.observe(uid, &Arc::new(RuntimePod::absent(pod.pod_ref.clone()))),
                _ => if goals.contains_key(uid) {
                    let gone = goals[uid];
                    worker_registry.report(uid, &report(&pod.pod_ref, WorkerState::Terminated, flag, gone));
                },
            }
            worker_registry.desire(pods(&wanted, flag || event > 1));
            for order in worker_registry.decide() {
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

#[test]
fn nothing_is_decided_about_who_is_left_alone_until_it_is_let_in() {
    let mut worker_registry = WorkerRegistry::default();
    let (a, b, c) = (desired("a", "a"), desired("b", "b"), desired("c", "c"));
    worker_registry.desire(pods(&[a.clone(), b.clone()], true));
    assert_eq!(text(&worker_registry.decide()), ["start a run", "start b run"]);
    worker_registry.leave_alone([&a, &c].map(|pod| pod.pod_ref.uid.clone()).into());
    worker_registry.observe(&PodUid::new("d"), &observed("d", "d"));
    worker_registry.desire(pods(std::slice::from_ref(&c), true));
    assert_eq!(
        text(&worker_registry.decide()),
        ["tell b gone", "start d orphan"],
        "a runs on, and c is not begun"
    );
    worker_registry.leave_alone(BTreeSet::new());
    [&a, &c].iter().for_each(|pod| worker_registry.touch(&pod.pod_ref.uid));
    assert_eq!(text(&worker_registry.decide()), ["tell a gone", "start c run"]);
}
