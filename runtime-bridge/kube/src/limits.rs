//! A token bucket: so many calls a second on average, so many at once (`kubeAPIQPS`, `kubeAPIBurst`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

impl RateLimit {
    fn most(&self) -> f64 {
        f64::from(self.burst.max(1))
    }
}

/// The turn of a call would come after its deadline, so that it is of no use to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")]
pub(super) struct TooLate;

#[derive(Debug)]
struct State {
    tokens: f64,
    at: Instant,
    /// Calls in the line.
    waiting: u32,
}

/// Calls wait here for their turn. Cheap to clone; clones share the bucket.
///
/// A token is taken when a call's turn has come and not before: one that is given up leaves the line, and all behind it
/// move up.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    state: Arc<Mutex<State>>,
    line: Arc<tokio::sync::Mutex<()>>,
}

/// A call's place in the line, which it leaves when this is dropped.
struct Place<'a>(&'a Bucket);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Bucket {
    pub fn new(limit: RateLimit) -> Self {
        let state = State { tokens: limit.most(), at: Instant::now(), waiting: 0 };
        Self { limit, state: Arc::new(Mutex::new(state)), line: Arc::default() }
    }

    /// Another one of the same rate.
    pub fn anew(&self) -> Self {
        Self::new(self.limit)
    }

    /// Waits until a call may begin. Calls begin in the order in which they asked.
    ///
    /// # Errors
    /// At once, when that would be later than `until`.
    pub async fn turn(&self, until: Instant) -> Result<(), TooLate> {
        if self.limit.per_second <= 0.0 {
            return Ok(());
        }
        let (_place, wait) = self.queue();
        if wait > until.saturating_duration_since(Instant::now()) {
            return Err(TooLate);
        }
        let _first = self.line.lock().await;
        while let Err(wait) = self.take() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the tokens of this moment.
    fn refilled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state();
        let now = Instant::now();
        let refill = now.saturating_duration_since(state.at).as_secs_f64() * self.limit.per_second;
        state.tokens = (state.tokens + refill).min(self.limit.most());
        state.at = now;
        state
    }

    /// The time in which as many tokens come.
    fn time_for(&self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens.max(0.0) / self.limit.per_second).unwrap_or(Duration::MAX)
    }

    /// The last place in the line, and how long it takes to come to its front if nobody leaves it.
    fn queue(&self) -> (Place<'_>, Duration) {
        let mut state = self.refilled();
        state.waiting += 1;
        let wait = self.time_for(f64::from(state.waiting) - state.tokens);
        (Place(self), wait)
    }

    /// Takes a token, or says how long it is to the next one.
    fn take(&self) -> Result<(), Duration> {
        let mut state = self.refilled();
        if state.tokens < 1.0 {
            // No shorter than a timer can be: of a fraction of that, nothing would ever be the rest.
            return Err(self.time_for(1.0 - state.tokens).max(Duration::from_millis(1)));
        }
        state.tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 5 });
        let start = Instant::now();
        for _ in 0..5 {
            bucket.turn(far()).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            bucket.turn(far()).await.unwrap();
        }
        let elapsed = start.elapsed();
        assert!((Duration::from_millis(990)..Duration::from_millis(1050)).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_limit_never_waits() {
        let bucket = Bucket::new(RateLimit { per_second: 0.0, burst: 0 });
        let start = Instant::now();
        for _ in 0..1000 {
            bucket.turn(start).await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_owes_nothing() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 });
        bucket.turn(far()).await.unwrap();
        let mut line: Vec<_> = (0..2000).map(|_| Box::pin(bucket.turn(far()))).collect();
        for call in &mut line {
            assert_eq!(call.as_mut().now_or_never(), None, "it waits");
        }
        let last = bucket.turn(far());
        tokio::pin!(last);
        assert_eq!(last.as_mut().now_or_never(), None);
        drop(line);
        let start = Instant::now();
        last.await.unwrap();
        bucket.turn(far()).await.unwrap();
        let elapsed = start.elapsed();
        assert!((Duration::from_millis(190)..Duration::from_millis(210)).contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_comes_too_late_fails_at_once_and_delays_nobody() {
        let bucket = Bucket::new(RateLimit { per_second: 10.0, burst: 1 });
        bucket.turn(far()).await.unwrap();
        let start = Instant::now();
        let soon = start + Duration::from_millis(50);
        for _ in 0..1000 {
            assert_eq!(bucket.turn(soon).await, Err(TooLate));
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        bucket.turn(start + Duration::from_millis(100)).await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(110), "{:?}", start.elapsed());
    }
}
