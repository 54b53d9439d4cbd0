//! A token bucket: so many calls a second on average, so many at once (`kubeAPIQPS`, `kubeAPIBurst`).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How fast calls may begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Calls per second; 0 or less is no limit.
    pub per_second: f64,
    /// Calls that may begin at once after a pause.
    pub burst: u32,
}

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
}

/// Calls wait here for their turn. Cheap to clone; clones share the bucket.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    state: Arc<Mutex<State>>,
}

impl Bucket {
    pub fn new(limit: RateLimit) -> Self {
        let state = State { tokens: f64::from(limit.burst.max(1)), at: Instant::now() };
        Self { limit, state: Arc::new(Mutex::new(state)) }
    }

    /// Waits until a call may begin. Calls begin in the order in which they asked.
    pub async fn turn(&self) {
        if self.limit.per_second <= 0.0 {
            return;
        }
        let wait = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let refill = now.saturating_duration_since(state.at).as_secs_f64() * self.limit.per_second;
            state.tokens = (state.tokens + refill).min(f64::from(self.limit.burst.max(1)));
            state.at = now;
            // A debt is a place in the line.
            state.tokens -= 1.0;
            Duration::from_secs_f64((-state.tokens).max(0.0) / self.limit.per_second)
        };
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 5 });
        let start = Instant::now();
        for _ in 0..5 {
            bucket.turn().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            bucket.turn().await;
        }
        let elapsed = start.elapsed();
        assert!((Duration::from_millis(990)..Duration::from_millis(1050)).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_never_waits() {
        let bucket = Bucket::new(RateLimit { per_second: 0.0, burst: 0 });
        let start = Instant::now();
        for _ in 0..1000 {
            bucket.turn().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
