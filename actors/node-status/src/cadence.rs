//! PURE: when the status is computed and posted (row 13.8).

use std::time::Duration;

use bridge_pace::{Backoff, fraction, stretched};

/// How many times one posting or renewal is tried. After a transient error the second try may get another connection; a
/// server that is away or in trouble is then left alone until the next round.
pub fn tries_max(transient: bool) -> u32 {
    if transient { 2 } else { 5 }
}

const JITTER: f64 = 0.04;
const REGISTRATION: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(7));
const LEASE: Backoff = Backoff::doubling(Duration::from_millis(200), Duration::from_secs(7));

/// A period with a random addition, so that nodes that started together drift apart.
pub fn jittered(period: Duration, random: u64) -> Duration {
    stretched(period, JITTER, random)
}

/// Pause before the next try to register, after so many failures: 100 ms doubling to 7 s.
pub fn registration_wait(failed: u32) -> Duration {
    REGISTRATION.after(failed.saturating_add(1))
}

/// Pause before the next try to get the lease, after so many failures: 200 ms doubling to 7 s.
pub fn lease_wait(failed: u32) -> Duration {
    LEASE.after(failed)
}

/// The postings so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reports {
    /// `nodeStatusReportFrequency`.
    every: Duration,
    /// The time from the last posting of this incarnation until the next one is due at the latest.
    due_after: Option<Duration>,
}

impl Reports {
    /// No postings so far.
    pub fn new(every: Duration) -> Self {
        Self { every, due_after: None }
    }

    /// Postings are due in this period from the next one on.
    pub fn set_every(&mut self, every: Duration) {
        self.every = every;
    }

    /// Whether a status is posted, this long after the last posting.
    pub fn due(&self, changed: bool, since_last: Option<Duration>) -> bool {
        let expired = match (since_last, self.due_after) {
            (Some(since), Some(due)) => since >= due,
            _ => true,
        };
        changed || expired
    }

    /// Notes a posting. After a change, and after the first posting, the next one is due at a random time, so that not
    /// all nodes report together; later ones are due at the fixed period.
    pub fn posted(&mut self, changed: bool, random: u64) {
        let at_random = changed || self.due_after.is_none();
        let share = if at_random { 0.5 + fraction(random) } else { 1.0 };
        self.due_after = Some(self.every.mul_f64(share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_seven_seconds() {
        let waits = |wait: fn(u32) -> Duration| [0, 1, 2, 6, 7, 50].map(|n| wait(n).as_millis());
        assert_eq!(waits(registration_wait), [100, 200, 400, 6400, 7000, 7000]);
        assert_eq!(waits(lease_wait), [200, 200, 400, 6400, 7000, 7000]);
    }

    #[test]
    fn jitter_only_adds_and_never_more_than_four_in_a_hundred() {
        assert_eq!(jittered(10 * SECOND, 0), 10 * SECOND);
        let most = jittered(10 * SECOND, u64::MAX);
        assert!(most > 10 * SECOND && most <= Duration::from_millis(10_400), "{most:?}");
    }

    #[test]
    fn the_first_is_posted_then_changes_and_at_a_random_time_then_every_five_minutes() {
        let mut reports = Reports::new(300 * SECOND);
        assert!(reports.due(false, None));
        reports.posted(false, 0);
        assert!(!reports.due(false, Some(149 * SECOND)) && reports.due(true, Some(SECOND)));
        assert!(reports.due(false, Some(150 * SECOND)));
        reports.posted(false, 0);
        assert!(!reports.due(false, Some(299 * SECOND)) && reports.due(false, Some(300 * SECOND)));
        reports.posted(true, u64::MAX);
        assert!(!reports.due(false, Some(449 * SECOND)) && reports.due(false, Some(450 * SECOND)));
    }
}
