//! The wall clock may be set by other programs at any time. The moments that a worker has stored are then
//! moved by the same amount, so that no wait becomes longer or shorter.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::PodWorker;

/// A smaller difference is ignored: clocks are corrected by small amounts all the time.
const JUMP_MIN: SignedDuration = SignedDuration::from_secs(2);

/// One moment by the wall clock and by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    wall: Timestamp,
    at: Instant,
}

impl Anchor {
    pub fn new(wall: Timestamp) -> Self {
        Self { wall, at: Instant::now() }
    }

    /// By how much the wall clock has been set since; `None` below [`JUMP_MIN`].
    fn jump(self, now: Timestamp) -> Option<SignedDuration> {
        let passed = SignedDuration::try_from(self.at.elapsed()).ok()?;
        let jump = now.duration_since(self.wall).checked_sub(passed)?;
        (jump.abs() >= JUMP_MIN).then_some(jump)
    }
}

impl PodWorker {
    /// Moves the stored moments if the clock has been set.
    pub(super) fn follow_clock(&mut self) {
        let now = self.now();
        let jump = self.anchor.jump(now);
        self.anchor = Anchor::new(now);
        let Some(by) = jump else { return };
        tracing::info!(pod = %self.uid, ?by, "The clock was set");
        let failures = self.known.failures.values_mut().map(|failure| &mut failure.retry_at);
        let known = [&mut self.known.pod_retry_at, &mut self.known.prune_retry_at];
        let own = [&mut self.retry_at, &mut self.resync_at];
        let hooks = self.hook_wait.iter_mut().map(|wait| &mut wait.until);
        for moment in failures.chain(known.into_iter().chain(own).flatten()).chain(hooks) {
            // A moment out of range is replaced by now, so that the wait ends.
            *moment = moment.checked_add(by).unwrap_or(now);
        }
    }
}
