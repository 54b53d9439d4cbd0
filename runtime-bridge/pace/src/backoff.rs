//! Waits that grow with every failure.

use std::time::Duration;

/// Waits that grow by a constant factor, from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    /// Each wait is this percentage of the one before.
    percent: u32,
}

impl Backoff {
    /// Waits that double.
    pub const fn doubling(first: Duration, longest: Duration) -> Self {
        Self::growing(first, longest, 200)
    }

    /// Waits of which each is `percent` per cent of the one before.
    pub const fn growing(first: Duration, longest: Duration, percent: u32) -> Self {
        Self { first, longest, percent }
    }

    /// The wait after the first failure.
    pub fn first(&self) -> Duration {
        self.first.min(self.longest)
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The wait that follows `wait`.
    pub fn following(&self, wait: Duration) -> Duration {
        (wait.saturating_mul(self.percent) / 100).min(self.longest)
    }

    /// The wait after this many failures in a row; 0 counts as 1.
    pub fn after(&self, failures: u32) -> Duration {
        let mut wait = self.first();
        for _ in 1..failures {
            let following = self.following(wait);
            if following == wait {
                break;
            }
            wait = following;
        }
        wait
    }
}

/// A number from 0 up to but not including 1, from the upper 53 of 64 random bits, which a double holds exactly.
pub fn fraction(random: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let (part, all) = ((random >> 11) as f64, (1_u64 << 53) as f64);
    part / all
}

/// The wait, made longer at random by up to `share` of it, so that waits that began together end apart.
pub fn stretched(wait: Duration, share: f64, random: u64) -> Duration {
    wait.mul_f64(1.0 + share * fraction(random))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::doubling(ms(100), ms(7000));
        let waits = [0, 1, 2, 3, 7, 8, u32::MAX].map(|failures| backoff.after(failures));
        assert_eq!(waits, [100, 100, 200, 400, 6400, 7000, 7000].map(ms));
        assert_eq!(Backoff::doubling(ms(5000), ms(2000)).after(1), ms(2000));
        assert_eq!(Backoff::doubling(ms(0), ms(2000)).after(u32::MAX), ms(0));
    }

    #[test]
    fn waits_may_grow_by_less() {
        let backoff = Backoff::growing(ms(100), ms(3000), 160);
        let waits = [1, 2, 3, 8, 9].map(|failures| backoff.after(failures).as_micros());
        assert_eq!(waits, [100_000, 160_000, 256_000, 2_684_354, 3_000_000]);
    }

    proptest! {
        #[test]
        fn a_count_and_a_wait_lead_to_the_same(failures in 1_u32..100, first in 1_u64..5000, longest in 1_u64..500_000) {
            let backoff = Backoff::doubling(ms(first), ms(longest));
            prop_assert_eq!(backoff.following(backoff.after(failures)), backoff.after(failures + 1));
            prop_assert!(backoff.after(failures) <= ms(longest));
        }

        #[test]
        fn chance_only_adds_and_never_more_than_its_share(wait in 0_u64..1_000_000, share in 0.0_f64..2.0, random: u64) {
            let (wait, most) = (ms(wait), ms(wait).mul_f64(1.0 + share));
            let stretched = stretched(wait, share, random);
            prop_assert!(stretched >= wait && stretched <= most);
            prop_assert_eq!(super::stretched(wait, share, random), stretched);
        }
    }
}
