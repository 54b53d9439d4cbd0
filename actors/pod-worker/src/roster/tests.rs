use std::sync::atomic::{AtomicU64, Ordering};

use messages::facts::Rejection;
use messages::pod_set::GonePod;
use pod_set::Journal;
use proptest::prelude::*;

use super::*;
use crate::fixtures::{running, runtime_pod};

fn desired(uid: &str, name: &str) -> Arc<DesiredPod> {
    let pod_ref = PodRef { uid: PodUid::new(uid), namespace: Arc::from("ns"), name: Arc::from(name) };
    Arc::new(DesiredPod { pod_ref, pod: Arc::new(Pod::default()), source: Source::File, rejected: None })
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
    roster.desire(pods(&[a.clone(), b.clone()], true));
    assert_eq!(text(&roster.decide()), ["start a run", "start b run"]);
    roster.desire(pods(&[a.clone(), b.clone()], true));
    assert!(roster.decide().is_empty());
    roster.desire(pods(std::slice::from_ref(&b), true));
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
fn one_pods_news_are_decided_about_alone() {
    let mut roster = Roster::default();
    let mut told = journal(&[desired("a", "a"), desired("b", "b")], true);
    roster.desire(told.snapshot());
    assert_eq!(text(&roster.decide()), ["start a run", "start b run"]);
    assert!(roster.touched.is_empty());
    roster.desire(told.put(&PodUid::new("c"), desired("c", "c")));
    assert_eq!(roster.touched, [PodUid::new("c")].into());
    assert_eq!(text(&roster.decide()), ["start c run"]);
    roster.desire(told.remove(&PodUid::new("b"), GonePod::default()).unwrap());
    assert_eq!(text(&roster.decide()), ["tell b gone"]);
    assert_eq!(roster.counts()[&("sync", "orphan", "true")], 1);
    let _lost = told.remove(&PodUid::new("a"), GonePod::default());
    assert!(roster.desire(PodSetUpdate::Digest(told.digest())), "it was missed");
    assert!(!roster.desire(told.snapshot()));
    assert_eq!(text(&roster.decide()), ["tell a gone"]);
}

#[test]
fn workers_are_counted_as_upstream_does() {
    let mut roster = Roster::default();
    roster.desire(pods(&[desired("a", "a")], true));
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
    roster.desire(pods(&[a], true));
    roster.decide();
    let mut forced = journal(&[], true);
    forced.remove(&PodUid::new("a"), GonePod { granted_seconds: Some(0), superseded: false });
    roster.desire(forced.snapshot());
    let orders = roster.decide();
    let [Order::Tell(_, Want::Gone(Some(known)))] = &orders[..] else { panic!("{:?}", text(&orders)) };
    assert_eq!(known.pod.metadata.deletion_grace_period_seconds, Some(0));
}

#[test]
fn absence_means_removal_only_when_all_sources_were_heard() {
    let mut roster = Roster::default();
    let a = desired("a", "a");
    roster.desire(pods(&[a], false));
    roster.observe(&PodUid::new("x"), &observed("x", "x"));
    assert_eq!(text(&roster.decide()), ["start a run"]);
    roster.desire(pods(&[], false));
    assert!(roster.decide().is_empty());
    roster.desire(pods(&[], true));
    assert_eq!(text(&roster.decide()), ["tell a gone", "start x orphan"]);
}

#[test]
fn a_pod_that_cannot_be_read_is_left_as_it_is_until_it_goes() {
    let mut roster = Roster::default();
    roster.desire(pods(&[desired("a", "a")], true));
    for uid in ["x", "y"] {
        roster.observe(&PodUid::new(uid), &observed(uid, uid));
    }
    assert_eq!(text(&roster.decide()), ["start a run", "start x orphan", "start y orphan"]);
    // A new pool, which has only what a new PodManager tells.
    let (mut roster, uid) = (Roster::default(), PodUid::new);
    for pod in ["x", "y"] {
        roster.observe(&uid(pod), &observed(pod, pod));
    }
    roster.adopt(&uid("a"));
    let mut told = journal(&[], false);
    for pod in ["a", "x"] {
        told.unread(&uid(pod));
    }
    told.completed();
    roster.desire(told.snapshot());
    assert_eq!(text(&roster.decide()), ["start y orphan"]);
    roster.desire(told.remove(&uid("x"), GonePod::default()).unwrap());
    assert_eq!(text(&roster.decide()), ["start x orphan"]);
}

#[test]
fn superseded_pods_end_whatever_other_sources_have_not_been_heard() {
    let mut roster = Roster::default();
    let superseding = |listed: &[Arc<DesiredPod>], uids: &[&str]| {
        let mut journal = journal(listed, false);
        for uid in uids.iter().filter(|uid| listed.iter().all(|pod| pod.pod_ref.uid.as_str() != **uid)) {
            journal.remove(&PodUid::new(uid), GonePod { granted_seconds: None, superseded: true });
        }
        journal.snapshot()
    };
    let (old, new) = (desired("old", "web"), desired("new", "web"));
    roster.desire(pods(std::slice::from_ref(&old), false));
    for uid in ["held", "other"] {
        roster.observe(&PodUid::new(uid), &observed(uid, uid));
    }
    assert_eq!(text(&roster.decide()), ["start old run"]);
    roster.desire(superseding(&[], &["old", "held"]));
    let orders = roster.decide();
    assert_eq!(text(&orders), ["tell old gone", "start held orphan"]);
    roster.desire(superseding(std::slice::from_ref(&new), &["old", "held"]));
    assert!(roster.decide().is_empty(), "the name is taken still");
    roster.report(&old.pod_ref.uid, &report(&old.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&roster.decide()), ["forget old", "start new run"]);
    // Put back, it is wanted, whatever was said before.
    roster.desire(superseding(&[new, desired("other", "other")], &["other"]));
    assert_eq!(text(&roster.decide()), ["start other run"]);
}

#[test]
fn rejected_pods_get_no_worker() {
    let mut roster = Roster::default();
    let mut rejected = (*desired("a", "a")).clone();
    rejected.rejected = Some(Rejection { reason: "OutOfpods".into(), message: String::new() });
    roster.desire(pods(&[Arc::new(rejected)], true));
    assert!(roster.decide().is_empty());
    roster.observe(&PodUid::new("a"), &observed("a", "a"));
    assert_eq!(text(&roster.decide()), ["start a orphan"]);
}

#[test]
fn an_edited_static_pod_waits_for_its_predecessor() {
    let mut roster = Roster::default();
    let (old, new) = (desired("old", "web"), desired("new", "web"));
    roster.desire(pods(std::slice::from_ref(&old), true));
    roster.decide();
    roster.desire(pods(std::slice::from_ref(&new), true));
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
    roster.desire(pods(std::slice::from_ref(&a), true));
    roster.decide();
    roster.desire(pods(&[], true));
    assert_eq!(text(&roster.decide()), ["tell a gone"]);
    roster.desire(pods(std::slice::from_ref(&a), true));
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
    roster.desire(pods(std::slice::from_ref(&a), true));
    assert_eq!(text(&roster.decide()), ["tell a run"]);
    roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminating, false, true));
    assert!(roster.decide().is_empty());
    roster.report(&a.pod_ref.uid, &report(&a.pod_ref, WorkerState::Terminated, true, true));
    assert_eq!(text(&roster.decide()), ["forget a", "start a run"]);
}

