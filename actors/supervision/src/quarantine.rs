//! PURE: poison pods. A panic while handling a message that names a pod counts against that pod; the third
//! in ten minutes quarantines the pod in that subsystem.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// When a pod is quarantined, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QuarantinePolicy {
    /// This many panics of one pod within `window` quarantine it.
    pub panics_max: u32,
    /// The window of `panics_max`.
    pub window: Duration,
    /// Panics over more different pods than this within `window` are the subsystem's own.
    pub pods_max: u32,
    /// Length of the first quarantine; it doubles with every further one.
    pub backoff_initial: Duration,
    /// The longest quarantine.
    pub backoff_max: Duration,
}

impl Default for QuarantinePolicy {
    fn default() -> Self {
        Self {
            panics_max: 3,
            window: Duration::from_secs(600),
            pods_max: 3,
            backoff_initial: Duration::from_secs(10),
            backoff_max: Duration::from_secs(300),
        }
    }
}

/// What a panic means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// It counts towards the subsystem's restart limit.
    pub counts: bool,
    /// The pod is to be left alone for this long.
    pub quarantine: Option<Duration>,
}

/// Panics of one subsystem by pod. Bounded: entries older than the window go.
#[derive(Debug, Default)]
pub struct Panics {
    by_pod: BTreeMap<PodUid, Record>,
}

#[derive(Debug, Default)]
struct Record {
    at: VecDeque<Instant>,
    quarantines: u32,
}

impl Panics {
    /// Records a panic at `now`, while handling a message of `pod`, and says whose fault it is.
    pub fn blame(&mut self, policy: &QuarantinePolicy, pod: Option<&PodUid>, now: Instant) -> Blame {
        let Some(uid) = pod else { return Blame { counts: true, quarantine: None } };
        self.forget_old(policy, now);
        let record = self.by_pod.entry(uid.clone()).or_default();
        record.at.push_back(now);
        let quarantine = (record.at.len() >= policy.panics_max as usize).then(|| {
            record.quarantines = record.quarantines.saturating_add(1);
            let length =
                Backoff::doubling(policy.backoff_initial, policy.backoff_max).after(record.quarantines);
            // One more panic after the quarantine brings the next one. The newest stay: they are the ones
            // that the next panic may share its window with.
            while record.at.len() > policy.panics_max as usize {
                record.at.pop_front();
            }
            length
        });
        Blame { counts: self.by_pod.len() > policy.pods_max as usize, quarantine }
    }

    fn forget_old(&mut self, policy: &QuarantinePolicy, now: Instant) {
        self.by_pod.retain(|_, record| {
            let fresh = |at: &Instant| now.duration_since(*at) < policy.window;
            while record.at.front().is_some_and(|at| !fresh(at)) {
                record.at.pop_front();
            }
            !record.at.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_panic_of_a_pod_quarantines_it_and_never_counts() {
        let (policy, mut panics, now) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        let uid = PodUid::new("a");
        assert_eq!(panics.blame(&policy, Some(&uid), now), Blame { counts: false, quarantine: None });
        assert_eq!(panics.blame(&policy, Some(&uid), now), Blame { counts: false, quarantine: None });
        let third = panics.blame(&policy, Some(&uid), now);
        assert_eq!(third, Blame { counts: false, quarantine: Some(Duration::from_secs(10)) });
        let fourth = panics.blame(&policy, Some(&uid), now);
        assert_eq!(fourth.quarantine, Some(Duration::from_secs(20)));
    }

    #[test]
    fn the_newest_panics_count_after_a_quarantine() {
        let (policy, mut panics, start) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        let uid = PodUid::new("a");
        let minutes = |n: u64| start + Duration::from_secs(60 * n);
        let quarantined: Vec<bool> = [0, 1, 2, 9, 11]
            .map(|at| panics.blame(&policy, Some(&uid), minutes(at)).quarantine.is_some())
            .to_vec();
        assert_eq!(quarantined, [false, false, true, true, true], "2, 9 and 11 are within ten minutes");
    }

    #[test]
    fn a_fourth_different_pod_makes_it_the_subsystems_fault() {
        let (policy, mut panics, now) = (QuarantinePolicy::default(), Panics::default(), Instant::now());
        for pod in ["a", "b", "c"] {
            assert!(!panics.blame(&policy, Some(&PodUid::new(pod)), now).counts);
        }
        assert!(panics.blame(&policy, Some(&PodUid::new("d")), now).counts);
        let later = now + Duration::from_secs(600);
        assert!(!panics.blame(&policy, Some(&PodUid::new("e")), later).counts, "old panics are forgotten");
    }

    #[test]
    fn a_panic_without_a_pod_counts() {
        let blame = Panics::default().blame(&QuarantinePolicy::default(), None, Instant::now());
        assert_eq!(blame, Blame { counts: true, quarantine: None });
    }
}
