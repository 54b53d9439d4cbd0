//! How long a pod waits before the next try at an image that could not be pulled (row 6.3).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bridge_pace::Backoff;
use messages::PodUid;
use pod_rules::errors;

/// From 10 s, doubling up to 5 min.
pub const USUAL: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(300));

/// The most images of pods whose failures are remembered: beyond them the oldest failure is forgotten, and its image is tried again
/// as soon as a pod asks.
const ENTRIES_MAX: usize = 10_000;
/// The most bytes that are remembered of an error.
const ERROR_BYTES_MAX: usize = 1024;

/// A pod and one of its images, as the pod's spec spells it.
pub type BackoffKey = (PodUid, String);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    wait: Duration,
    failed_at: Duration,
    error: String,
}

/// The waits in force. Times are durations since one fixed moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoffs {
    policy: Backoff,
    entries: BTreeMap<BackoffKey, Entry>,
    /// The failures, the oldest first; of an image that has failed again since, an earlier one counts no more.
    order: VecDeque<(Duration, BackoffKey)>,
}

/// A wait that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How long the wait still lasts.
    pub left: Duration,
    /// The failure that began the wait, `<reason>: <message>`.
    pub error: String,
}

impl Backoffs {
    /// No waits.
    pub fn new(policy: Backoff) -> Self {
        Self { policy, entries: BTreeMap::new(), order: VecDeque::new() }
    }

    /// The wait in force for a pod's image, if there is one.
    pub fn waiting(&self, key: &BackoffKey, now: Duration) -> Option<Waiting> {
        let entry = self.entries.get(key)?;
        let left = entry.wait.checked_sub(now.saturating_sub(entry.failed_at))?;
        (!left.is_zero()).then(|| Waiting { left, error: entry.error.clone() })
    }

    /// Records that a pull failed with `error` (`<reason>: <message>`). Returns the wait that begins.
    pub fn failed(&mut self, key: BackoffKey, mut error: String, now: Duration) -> Duration {
        self.forget_stale(now);
        errors::cut(&mut error, ERROR_BYTES_MAX);
        let wait = match self.entries.get(&key) {
            Some(entry) => self.policy.following(entry.wait),
            None => self.policy.first(),
        };
        self.order.push_back((now, key.clone()));
        self.entries.insert(key, Entry { wait, failed_at: now, error });
        while self.order.len() > ENTRIES_MAX {
            self.forget_oldest();
        }
        wait
    }

    /// Drops entries without a failure for twice the longest wait. Each failure is looked at once.
    pub fn forget_stale(&mut self, now: Duration) {
        let keep = self.policy.longest() * 2;
        while self.order.front().is_some_and(|(failed_at, _)| now.saturating_sub(*failed_at) > keep) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((failed_at, key)) = self.order.pop_front() else { return };
        if self.entries.get(&key).is_some_and(|entry| entry.failed_at == failed_at) {
            self.entries.remove(&key);
        }
    }

    /// How many images of pods have failed lately.
    pub fn failed_lately(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> BackoffKey {
        (PodUid::new("u"), "busybox".to_owned())
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn waits_double_from_ten_seconds_to_five_minutes() {
        let mut backoffs = Backoffs::new(USUAL);
        let mut now = secs(1000);
        for expected in [10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(backoffs.failed(key(), "ErrImagePull: no".to_owned(), now), secs(expected));
            let waiting = backoffs.waiting(&key(), now + secs(1)).expect("a wait is in force");
            assert_eq!(waiting, Waiting { left: secs(expected - 1), error: "ErrImagePull: no".to_owned() });
            now += secs(expected);
            assert_eq!(backoffs.waiting(&key(), now), None);
        }
    }

    #[test]
    fn a_long_quiet_time_begins_anew_and_other_pods_are_not_held_up() {
        let mut backoffs = Backoffs::new(USUAL);
        backoffs.failed(key(), "e".to_owned(), secs(0));
        assert_eq!(backoffs.waiting(&(PodUid::new("other"), "busybox".to_owned()), secs(1)), None);
        assert_eq!(backoffs.failed(key(), "e".to_owned(), secs(601)), secs(10));
        assert_eq!(backoffs.failed_lately(), 1);
        backoffs.forget_stale(secs(601 + 601));
        assert_eq!(backoffs.failed_lately(), 0);
    }

    #[test]
    fn failures_are_remembered_within_bounds() {
        let mut backoffs = Backoffs::new(USUAL);
        let of = |number: usize| (PodUid::new("u"), format!("image-{number}"));
        for number in 0..ENTRIES_MAX + 5 {
            backoffs.failed(of(number), "x".repeat(5000), secs(1));
        }
        assert_eq!((backoffs.failed_lately(), backoffs.order.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(backoffs.waiting(&of(4), secs(1)), None, "the oldest is forgotten");
        let known = backoffs.waiting(&of(5), secs(1)).expect("a wait is in force");
        assert!(known.error.len() <= ERROR_BYTES_MAX + 3, "{}", known.error.len());
        backoffs.failed(of(5), String::new(), secs(2));
        backoffs.forget_stale(secs(602));
        assert_eq!(backoffs.failed_lately(), 1, "one has failed again");
    }

    proptest! {
        #[test]
        fn waits_never_shrink_or_leave_their_bounds(gaps in proptest::collection::vec(0u64..=600, 1..40)) {
            let mut backoffs = Backoffs::new(USUAL);
            let (mut now, mut last) = (secs(0), secs(0));
            for gap in gaps {
                now += secs(gap);
                let wait = backoffs.failed(key(), String::new(), now);
                prop_assert!(wait >= secs(10) && wait <= secs(300) && wait >= last);
                last = wait;
            }
        }
    }
}
