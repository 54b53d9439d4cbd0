//! How long a pod has waited for images: asks that overlap count once.

use std::sync::Arc;
use std::time::Duration;

use bridge_io::watch;
use tokio::time::Instant;

/// The time so far. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct PullTime(Arc<watch::Sender<Waits>>);

impl Default for PullTime {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Waits::default())))
    }
}

#[derive(Debug, Default)]
struct Waits {
    under_way: usize,
    since: Option<Instant>,
    total: Duration,
}

/// One ask, until this is dropped.
#[must_use = "the wait lasts for as long as this is kept"]
pub(crate) struct Wait(PullTime);

impl PullTime {
    /// A wait begins.
    pub fn begin(&self) -> Wait {
        self.0.send_modify(|waits| {
            if waits.under_way == 0 {
                waits.since = Some(Instant::now());
            }
            waits.under_way += 1;
        });
        Wait(self.clone())
    }

    /// The waits that have ended, in milliseconds, rounded to tenths of a second: an image that is there is no wait.
    pub fn tenths_ms(&self) -> u64 {
        let tenths = (self.0.borrow().total.as_millis() + 50) / 100;
        u64::try_from(tenths).unwrap_or(u64::MAX).saturating_mul(100)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.0.send_modify(|waits| {
            waits.under_way -= 1;
            if waits.under_way == 0
                && let Some(since) = waits.since.take()
            {
                waits.total += since.elapsed();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waits_that_overlap_count_once_and_short_ones_not_at_all() {
        let (time, second) = (PullTime::default(), Duration::from_secs(1));
        let one = time.begin();
        tokio::time::advance(second).await;
        let other = time.begin();
        tokio::time::advance(second).await;
        drop(one);
        assert_eq!(time.tenths_ms(), 0, "the other one goes on");
        tokio::time::advance(second).await;
        drop(other);
        tokio::time::advance(60 * second).await;
        assert_eq!(time.tenths_ms(), 3000);
        let short = time.begin();
        tokio::time::advance(Duration::from_millis(3)).await;
        drop(short);
        assert_eq!(time.tenths_ms(), 3000);
    }
}