#[test]
fn an_end_in_the_status_counts_until_the_pod_runs_here() {
    let mut roster = Roster::default();
    let a = desired("a", "a");
    let uid = a.pod_ref.uid.clone();
    roster.desire(pods(std::slice::from_ref(&a), true));
    roster.decide();
    assert!(roster.trusts_end(&uid), "also if its worker restarts before it has said anything");
    roster.report(&uid, &report(&a.pod_ref, WorkerState::Syncing, false, false));
    assert!(!roster.trusts_end(&uid), "its worker may restart");
    roster.report(&uid, &report(&a.pod_ref, WorkerState::Terminated, true, false));
    assert!(roster.trusts_end(&uid));
    let mut next = Roster::default();
    next.adopt(&uid);
    next.desire(pods(std::slice::from_ref(&a), true));
    assert_eq!((text(&next.decide()), next.trusts_end(&uid)), (vec!["tell a run".to_owned()], false));
}

#[test]
fn adopted_workers_are_told_again() {
    let mut roster = Roster::default();
    roster.adopt(&PodUid::new("a"));
    roster.adopt(&PodUid::new("b"));
    assert!(roster.decide().is_empty());
    roster.observe(&PodUid::new("b"), &observed("b", "b"));
    roster.desire(pods(&[desired("a", "a")], true));
    let orders = roster.decide();
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
            roster.desire(pods(&wanted, flag || event > 1));
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

#[test]
fn nothing_is_decided_about_who_is_left_alone_until_it_is_let_in() {
    let mut roster = Roster::default();
    let (a, b, c) = (desired("a", "a"), desired("b", "b"), desired("c", "c"));
    roster.desire(pods(&[a.clone(), b.clone()], true));
    assert_eq!(text(&roster.decide()), ["start a run", "start b run"]);
    roster.leave_alone([&a, &c].map(|pod| pod.pod_ref.uid.clone()).into());
    roster.observe(&PodUid::new("d"), &observed("d", "d"));
    roster.desire(pods(std::slice::from_ref(&c), true));
    assert_eq!(text(&roster.decide()), ["tell b gone", "start d orphan"], "a runs on, and c is not begun");
    roster.leave_alone(BTreeSet::new());
    [&a, &c].iter().for_each(|pod| roster.touch(&pod.pod_ref.uid));
    assert_eq!(text(&roster.decide()), ["tell a gone", "start c run"]);
}
