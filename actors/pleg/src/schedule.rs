//! PURE: which pods are looked at when. One look per pod at a time, and a bounded number at once, in which slow looks
//! do not count, so that one hung pod never delays the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use messages::PodUid;
use messages::runtime::{ContainerState, RuntimePod};

/// At most so many looks are under way at once, slow ones not counted.
pub const LOOKS_MAX: usize = 32;

/// The looks at one pod.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The newest token that asked for a look.
    token: u64,
    /// The token with which the look under way began, if there is one.
    looking: Option<u64>,
    slow: bool,
    /// Whether another look was wanted since the one under way began.
    again: bool,
    /// Whether an actor has asked for a look that has not begun.
    asked: bool,
    /// Whether an actor has asked for the look under way.
    answers: bool,
    queued: bool,
    /// Containers whose process has ended; the runtime may not have noticed yet.
    ended: BTreeSet<Arc<str>>,
}

/// A look to begin.
#[derive(Debug, PartialEq, Eq)]
pub struct Look {
    /// The pod.
    pub uid: PodUid,
    /// The look answers every request up to this token.
    pub token: u64,
    /// Containers whose process has ended: if the runtime says that they run, it is asked again.
    pub ended: BTreeSet<Arc<str>>,
}

/// All pods' looks.
#[derive(Debug, Default)]
pub struct Schedule {
    pods: BTreeMap<PodUid, Entry>,
    /// Looks that an asker waits for go first.
    asked: VecDeque<PodUid>,
    queue: VecDeque<PodUid>,
    under_way: usize,
}

impl Schedule {
    /// Queues a look at a pod that an actor has asked for, with its token (0: it does not wait for the look).
    pub fn touched(&mut self, uid: &PodUid, token: u64) {
        let entry = self.pods.entry(uid.clone()).or_default();
        entry.asked = true;
        let waited_for = token > entry.token;
        entry.token = entry.token.max(token);
        self.enqueue(uid, waited_for);
    }

    /// Queues a look at a pod that no actor has asked for.
    pub fn want(&mut self, uid: &PodUid) {
        self.enqueue(uid, false);
    }

