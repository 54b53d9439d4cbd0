//! The queue in front of a token bucket: an average number of calls per second, and a burst (`kubeAPIQPS`,
//! `kubeAPIBurst`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_pace::TokenBucket;
use tokio::time::Instant;

/// The rate at which calls may begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Calls per second; 0 or less is no limit.
    pub per_second: f64,
    /// Calls that may begin at once after a pause.
    pub burst: u32,
}

/// The turn of a call would come after its deadline, so waiting is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")]
pub(super) struct TooLate;

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    /// The number of calls in the queue.
    waiting: u32,
}

/// The queue in which calls wait for their turn. Cheap to clone; clones share the bucket.
///
/// A call takes its token when its turn has come, not before: a cancelled call leaves the queue, and all later calls
/// move up.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    limit: RateLimit,
    /// The zero of the bucket's time.
    start: Instant,
    state: Arc<Mutex<State>>,
    line: Arc<tokio::sync::Mutex<()>>,
}

/// A call's place in the queue, given up on drop.
struct Place<'a>(&'a Bucket);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Bucket {
    pub fn new(limit: RateLimit) -> Self {
        let bucket = TokenBucket::new(limit.per_second, limit.burst.max(1), Duration::ZERO);
        let state = State { bucket, waiting: 0 };
        Self { limit, start: Instant::now(), state: Arc::new(Mutex::new(state)), line: Arc::default() }
    }

    /// Another empty queue of the same rate.
    pub fn anew(&self) -> Self {
        Self::new(self.limit)
    }

    /// Waits until a call may begin. Calls begin in the order of asking.
    ///
    /// # Errors
    /// [`TooLate`] at once, when the turn would come after `until`.
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

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Joins the end of the queue; returns the place, and the time until its turn if no earlier call leaves.
    fn queue(&self) -> (Place<'_>, Duration) {
        let mut state = self.state();
        state.waiting += 1;
        let waiting = state.waiting;
        let wait = state.bucket.until(waiting, self.now());
        (Place(self), wait)
    }

    /// Takes a token, or returns the time until the next one.
    fn take(&self) -> Result<(), Duration> {
        let mut state = self.state();
        let now = self.now();
        if state.bucket.take(now) {
            return Ok(());
        }
        // At least a timer's resolution: a shorter wait might end before the token exists, again and again.
        Err(state.bucket.until(1, now).max(Duration::from_millis(1)))
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
