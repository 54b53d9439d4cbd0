//! How often pulls may begin: a bucket of tokens (row 6.4).

use std::time::Duration;

/// `registryPullQPS` and `registryBurst`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottlePolicy {
    /// Pulls per second in the long run; 0 is no limit.
    pub pulls_per_second: f64,
    /// Pulls that may begin at once after a quiet time.
    pub burst: u32,
}

impl Default for ThrottlePolicy {
    fn default() -> Self {
        Self { pulls_per_second: 5.0, burst: 10 }
    }
}

/// What a pull that the bucket refuses fails with.
pub const REFUSED: &str = "pull QPS exceeded";

/// The bucket. Times are durations since one fixed moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Throttle {
    policy: ThrottlePolicy,
    tokens: f64,
    filled_at: Duration,
}

impl Throttle {
    /// A full bucket.
    pub fn new(policy: ThrottlePolicy, now: Duration) -> Self {
        Self { policy, tokens: f64::from(policy.burst), filled_at: now }
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self, now: Duration) -> bool {
        if self.policy.pulls_per_second <= 0.0 {
            return true;
        }
        let gained = now.saturating_sub(self.filled_at).as_secs_f64() * self.policy.pulls_per_second;
        self.tokens = (self.tokens + gained).min(f64::from(self.policy.burst));
        self.filled_at = self.filled_at.max(now);
        if self.tokens < 1.0 {
            return false;
        }
        self.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_of_ten_then_five_a_second() {
        let mut throttle = Throttle::new(ThrottlePolicy::default(), Duration::ZERO);
        assert_eq!((0..20).filter(|_| throttle.try_take(Duration::ZERO)).count(), 10);
        let later = Duration::from_secs(1);
        assert_eq!((0..20).filter(|_| throttle.try_take(later)).count(), 5);
    }

    #[test]
    fn zero_is_no_limit() {
        let policy = ThrottlePolicy { pulls_per_second: 0.0, burst: 0 };
        let mut throttle = Throttle::new(policy, Duration::ZERO);
        assert!((0..1000).all(|_| throttle.try_take(Duration::ZERO)));
    }

    proptest! {
        #[test]
        fn never_more_than_burst_plus_rate(gaps_ms in proptest::collection::vec(0u64..2000, 1..200)) {
            let mut throttle = Throttle::new(ThrottlePolicy::default(), Duration::ZERO);
            let (mut now, mut taken) = (Duration::ZERO, 0u32);
            for gap in gaps_ms {
                now += Duration::from_millis(gap);
                taken += u32::from(throttle.try_take(now));
                prop_assert!(f64::from(taken) <= 10.0 + now.as_secs_f64() * 5.0 + 1e-6);
            }
        }
    }
}