    /// Whether an actor has asked for a look at the pod that has not begun, or that has failed.
    pub fn is_asked(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|entry| entry.asked)
    }

    fn enqueue(&mut self, uid: &PodUid, waited_for: bool) {
        let entry = self.pods.entry(uid.clone()).or_default();
        if entry.looking.is_some() {
            entry.again = true;
            return;
        }
        if std::mem::replace(&mut entry.queued, true) {
            if !waited_for || self.asked.contains(uid) {
                return;
            }
            self.queue.retain(|queued| queued != uid);
        }
        if waited_for {
            self.asked.push_back(uid.clone());
        } else {
            self.queue.push_back(uid.clone());
        }
    }

    /// Notes that a container's process has ended: the next look does not believe a runtime that says it runs.
    pub fn ended(&mut self, uid: &PodUid, container: Arc<str>) {
        self.pods.entry(uid.clone()).or_default().ended.insert(container);
    }

    /// Forgets the ended containers that a look has found to have ended.
    pub fn found_ended(&mut self, uid: &PodUid, found: &RuntimePod) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        for container in found.containers.iter().filter(|c| c.state == ContainerState::Exited) {
            entry.ended.remove(&container.id);
        }
    }

    /// The next look to begin; `None` if none is queued or too many are under way.
    pub fn next(&mut self) -> Option<Look> {
        if self.under_way >= LOOKS_MAX {
            return None;
        }
        let uid = self.asked.pop_front().or_else(|| self.queue.pop_front())?;
        let entry = self.pods.get_mut(&uid).expect("a queued pod has an entry");
        entry.queued = false;
        entry.looking = Some(entry.token);
        entry.answers = std::mem::take(&mut entry.asked);
        entry.slow = false;
        self.under_way += 1;
        Some(Look { uid, token: entry.token, ended: std::mem::take(&mut entry.ended) })
    }

    /// The number of looks under way that count.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Notes that the look at this pod takes long, so that it no longer counts.
    pub fn slow(&mut self, uid: &PodUid) {
        if let Some(entry) = self.pods.get_mut(uid)
            && entry.looking.is_some()
            && !entry.slow
        {
            entry.slow = true;
            self.under_way -= 1;
        }
    }

    /// Notes that the look has ended. Queues another one if an actor has asked for one meanwhile; returns whether one was
    /// wanted that no actor has asked for.
    pub fn done(&mut self, uid: &PodUid) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        if entry.looking.take().is_some() && !entry.slow {
            self.under_way -= 1;
        }
        let (wanted, asked) = (std::mem::take(&mut entry.again) || !entry.ended.is_empty(), entry.asked);
        if wanted && asked {
            self.want(uid);
        }
        wanted && !asked
    }

    /// The same as [`done`](Self::done) for a look that has failed: the actors that have asked for it go on waiting.
    pub fn failed(&mut self, uid: &PodUid) -> bool {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.asked |= std::mem::take(&mut entry.answers);
        }
        self.done(uid)
    }

    /// Forgets a pod of which the runtime holds nothing, unless a look at it is wanted.
    pub fn forget(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|entry| entry.looking.is_none() && !entry.queued) {
            self.pods.remove(uid);
        }
    }

    /// The number of looks queued or under way.
    pub fn pending(&self) -> usize {
        self.pods.values().filter(|entry| entry.queued || entry.looking.is_some()).count()
    }

    /// The pods whose looks take long.
    pub fn slow_pods(&self) -> Vec<PodUid> {
        self.pods.iter().filter(|(_, e)| e.looking.is_some() && e.slow).map(|(uid, _)| uid.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use bridge_cri::wire;
    use messages::PodRef;
    use proptest::prelude::*;

    use super::*;
    use crate::observe;

    fn uid(n: usize) -> PodUid {
        PodUid::new(&format!("u{n}"))
    }

    #[test]
    fn one_look_per_pod_and_another_if_something_happened_meanwhile() {
        let mut schedule = Schedule::default();
        schedule.touched(&uid(1), 5);
        schedule.touched(&uid(1), 7);
        assert_eq!(schedule.next(), Some(Look { uid: uid(1), token: 7, ended: BTreeSet::new() }));
        schedule.touched(&uid(1), 8);
        assert_eq!(schedule.next(), None, "it is being looked at");
        schedule.done(&uid(1));
        assert_eq!(schedule.next().map(|look| look.token), Some(8));
        schedule.done(&uid(1));
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn at_the_end_of_a_look_only_what_an_actor_has_asked_for_is_queued() {
        let mut schedule = Schedule::default();
        schedule.want(&uid(1));
        assert!(schedule.next().is_some());
        schedule.want(&uid(1));
        assert!(schedule.done(&uid(1)), "an event has come meanwhile");
        assert_eq!(schedule.next(), None);
        schedule.want(&uid(1));
        assert!(schedule.next().is_some());
        schedule.ended(&uid(1), Arc::from("c"));
        schedule.touched(&uid(1), 0);
        assert!(!schedule.done(&uid(1)), "the look is queued");
        assert_eq!(schedule.next().map(|look| look.ended.len()), Some(1));
        assert!(!schedule.done(&uid(1)));
    }

    #[test]
    fn who_has_asked_for_a_look_that_failed_still_asks() {
        let mut schedule = Schedule::default();
        schedule.touched(&uid(1), 5);
        assert!(schedule.next().is_some() && !schedule.is_asked(&uid(1)));
        assert!(!schedule.failed(&uid(1)), "it is repeated later");
        assert!(schedule.is_asked(&uid(1)));
        schedule.want(&uid(1));
        assert_eq!(schedule.next().map(|look| look.token), Some(5));
        assert!(!schedule.done(&uid(1)) && !schedule.is_asked(&uid(1)));
    }

    #[test]
    fn slow_looks_make_room() {
        let mut schedule = Schedule::default();
        for n in 0..=LOOKS_MAX {
            schedule.touched(&uid(n), 1);
        }
        let first: Vec<_> = std::iter::from_fn(|| schedule.next()).collect();
        assert_eq!(first.len(), LOOKS_MAX);
        schedule.slow(&first[0].uid);
        assert!(schedule.next().is_some());
        schedule.done(&first[0].uid);
        assert_eq!(schedule.next(), None, "a slow look that ends gives back no room twice");
    }

    #[test]
    fn looks_that_somebody_waits_for_go_first() {
        let mut schedule = Schedule::default();
        for n in 0..4 {
            schedule.want(&uid(n));
        }
        schedule.touched(&uid(3), 9);
        let order: Vec<_> = std::iter::from_fn(|| schedule.next()).map(|look| look.uid).collect();
        assert_eq!(order, [uid(3), uid(0), uid(1), uid(2)]);
    }

    #[test]
    fn ended_containers_are_forgotten_in_work_by_the_number_of_containers() {
        let pod = PodRef { uid: uid(1), namespace: Arc::from("ns"), name: Arc::from("web") };
        let (mut schedule, mut found) = (Schedule::default(), RuntimePod::absent(pod));
        for number in 0..20_000 {
            let id = format!("c{number:05}");
            schedule.ended(&uid(1), Arc::from(&*id));
            let state = wire::ContainerState::ContainerExited as i32;
            let status = wire::ContainerStatus { id, state, ..wire::ContainerStatus::default() };
            found.containers.push(observe::container(&wire::Container::default(), &status, 0));
        }
        schedule.ended(&uid(1), Arc::from("still running"));
        let begun = tokio::time::Instant::now();
        schedule.found_ended(&uid(1), &found);
        let took = begun.elapsed();
        assert!(took.as_secs() < 5, "{took:?}");
        schedule.want(&uid(1));
        let ended = schedule.next().map(|look| look.ended);
        assert_eq!(ended, Some([Arc::from("still running")].into()));
    }

    proptest! {
        #[test]
        fn every_request_is_answered_by_a_look_that_began_after_it(steps in prop::collection::vec((0usize..3, 0usize..6), 1..200)) {
            let mut schedule = Schedule::default();
            let (mut token, mut asked, mut begun) = (0u64, BTreeMap::new(), BTreeMap::new());
            let mut running: Vec<PodUid> = Vec::new();
            for (what, pod) in steps {
                match what {
                    0 => { token += 1; schedule.touched(&uid(pod), token); asked.insert(uid(pod), token); }
                    1 => while let Some(look) = schedule.next() { begun.insert(look.uid.clone(), look.token); running.push(look.uid); },
                    _ => for pod in running.drain(..) { schedule.done(&pod); },
                }
            }
            for _ in 0..3 {
                for pod in running.drain(..) { schedule.done(&pod); }
                while let Some(look) = schedule.next() { begun.insert(look.uid.clone(), look.token); running.push(look.uid); }
            }
            prop_assert_eq!(asked, begun);
        }
    }
}
