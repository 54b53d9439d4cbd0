use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use super::Clock;

/// A clock whose wall time follows `tokio::time` from a chosen start, so that a paused runtime pauses it too, and
/// whose random numbers follow from a seed.
#[derive(Debug)]
pub struct FakeClock {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    wall: Timestamp,
    at: tokio::time::Instant,
    random: u64,
}

impl FakeClock {
    /// A clock that shows `start` now and draws its random numbers from `seed`.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        let state = State { wall: start, at: tokio::time::Instant::now(), random: seed };
        Self { state: Mutex::new(state) }
    }

    /// Sets the wall time; the random numbers go on where they were.
    pub fn set(&self, now: Timestamp) {
        let mut state = self.locked();
        state.wall = now;
        state.at = tokio::time::Instant::now();
    }

    /// Moves the wall time by `by`, which may be negative. Timers of `tokio::time` do not notice, as with a real
    /// machine whose clock is set. Beyond what a timestamp can hold it stops at the end.
    pub fn skew(&self, by: SignedDuration) {
        let mut state = self.locked();
        state.wall = state.wall.saturating_add(by).unwrap_or(state.wall);
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let state = self.locked();
        let elapsed = SignedDuration::try_from(state.at.elapsed()).unwrap_or(SignedDuration::MAX);
        state.wall.saturating_add(elapsed).unwrap_or(state.wall)
    }

    fn random_u64(&self) -> u64 {
        // SplitMix64: every seed, even 0, gives a full period.
        let mut state = self.locked();
        state.random = state.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
