//! PURE: whose files are counted next (row 19.7). Whoever takes long to count waits only for others that do.

use std::collections::BTreeMap;
use std::time::Duration;

use messages::PodUid;

/// Between two counts of one pod's files.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// Who is counted together. One of each is counted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Those that are counted soon.
    Quick,
    /// Those that have taken long the last time.
    Slow,
}

impl Lane {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Quick, Self::Slow];

    /// How long a count may take; what is found later does not count.
    pub(crate) fn time_max(self) -> Duration {
        match self {
            Self::Quick => Duration::from_millis(500),
            Self::Slow => Duration::from_secs(30),
        }
    }
}

/// One that is counted. Times are those since some beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    lane: Lane,
    due: Duration,
}

/// Who is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rounds {
    pods: BTreeMap<PodUid, Counted>,
    under_way: BTreeMap<Lane, PodUid>,
}

/// What a lane does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Count this one.
    Count(PodUid),
    /// Wait for so long.
    Wait(Duration),
    /// Nothing.
    Rest,
}

impl Rounds {
    /// Whether this one is counted; a new one as soon as may be.
    pub(crate) fn set(&mut self, uid: &PodUid, counts: bool, now: Duration) {
        if counts {
            self.pods.entry(uid.clone()).or_insert(Counted { lane: Lane::Quick, due: now });
        } else {
            self.pods.remove(uid);
        }
    }

    /// What a lane does now. The one that has waited longest comes first.
    pub(crate) fn next(&mut self, lane: Lane, now: Duration) -> Next {
        if self.under_way.contains_key(&lane) {
            return Next::Rest;
        }
        let free = self.pods.iter().filter(|(uid, one)| {
            one.lane == lane && self.under_way.values().all(|under_way| under_way != *uid)
        });
        match free.min_by_key(|(_, one)| one.due) {
            None => Next::Rest,
            Some((_, one)) if one.due > now => Next::Wait(one.due - now),
            Some((uid, _)) => {
                let uid = uid.clone();
                self.under_way.insert(lane, uid.clone());
                Next::Count(uid)
            }
        }
    }

    /// A count in this lane has ended; `whole` when it was not cut off. It took so long from `began`.
    pub(crate) fn ended(&mut self, lane: Lane, whole: bool, began: Duration, now: Duration) {
        let Some(uid) = self.under_way.remove(&lane) else { return };
        let Some(one) = self.pods.get_mut(&uid) else { return };
        let is_quick = whole && now.saturating_sub(began) < Lane::Quick.time_max();
        // One that was cut off goes on at once where there is more time for it.
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
        /// These are counted, and nobody else.
        fn of<'a>(&mut self, pods: impl Iterator<Item = &'a PodUid>, now: Duration) {
            let pods: Vec<PodUid> = pods.cloned().collect();
            let gone: Vec<PodUid> = self.pods.keys().filter(|uid| !pods.contains(uid)).cloned().collect();
            gone.iter().for_each(|uid| self.set(uid, false, now));
            pods.iter().for_each(|uid| self.set(uid, true, now));
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
