//! PURE: which pod's files are counted next (row 19.7). Pods that take long to count delay only other such pods, and namespaces take
//! turns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_pace::Turns;
use messages::PodUid;

/// Period between two counts of one pod's files.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// The groups of pods. One pod of each group is counted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Pods of which the last count was quick, and new pods.
    Quick,
    /// Pods of which the last count took long.
    Slow,
}

impl Lane {
    /// Both lanes.
    pub(crate) const ALL: [Self; 2] = [Self::Quick, Self::Slow];

    /// How long a count may take; it is cut off then.
    pub(crate) fn time_max(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(500),
            Self::Slow => Duration::from_secs(30),
        }
    }
}

/// A pod of the rounds. Times are durations since one fixed moment.
#[derive(Clone, Debug)]
struct Counted {
    namespace: Arc<str>,
    lane: Lane,
    due: Duration,
}

/// The pods with limits, and the counts under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    pods: BTreeMap<PodUid, Counted>,
    under_way: BTreeMap<Lane, PodUid>,
    /// Of namespaces.
    turns: BTreeMap<Lane, Turns<Arc<str>>>,
}

/// The next step of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Count this pod.
    Count(PodUid),
    /// Wait for so long.
    Wait(Duration),
    /// No pod is due, or a count is under way.
    Rest,
}

impl Rounds {
    /// Counts this one, of this namespace, from now on, a new one as soon as may be; `None` counts it no longer.
    pub(crate) fn set(&mut self, uid: &PodUid, namespace: Option<Arc<str>>, now: Duration) {
        if let Some(namespace) = namespace {
            self.pods.entry(uid.clone()).or_insert(Counted { namespace, lane: Lane::Quick, due: now });
        } else {
            self.pods.remove(uid);
        }
    }

    /// The next step of a lane. The pod that has waited longest comes first, of the namespace whose turn it is.
    pub(crate) fn next(&mut self, lane: Lane, now: Duration) -> Next {
        if self.under_way.contains_key(&lane) {
            return Next::Rest;
        }
        let under_way = &self.under_way;
        let is_free = |(uid, one): &(&PodUid, &Counted)| {
            one.lane == lane && under_way.values().all(|under_way| under_way != *uid)
        };
        let free = || self.pods.iter().filter(is_free);
        let turns = self.turns.entry(lane).or_default();
        let due = free().filter(|(_, one)| one.due <= now);
        let Some((uid, one)) = due.min_by_key(|(_, one)| (turns.round(&one.namespace), one.due)) else {
            turns.rest();
            let first = free().map(|(_, one)| one.due).min();
            return first.map_or(Next::Rest, |due| Next::Wait(due - now));
        };
        turns.take(&one.namespace);
        let uid = uid.clone();
        self.under_way.insert(lane, uid.clone());
        Next::Count(uid)
    }

    /// Notes that a count in this lane, which began at `began`, has ended at `now`; `whole` if it was not cut off.
    pub(crate) fn ended(&mut self, lane: Lane, whole: bool, began: Duration, now: Duration) {
        let Some(uid) = self.under_way.remove(&lane) else { return };
        let Some(one) = self.pods.get_mut(&uid) else { return };
        let is_quick = whole && now.saturating_sub(began) < Lane::Quick.time_max();
        // A count that was cut off in the quick lane is repeated at once in the slow one, which has more time.
        let moved = lane == Lane::Quick && !is_quick;
        one.lane = if is_quick { Lane::Quick } else { Lane::Slow };
        one.due = if moved && !whole { now } else { (began + PERIOD).max(now) };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Rounds {
        /// Begins a count of exactly these pods.
        fn of<'a>(&mut self, pods: impl Iterator<Item = &'a PodUid>, now: Duration) {
            let pods: Vec<PodUid> = pods.cloned().collect();
            let gone: Vec<PodUid> = self.pods.keys().filter(|uid| !pods.contains(uid)).cloned().collect();
            gone.iter().for_each(|uid| self.set(uid, None, now));
            pods.iter().for_each(|uid| self.set(uid, Some("one".into()), now));
        }
    }

