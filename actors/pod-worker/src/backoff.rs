//! Crash-loop back-off (row 5.15): the first restart is at once, then delays double from 10 s to a maximum,
//! counted from the last exit. The series begins anew when an exit comes more than ten minutes after the last
//! start.
//!
//! A restart of all containers in place leaves no exit behind: such restarts have delays of their own, by pod, counted
//! from the last one.
//!
//! The delays are kept in the worker. After a crash of the worker they are rebuilt from the exited instances
//! that the runtime has: attempt numbers and times. A rebuilt delay may be too long, never too short.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_pace::Backoff;
use jiff::{SignedDuration, Timestamp};
use messages::runtime::{ContainerState, RuntimeContainer, RuntimePod};

/// The delay after the second exit, unless the maximum is lower.
const INITIAL: SignedDuration = SignedDuration::from_secs(10);
/// The delays of a container that ran this long before it exited begin anew.
const RESET_AFTER: SignedDuration = SignedDuration::from_secs(600);
/// The longest delay while the gate KubeletCrashLoopBackOffMax is off; while it is on, the configuration's default counts.
pub const MAX_DEFAULT: SignedDuration = SignedDuration::from_secs(300);

/// The shortest and the longest delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffBounds {
    /// The delay before the second restart.
    pub initial: SignedDuration,
    /// The longest delay.
    pub max: SignedDuration,
}

impl BackoffBounds {
    /// The bounds of the feature gate ReduceDefaultCrashLoopBackOffDecay.
    pub const REDUCED: Self =
        Self { initial: SignedDuration::from_secs(1), max: SignedDuration::from_secs(60) };

    /// The same bounds with another maximum; a maximum below the initial delay lowers that, too.
    #[must_use]
    pub fn up_to(self, max: SignedDuration) -> Self {
        Self { initial: self.initial.min(max), max }
    }

    fn backoff(self) -> Backoff {
        Backoff::doubling(self.initial.unsigned_abs(), self.max.unsigned_abs())
    }

    fn following(self, delay: SignedDuration) -> SignedDuration {
        signed(self.backoff().following(delay.unsigned_abs()))
    }
}

impl Default for BackoffBounds {
    fn default() -> Self {
        Self { initial: INITIAL, max: MAX_DEFAULT }
    }
}

/// The times of the API are signed, waits are not. A back-off's wait is short enough for both.
fn signed(wait: Duration) -> SignedDuration {
    SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)
}

/// Whether and when a container may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartDecision {
    /// The container may start at once.
    Start,
    /// The container may not start before `until`.
    Wait {
        /// When the delay is over.
        until: Timestamp,
        /// The whole delay, for messages.
        delay: SignedDuration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    hash: u64,
    delay: SignedDuration,
    /// When the container was last started.
    started: Timestamp,
}

/// The delays of one pod's containers, by name. A changed image begins a new entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashBackoff {
    bounds: BackoffBounds,
    entries: BTreeMap<String, Entry>,
    /// The last restart of all containers, and the delay before the next one.
    restarted_all: Option<(Timestamp, SignedDuration)>,
}

impl CrashBackoff {
    /// No delays yet.
    pub fn new(bounds: BackoffBounds) -> Self {
        Self { bounds, entries: BTreeMap::new(), restarted_all: None }
    }

    /// Whether all containers may be restarted now.
    pub fn verdict_on_all(&self, now: Timestamp) -> StartDecision {
        let Some((last, delay)) = self.restarted_all.filter(|(last, _)| *last <= now) else {
            return StartDecision::Start;
        };
        let until = last.saturating_add(delay).unwrap_or(Timestamp::MAX);
        if now < until { StartDecision::Wait { until, delay } } else { StartDecision::Start }
    }

    /// Notes that all containers have been removed to be started anew.
    pub fn restarted_all(&mut self, now: Timestamp) {
        let delay = match self.restarted_all {
            Some((last, delay)) if now.duration_since(last) <= RESET_AFTER => self.bounds.following(delay),
            _ => self.bounds.initial,
        };
        self.restarted_all = Some((now, delay));
    }

