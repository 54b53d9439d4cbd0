//! How often pulls may begin: a token bucket (row 6.4).

use std::time::Duration;

use bridge_pace::TokenBucket;

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

impl ThrottlePolicy {
    /// A full bucket. `now` and later moments are durations since one fixed moment.
    pub fn bucket(&self, now: Duration) -> TokenBucket {
        TokenBucket::new(self.pulls_per_second, self.burst, now)
    }
}

/// The error text of a pull that the bucket refuses.
pub const REFUSED: &str = "pull QPS exceeded";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_ten_then_five_a_second() {
        let mut bucket = ThrottlePolicy::default().bucket(Duration::ZERO);
        assert_eq!((0..20).filter(|_| bucket.take(Duration::ZERO)).count(), 10);
        let later = Duration::from_secs(1);
        assert_eq!((0..20).filter(|_| bucket.take(later)).count(), 5);
    }
}