    fn uids(names: &[&str]) -> Vec<PodUid> {
        names.iter().map(|name| PodUid::new(name)).collect()
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn everybody_is_counted_once_a_period_and_one_at_a_time() {
        let (mut rounds, pods) = (Rounds::default(), uids(&["a", "b"]));
        rounds.of(pods.iter(), at(0));
        assert_eq!(rounds.next(Lane::Quick, at(0)), Next::Count(pods[0].clone()));
        assert_eq!(rounds.next(Lane::Quick, at(0)), Next::Rest, "one at a time");
        rounds.ended(Lane::Quick, true, at(0), at(10));
        assert_eq!(rounds.next(Lane::Quick, at(10)), Next::Count(pods[1].clone()));
        rounds.ended(Lane::Quick, true, at(10), at(20));
        assert_eq!(rounds.next(Lane::Quick, at(20)), Next::Wait(at(9_980)));
        rounds.of(pods[1..].iter(), at(30));
        assert_eq!(rounds.next(Lane::Quick, at(30)), Next::Wait(at(9_980)), "the other one has gone");
        assert_eq!(rounds.next(Lane::Slow, at(30)), Next::Rest);
    }

    #[test]
    fn who_takes_long_waits_for_others_that_do() {
        let (mut rounds, pods) = (Rounds::default(), uids(&["huge", "small"]));
        rounds.of(pods.iter(), at(0));
        assert_eq!(rounds.next(Lane::Quick, at(0)), Next::Count(pods[0].clone()));
        rounds.ended(Lane::Quick, false, at(0), at(500));
        assert_eq!(rounds.next(Lane::Slow, at(500)), Next::Count(pods[0].clone()), "at once");
        assert_eq!(rounds.next(Lane::Quick, at(500)), Next::Count(pods[1].clone()));
        rounds.ended(Lane::Quick, true, at(500), at(501));
        assert_eq!(rounds.next(Lane::Quick, at(10_500)), Next::Count(pods[1].clone()), "while that goes on");
        rounds.ended(Lane::Slow, false, at(500), at(30_500));
        assert_eq!(rounds.next(Lane::Slow, at(30_500)), Next::Count(pods[0].clone()));
        rounds.ended(Lane::Slow, true, at(30_500), at(30_600));
        assert_eq!(rounds.next(Lane::Slow, at(30_600)), Next::Rest, "it is quick again");
    }

    #[test]
    fn a_namespace_with_many_slow_pods_delays_those_of_another_by_one_count_each() {
        let (mut rounds, quiet) = (Rounds::default(), PodUid::new("quiet"));
        for number in 0..20 {
            rounds.set(&PodUid::new(&format!("crowd-{number}")), Some("crowd".into()), at(0));
        }
        rounds.set(&quiet, Some("quiet".into()), at(0));
        // The place of the quiet one among the pods of the lane that were counted, each until it was cut off.
        let mut places = |lane: Lane, counts: usize, now: &mut u64| {
            let mut places = Vec::new();
            for place in 0..counts {
                let Next::Count(uid) = rounds.next(lane, at(*now)) else {
                    panic!("{place}: every pod is due")
                };
                places.extend((uid == quiet).then_some(place));
                let began = at(*now);
                *now += u64::try_from(lane.time_max().as_millis()).unwrap();
                rounds.ended(lane, false, began, at(*now));
            }
            places
        };
        let mut now = 0;
        assert_eq!(places(Lane::Quick, 21, &mut now), [1]);
        assert_eq!(places(Lane::Slow, 8, &mut now), [1, 3, 5, 7]);
    }

    proptest! {
        #[test]
        fn the_quick_are_never_late_whatever_the_slow_take(
            slow in 0usize..6, quick in 1usize..8, takes in proptest::collection::vec(1u64..30_000, 8),
        ) {
            let mut rounds = Rounds::default();
            let all: Vec<PodUid> = (0..slow + quick).map(|number| PodUid::new(&format!("{number}"))).collect();
            rounds.of(all.iter(), at(0));
            let mut last: BTreeMap<PodUid, u64> = BTreeMap::new();
            let mut ends: BTreeMap<Lane, (u64, bool, u64)> = BTreeMap::new();
            for now in (0..100_000).step_by(10) {
                for lane in Lane::ALL {
                    if let Some((end, whole, began)) = ends.get(&lane).copied().filter(|(end, _, _)| *end <= now) {
                        rounds.ended(lane, whole, at(began), at(end.max(now)));
                        ends.remove(&lane);
                    }
                    if let Next::Count(uid) = rounds.next(lane, at(now)) {
                        let number: usize = uid.as_str().parse().unwrap();
                        if number >= slow {
                            let late = now - last.insert(uid, now).unwrap_or(now);
                            prop_assert!(late <= 10_000 + 20 * 8 + 500 * 6, "{late} ms");
                        }
                        let takes = if number < slow { takes[number].max(600) } else { 10 };
                        let cut = u64::try_from(lane.time_max().as_millis()).unwrap();
                        ends.insert(lane, (now + takes.min(cut), takes <= cut, now));
                    }
                }
            }
            prop_assert_eq!(last.len(), quick, "everybody was counted");
        }
    }
}