    /// Whether the container `name`, with this hash in its spec, may start now.
    pub fn verdict(&self, pod: &RuntimePod, name: &str, hash: u64, now: Timestamp) -> StartDecision {
        let Some(finished) = last_exit(pod, name).and_then(|exit| exit.finished_at) else {
            return StartDecision::Start;
        };
        let Some(entry) = self.entry(pod, name, hash) else { return StartDecision::Start };
        // The clock was set back after the exit, or the runtime's is ahead: the time since the exit is unknown, and that since the
        // start is known if the start is not ahead as well. If it is, one restart comes early.
        let since = if finished > now { entry.started } else { finished };
        if since > now || finished.min(now).duration_since(entry.started) > RESET_AFTER {
            return StartDecision::Start;
        }
        let until = since.saturating_add(entry.delay).unwrap_or(Timestamp::MAX);
        if now < until { StartDecision::Wait { until, delay: entry.delay } } else { StartDecision::Start }
    }

    /// Notes that an instance of the container has been started, as the next after those in `pod`.
    pub fn started(&mut self, pod: &RuntimePod, name: &str, hash: u64, now: Timestamp) {
        let Some(finished) = last_exit(pod, name).and_then(|exit| exit.finished_at) else {
            return;
        };
        let delay = match self.entry(pod, name, hash) {
            Some(entry) if finished.min(now).duration_since(entry.started) <= RESET_AFTER => {
                self.bounds.following(entry.delay)
            }
            _ => self.bounds.initial,
        };
        self.entries.insert(name.to_owned(), Entry { hash, delay, started: now });
    }

    fn entry(&self, pod: &RuntimePod, name: &str, hash: u64) -> Option<Entry> {
        match self.entries.get(name) {
            Some(entry) if entry.hash == hash => Some(*entry),
            // The entry is for another image: the new one has no history.
            Some(_) => None,
            None => self.rebuilt(pod, name, hash),
        }
    }

    /// The entry as a worker that never crashed would have it, or one with a longer delay.
    fn rebuilt(&self, pod: &RuntimePod, name: &str, hash: u64) -> Option<Entry> {
        let mut exits = pod.instances(name).filter(|c| c.state == ContainerState::Exited);
        let last = exits.next()?;
        if last.hash.is_some_and(|known| known != hash) || last.attempt == 0 {
            return None;
        }
        let started = last.started_at.unwrap_or(last.created_at);
        let by_count = self.after_restarts(last.attempt);
        let by_gap = exits
            .find(|older| older.attempt.checked_add(1) == Some(last.attempt))
            .and_then(|older| older.finished_at)
            .map(|finished| self.after_gap(started.duration_since(finished)));
        let delay = by_gap.map_or(by_count, |gap| gap.min(by_count));
        Some(Entry { hash, delay, started })
    }

    /// The delay after the start of this attempt, if no long run has reset it.
    fn after_restarts(&self, attempt: u32) -> SignedDuration {
        signed(self.bounds.backoff().after(attempt))
    }

    /// The delay that follows the one that was kept between an exit and the next start. The kept delay was at
    /// most the longest that fits into that gap, so the next is at most twice that.
    fn after_gap(&self, gap: SignedDuration) -> SignedDuration {
        if gap < self.bounds.initial {
            return self.bounds.initial;
        }
        let mut kept = self.bounds.initial;
        while kept < self.bounds.max && self.bounds.following(kept) <= gap {
            kept = self.bounds.following(kept);
        }
        self.bounds.following(kept)
    }
}

