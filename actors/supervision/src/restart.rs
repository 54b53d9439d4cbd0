//! PURE: restart intensity. When a crashed actor starts again, and when it is above its restart limit.

use std::collections::VecDeque;
use std::time::Duration;

use bridge_pace::Backoff;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How often and how soon an actor is restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestartPolicy {
    /// Delay before the first restart of a series.
    pub backoff_initial: Duration,
    /// The delay doubles up to this.
    pub backoff_max: Duration,
    /// Restarts allowed within `window`; one more crash is above the limit.
    pub restarts_max: u32,
    /// The length of time over which `restarts_max` counts.
    pub window: Duration,
    /// An actor that has lived this long starts with a clean history.
    pub healthy_after: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            backoff_initial: Duration::from_millis(100),
            backoff_max: Duration::from_secs(10),
            restarts_max: 5,
            window: Duration::from_secs(60),
            healthy_after: Duration::from_secs(60),
        }
    }
}

/// Crashes within the window that are put down to pods. Above, something is wrong that quarantines do not keep away, such as
/// pods that are made anew as fast as they are quarantined. More than the pods of a node, since all of them may be poison at
/// once: then the actor gets past them soonest when it is restarted at once.
const BLAMED_MAX: usize = 128;

/// What to do about a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartDecision {
    /// Start a new incarnation after this delay.
    Restart(Duration),
    /// The actor is above its restart limit.
    Exhausted,
}

/// What a crash counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The actor itself: the crash counts towards its restart limit.
    Actor,
    /// A pod. The actor is restarted at once and nothing counts against it: the back-off is the pod's quarantine. Only an
    /// actor that crashes more often than a node has pods is above its limit.
    Pod,
    /// A pod that is quarantined already. The actor restarts at once too, but repeated crashes of this kind
    /// exceed the restart limit as the actor's own would.
    QuarantinedPod,
}

/// The crashes of one actor that still matter.
#[derive(Debug, Default)]
pub struct RestartHistory {
    counted: VecDeque<Instant>,
    /// Crashes caused by a pod in spite of its quarantine.
    in_spite: VecDeque<Instant>,
    /// Other crashes that were put down to pods.
    blamed: VecDeque<Instant>,
    series: u32,
    random: u64,
}

impl RestartHistory {
    /// An empty history; `seed` fixes the jitter.
    pub fn new(seed: u64) -> Self {
        Self { random: seed, ..Self::default() }
    }

    /// Decides what follows a crash at `now` of an incarnation that started at `started`.
    pub fn crashed(
        &mut self,
        policy: &RestartPolicy,
        started: Instant,
        now: Instant,
        culprit: Culprit,
    ) -> RestartDecision {
        if now.duration_since(started) >= policy.healthy_after {
            self.clear();
        }
        let (counted, max) = match culprit {
            Culprit::Actor => (&mut self.counted, policy.restarts_max as usize),
            Culprit::QuarantinedPod => (&mut self.in_spite, policy.restarts_max as usize),
            Culprit::Pod => (&mut self.blamed, BLAMED_MAX),
        };
        while counted.front().is_some_and(|at| now.duration_since(*at) >= policy.window) {
            counted.pop_front();
        }
        if counted.len() >= max {
            return RestartDecision::Exhausted;
        }
        counted.push_back(now);
        if culprit != Culprit::Actor {
            return RestartDecision::Restart(Duration::ZERO);
        }
        self.series = self.series.saturating_add(1);
        let delay = Backoff::doubling(policy.backoff_initial, policy.backoff_max).after(self.series);
        RestartDecision::Restart(self.jittered(delay))
    }

    /// Forgets all crashes, when a dormant actor is tried again.
    pub fn clear(&mut self) {
        self.counted.clear();
        self.in_spite.clear();
        self.blamed.clear();
        self.series = 0;
    }

    /// Between 80 % and 100 % of the delay, so that actors that crashed together do not restart together.
    fn jittered(&mut self, delay: Duration) -> Duration {
        let part = splitmix64(&mut self.random) % 200;
        delay.mul_f64(1.0 - part as f64 / 1000.0)
    }
}

