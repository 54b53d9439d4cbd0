//! When a worker syncs again after an error (row 3.4); restarts of containers have delays of their own, in `backoff`.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The pause after an error of a sync.
pub const AFTER_ERROR: Duration = Duration::from_secs(10);
/// The pause while the runtime's network is not ready.
pub const NETWORK_NOT_READY: Duration = Duration::from_secs(1);
/// The pause after an ask that got no answer.
pub const AFTER_LOST_ANSWER: Duration = Duration::from_secs(1);

/// `base` stretched by a factor of 1 to 1.5, so that many pods do not try again at the same moment.
pub fn jittered(base: Duration, random: u64) -> Duration {
    bridge_pace::stretched(base, 0.5, random)
}

/// `now` plus `after`, at most the last moment that exists.
pub fn later(now: Timestamp, after: Duration) -> Timestamp {
    SignedDuration::try_from(after)
        .ok()
        .and_then(|after| now.checked_add(after).ok())
        .unwrap_or(Timestamp::MAX)
}

/// How long until `moment`; zero if it has passed.
pub fn until(moment: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(moment.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::at;

    proptest! {
        #[test]
        fn jitter_stretches_by_one_to_one_and_a_half(ms in 0u64..1_000_000, random: u64) {
            let base = Duration::from_millis(ms);
            let stretched = jittered(base, random);
            prop_assert!(stretched >= base && stretched <= base.mul_f64(1.5));
        }

        #[test]
        fn waiting_until_later_takes_as_long(ms in 0u64..1_000_000) {
            let after = Duration::from_millis(ms);
            prop_assert_eq!(until(later(at(0), after), at(0)), after);
            prop_assert_eq!(until(at(0), later(at(0), after)), Duration::ZERO);
        }
    }
}
