//! A token bucket: a bounded burst at once, and a bounded rate in the long run.

use std::time::Duration;

/// A bucket that refills at a constant rate up to a bound. Moments are durations since one fixed moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    per_second: f64,
    most: f64,
    tokens: f64,
    filled: Duration,
}

/// No timer measures less: a shorter wait might end before the token exists, again and again.
const TIMER: Duration = Duration::from_millis(1);

/// A tolerance: parts of a token add up to a whole one only approximately.
const HAIR: f64 = 1e-9;

impl TokenBucket {
    /// A full bucket of `burst` tokens. A rate of 0 or less means no limit.
    pub fn new(per_second: f64, burst: u32, now: Duration) -> Self {
        let most = f64::from(burst);
        Self { per_second, most, tokens: most, filled: now }
    }

    /// Takes a token if there is one; returns whether it did.
    pub fn take(&mut self, now: Duration) -> bool {
        if self.per_second <= 0.0 {
            return true;
        }
        self.refill(now);
        if self.tokens < 1.0 - HAIR {
            return false;
        }
        self.tokens = (self.tokens - 1.0).max(0.0);
        true
    }

    /// The time until there are `tokens` tokens, for a timer: at least a millisecond; zero if they are there.
    pub fn until(&mut self, tokens: u32, now: Duration) -> Duration {
        if self.per_second <= 0.0 {
            return Duration::ZERO;
        }
        self.refill(now);
        let missing = f64::from(tokens) - self.tokens;
        if missing <= HAIR {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX).max(TIMER)
    }

    fn refill(&mut self, now: Duration) {
        let gained = now.saturating_sub(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.most);
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut bucket = TokenBucket::new(5.0, 10, secs(0));
        assert_eq!((0..20).filter(|_| bucket.take(secs(0))).count(), 10);
        assert_eq!(bucket.until(1, secs(0)), Duration::from_millis(200));
        assert_eq!(bucket.until(5, secs(0)), secs(1));
        assert_eq!((0..20).filter(|_| bucket.take(secs(1))).count(), 5);
        assert_eq!((0..20).filter(|_| bucket.take(secs(0))).count(), 0, "time does not go back");
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut bucket = TokenBucket::new(0.0, 0, secs(0));
        assert!((0..1000).all(|_| bucket.take(secs(0))));
        assert_eq!(bucket.until(7, secs(0)), secs(0));
    }

    #[test]
    fn parts_of_a_token_add_up() {
        let mut bucket = TokenBucket::new(1.0 / 300.0, 1, secs(0));
        assert!(bucket.take(secs(0)));
        assert_eq!([100, 200, 299, 300].map(|now| bucket.take(secs(now))), [false, false, false, true]);
    }

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(gaps_ms in prop::collection::vec(0_u64..2000, 1..200)) {
            let mut bucket = TokenBucket::new(5.0, 10, secs(0));
            let (mut now, mut taken) = (secs(0), 0_u32);
            for gap in gaps_ms {
                now += Duration::from_millis(gap);
                taken += u32::from(bucket.take(now));
                prop_assert!(f64::from(taken) <= 10.0 + now.as_secs_f64() * 5.0 + 1e-6);
            }
        }
    }
}
