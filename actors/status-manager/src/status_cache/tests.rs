use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

use messages::facts::{DesiredPod, WorkerState};
use messages::runtime::RuntimePod;
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
    status_cache.observed(&uid, seen(observed(vec![running("a", "a0", 0)])));
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
    assert_eq!(status_cache.desired(journal.put(&other, pod("other"))), Heard::Compute(vec![other.clone()]));
    assert!(status_cache.is_missing_facts() && status_cache.missing().reports, "its worker has said nothing");
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
        status_cache.observed(&uid, seen(stopped(vec![exited("a", "a0", 0, 1)])));
        status_cache.reported(&uid, Arc::new(gone.clone()));
        status_cache.compute(&uid, at(1));
        assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some("Failed"));
        status_cache.observed(&uid, seen(RuntimePod::absent(pod_ref())));
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
    status_cache.observed(&uid, seen(stopped(vec![exited("a", "a0", 0, 1)])));
    let gone = WorkerReport { deleted: true, ..report(WorkerState::Terminated) };
    status_cache.reported(&uid, Arc::new(gone));
    status_cache.compute(&uid, at(1));
    assert!(status_cache.status_since(&uid, None).is_some() && status_cache.is_removed_static(&uid));
    let made_anew = Some(Generation { incarnation: 1, number: 7 });
    assert_eq!(status_cache.status_since(&uid, made_anew), None, "of the pod before");
    // That the worker before has let go is never heard.
    status_cache.observed(&uid, seen(RuntimePod::absent(pod_ref())));
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
    let lacks = |token| MissingFacts { looks: vec![(uid.clone(), token)], ..MissingFacts::default() };
    assert_eq!(status_cache.missing(), lacks(0));
    status_cache.reported(&uid, Arc::new(WorkerReport { last_look: 7, ..report(WorkerState::Terminated) }));
    status_cache.observed(&uid, SeenPod { touch: 6, ..seen(stopped(vec![])) });
    assert_eq!(status_cache.missing(), lacks(7));
    status_cache.observed(&uid, SeenPod { touch: 8, ..seen(stopped(vec![])) });
    assert_eq!(status_cache.missing(), MissingFacts::default());
    status_cache.observed(&uid, seen(stopped(vec![])));
    assert_eq!(status_cache.missing(), MissingFacts::default(), "a Pleg that has begun anew counts anew");
}

#[test]
fn how_a_pod_has_ended_is_told_from_no_look_that_is_older_than_the_last_one() {
    let uid = pod_ref().uid;
    let mut status_cache = PodStatusCache::new(Vec::new());
    status_cache.restored(BTreeMap::new());
    status_cache.desired(desired_pods(vec![desired(spec("OnFailure", vec![container("a")]))], true));
    status_cache.runtime(&RuntimeHealth { name: Arc::from("containerd"), ..RuntimeHealth::default() });
    // The container was not there yet.
    status_cache.observed(&uid, SeenPod { touch: 1, ..seen(observed(vec![])) });
    let ended =
        WorkerReport { released: true, deleted: true, last_look: 3, ..report(WorkerState::Terminated) };
    status_cache.reported(&uid, Arc::new(ended));
    status_cache.compute(&uid, at(1));
    assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some("Pending"));
    assert!(!status_cache.publication(&uid).unwrap().is_finished, "first its end is told");
    status_cache.observed(&uid, SeenPod { touch: 3, ..seen(stopped(vec![exited("a", "a0", 0, 0)])) });
    status_cache.compute(&uid, at(2));
    assert_eq!(status_cache.status(&uid).unwrap().phase.as_deref(), Some("Succeeded"));
    assert!(status_cache.publication(&uid).unwrap().is_finished);
}