/// The SplitMix64 step: small, fast, and the same everywhere for the same seed.
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(verdict: RestartDecision) -> u128 {
        match verdict {
            RestartDecision::Restart(delay) => delay.as_millis(),
            RestartDecision::Exhausted => panic!("exhausted"),
        }
    }

    #[test]
    fn delays_double_up_to_the_maximum_and_the_sixth_crash_is_too_many() {
        let policy = RestartPolicy::default();
        let mut history = RestartHistory::new(1);
        let start = Instant::now();
        for n in 0..5u32 {
            let ms = millis(history.crashed(
                &policy,
                start,
                start + Duration::from_secs(u64::from(n)),
                Culprit::Actor,
            ));
            let full = 100u128 << n;
            assert!((full * 8 / 10..=full).contains(&ms), "restart {n}: {ms} ms");
        }
        assert_eq!(
            history.crashed(&policy, start, start + Duration::from_secs(6), Culprit::Actor),
            RestartDecision::Exhausted
        );
    }

    #[test]
    fn a_minute_of_health_clears_the_history() {
        let policy = RestartPolicy::default();
        let mut history = RestartHistory::new(1);
        let start = Instant::now();
        for _ in 0..5 {
            history.crashed(&policy, start, start, Culprit::Actor);
        }
        let later = start + Duration::from_secs(60);
        assert!(millis(history.crashed(&policy, start, later, Culprit::Actor)) <= 100);
    }

    #[test]
    fn crashes_of_poison_pods_cost_no_time_and_exhaust_only_beyond_the_pods_of_a_node() {
        let policy = RestartPolicy::default();
        let mut history = RestartHistory::new(1);
        let start = Instant::now();
        for _ in 0..BLAMED_MAX {
            let verdict = history.crashed(&policy, start, start, Culprit::Pod);
            assert_eq!(verdict, RestartDecision::Restart(Duration::ZERO));
        }
        assert!(
            millis(history.crashed(&policy, start, start, Culprit::Actor)) <= 100,
            "nor a place in the series"
        );
        assert_eq!(history.crashed(&policy, start, start, Culprit::Pod), RestartDecision::Exhausted);
        let later = start + policy.window;
        let verdict = history.crashed(&policy, later, later, Culprit::Pod);
        assert_eq!(verdict, RestartDecision::Restart(Duration::ZERO));
    }

    #[test]
    fn an_actor_that_does_not_get_past_a_quarantined_pod_is_exhausted() {
        let policy = RestartPolicy::default();
        let mut history = RestartHistory::new(1);
        let start = Instant::now();
        for _ in 0..5 {
            let verdict = history.crashed(&policy, start, start, Culprit::QuarantinedPod);
            assert_eq!(verdict, RestartDecision::Restart(Duration::ZERO));
        }
        assert_eq!(
            history.crashed(&policy, start, start, Culprit::QuarantinedPod),
            RestartDecision::Exhausted
        );
        let restart = history.crashed(&policy, start, start, Culprit::Actor);
        assert!(matches!(restart, RestartDecision::Restart(_)), "its own crashes have their own count");
    }

    proptest! {
        #[test]
        fn never_more_counted_restarts_in_a_window_than_allowed(gaps in prop::collection::vec(0u64..30_000, 1..60)) {
            let policy = RestartPolicy { healthy_after: Duration::from_secs(1 << 30), ..RestartPolicy::default() };
            let mut history = RestartHistory::new(7);
            let start = Instant::now();
            let (mut now, mut granted) = (start, Vec::new());
            for gap in gaps {
                now += Duration::from_millis(gap);
                if let RestartDecision::Restart(delay) = history.crashed(&policy, start, now, Culprit::Actor) {
                    prop_assert!(delay <= policy.backoff_max);
                    granted.push(now);
                }
                let inside = granted.iter().filter(|at| now.duration_since(**at) < policy.window).count();
                prop_assert!(inside <= policy.restarts_max as usize);
            }
        }
    }
}