/// The newest instance that has exited; the delay counts from its end.
fn last_exit<'a>(pod: &'a RuntimePod, name: &'a str) -> Option<&'a RuntimeContainer> {
    pod.instances(name).find(|c| c.state == ContainerState::Exited)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{at, exited, runtime_pod};

    const HASH: u64 = 7;

    /// Lets a container crash again and again, each run of the given length, and returns the kept delays.
    fn delays(runs_seconds: &[i64], max: SignedDuration, forget: impl Fn(usize) -> bool) -> Vec<i64> {
        let mut book = CrashBackoff::new(BackoffBounds::default().up_to(max));
        let mut now = 0;
        let mut instances = Vec::new();
        let mut delays = Vec::new();
        for (index, run) in runs_seconds.iter().enumerate() {
            if forget(index) {
                book = CrashBackoff::new(BackoffBounds::default().up_to(max));
            }
            let attempt = u32::try_from(index).expect("few");
            let pod = runtime_pod(instances.clone());
            if index > 0 {
                let kept = match book.verdict(&pod, "c", HASH, at(now)) {
                    StartDecision::Start => 0,
                    StartDecision::Wait { until, .. } => until.duration_since(at(now)).as_secs(),
                };
                delays.push(kept);
                now += kept;
                assert_eq!(book.verdict(&pod, "c", HASH, at(now)), StartDecision::Start);
            }
            book.started(&pod, "c", HASH, at(now));
            let mut instance = exited("c", attempt, now, now + run, 1);
            instance.hash = Some(HASH);
            instances.insert(0, instance);
            instances.truncate(2);
            now += run;
        }
        delays
    }

    #[test]
    fn the_first_restart_is_at_once_then_ten_seconds_double_to_the_maximum() {
        assert_eq!(delays(&[1; 10], MAX_DEFAULT, |_| false), [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn a_low_maximum_is_the_initial_delay_too() {
        assert_eq!(delays(&[1; 4], SignedDuration::from_secs(3), |_| false), [0, 3, 3]);
        assert_eq!(delays(&[1; 5], SignedDuration::from_secs(25), |_| false), [0, 10, 20, 25]);
    }

    #[test]
    fn bounds_may_be_lower() {
        let reduced = BackoffBounds::REDUCED;
        assert_eq!((reduced.initial.as_secs(), reduced.max.as_secs()), (1, 60));
        let configured = reduced.up_to(MAX_DEFAULT);
        assert_eq!((configured.initial.as_secs(), configured.max.as_secs()), (1, 300));
        let mut book = CrashBackoff::new(reduced);
        book.started(&runtime_pod(vec![exited("c", 1, 0, 1, 1)]), "c", HASH, at(2));
        let mut crashed = exited("c", 2, 2, 3, 1);
        crashed.hash = Some(HASH);
        let verdict = book.verdict(&runtime_pod(vec![crashed]), "c", HASH, at(3));
        let delay = SignedDuration::from_secs(1);
        assert_eq!(verdict, StartDecision::Wait { until: at(4), delay });
    }

    #[test]
    fn exits_that_a_runtime_with_a_clock_ahead_tells_of_are_waited_for_from_the_start() {
        let mut book = CrashBackoff::new(BackoffBounds::default());
        let crashed = |attempt: u32| {
            let ended = 3600 + i64::from(attempt);
            runtime_pod(vec![RuntimeContainer { hash: Some(HASH), ..exited("c", attempt, ended, ended, 1) }])
        };
        let wait = |until: i64, delay: i64| StartDecision::Wait {
            until: at(until),
            delay: SignedDuration::from_secs(delay),
        };
        book.started(&crashed(0), "c", HASH, at(2));
        assert_eq!(book.verdict(&crashed(1), "c", HASH, at(3)), wait(12, 10));
        book.started(&crashed(1), "c", HASH, at(12));
        assert_eq!(book.verdict(&crashed(2), "c", HASH, at(13)), wait(32, 20));
        assert_eq!(book.verdict(&crashed(2), "c", HASH, at(1)), StartDecision::Start, "its own was set back");
    }

    #[test]
    fn more_than_ten_minutes_of_running_reset_the_delay() {
        assert_eq!(delays(&[1, 1, 1, 601, 1, 1], MAX_DEFAULT, |_| false), [0, 10, 20, 0, 10]);
        assert_eq!(delays(&[1, 1, 1, 600, 1], MAX_DEFAULT, |_| false), [0, 10, 20, 40]);
    }

    #[test]
    fn a_changed_image_has_no_history() {
        let mut book = CrashBackoff::new(BackoffBounds::default());
        let pod = runtime_pod(vec![exited("c", 4, 0, 1, 1)]);
        book.started(&pod, "c", HASH, at(2));
        assert!(matches!(book.verdict(&pod, "c", HASH, at(2)), StartDecision::Wait { .. }));
        assert_eq!(book.verdict(&pod, "c", HASH + 1, at(2)), StartDecision::Start);
    }

    proptest! {
        /// Whenever the worker crashes, the rebuilt delays never let a container restart earlier than the
        /// lost ones.
        #[test]
        fn a_rebuilt_book_is_never_early(
            runs in proptest::collection::vec(0i64..700, 2..9), crash in 1usize..9, max in 1i64..400,
        ) {
            let max = SignedDuration::from_secs(max);
            let kept = delays(&runs, max, |_| false);
            let rebuilt = delays(&runs, max, |index| index == crash);
            if let (Some(kept), Some(rebuilt)) = (kept.get(crash - 1), rebuilt.get(crash - 1)) {
                prop_assert!(rebuilt >= kept, "kept {kept}, rebuilt {rebuilt}");
            }
        }

        #[test]
        fn no_delay_exceeds_the_maximum(runs in proptest::collection::vec(0i64..700, 2..12), max in 1i64..400) {
            for delay in delays(&runs, SignedDuration::from_secs(max), |index| index % 3 == 0) {
                prop_assert!(delay <= max);
            }
        }
    }
}
