//! The wall clock may be set by anybody at any time: what is remembered as a moment moves with it, so that nothing
//! waits for an hour that never was.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::PodWorker;

/// A difference below this is not worth heeding: a clock is corrected by a little all the time.
const JUMP_MIN: SignedDuration = SignedDuration::from_secs(2);

/// The same moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    wall: Timestamp,
    at: Instant,
}

impl Anchor {
    pub fn new(wall: Timestamp) -> Self {
        Self { wall, at: Instant::now() }
    }

    /// By how much the wall clock has been set since.
    fn jump(self, now: Timestamp) -> Option<SignedDuration> {
        let passed = SignedDuration::try_from(self.at.elapsed()).ok()?;
        let jump = now.duration_since(self.wall).checked_sub(passed)?;
        (jump.abs() >= JUMP_MIN).then_some(jump)
    }
}

impl PodWorker {
    /// Moves what is remembered when the clock has been set.
    pub(super) fn follow_clock(&mut self) {
        let now = self.now();
        let jump = self.anchor.jump(now);
        self.anchor = Anchor::new(now);
        let Some(by) = jump else { return };
        tracing::info!(pod = %self.uid, ?by, "The clock was set");
        let failures = self.known.failures.values_mut().map(|failure| &mut failure.retry_at);
        let known = [&mut self.known.pod_retry_at, &mut self.known.prune_retry_at];
        let own = [&mut self.retry_at, &mut self.resync_at];
        for moment in failures.chain(known.into_iter().chain(own).flatten()) {
            // Beyond the end of time nothing is waited for.
            *moment = moment.checked_add(by).unwrap_or(now);
        }
    }
}
