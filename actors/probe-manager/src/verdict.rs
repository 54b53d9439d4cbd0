//! From single answers to verdicts: thresholds, and which results count as answers (row 7.2).

/// The result of one run of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// The container passed.
    Success,
    /// The container passed, with something odd about the answer.
    Warning {
        /// What is odd.
        output: String,
    },
    /// The container failed, or did not answer in time.
    Failure {
        /// Its answer.
        output: String,
    },
    /// The container could not be asked, or not to the end. That says nothing about the container.
    Errored {
        /// The kind of error.
        why: NoAnswer,
        /// The error's text.
        message: String,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The probe could not be sent.
    Unknown,
    /// An answer had begun and could not be read to its end.
    BrokenOff,
    /// The container runtime did not answer in time.
    NoRuntime,
}

impl ProbeAnswer {
    /// Whether the container passed; `None` if there is no answer.
    pub fn passed(&self) -> Option<bool> {
        match self {
            Self::Success | Self::Warning { .. } => Some(true),
            Self::Failure { .. } => Some(false),
            Self::Errored { .. } => None,
        }
    }
}

/// How many times a probe is tried when the container cannot be asked, before it waits for its next turn.
pub const TRIES_ON_ERROR: u32 = 3;

/// `successThreshold` and `failureThreshold`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Successes in a row that settle success; at least 1.
    pub success: u32,
    /// Failures in a row that settle failure; at least 1.
    pub failure: u32,
}

/// Equal answers in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak {
    passed: bool,
    length: u32,
}

impl Streak {
    /// Counts an answer. Returns the verdict, if a threshold is reached.
    pub fn count(&mut self, passed: bool, thresholds: Thresholds) -> Option<bool> {
        if self.length > 0 && self.passed == passed {
            self.length = self.length.saturating_add(1);
        } else {
            *self = Self { passed, length: 1 };
        }
        let needed = if passed { thresholds.success } else { thresholds.failure };
        (self.length >= needed.max(1)).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const THREE: Thresholds = Thresholds { success: 1, failure: 3 };

    #[test]
    fn failures_settle_at_their_threshold_and_a_success_begins_anew() {
        let mut streak = Streak::default();
        let settled: Vec<_> = [false, false, true, false, false, false, false]
            .into_iter()
            .map(|passed| streak.count(passed, THREE))
            .collect();
        assert_eq!(settled, [None, None, Some(true), None, None, Some(false), Some(false)]);
    }

    #[test]
    fn warnings_pass_and_errors_say_nothing() {
        assert_eq!(ProbeAnswer::Warning { output: String::new() }.passed(), Some(true));
        assert_eq!(ProbeAnswer::Errored { why: NoAnswer::Unknown, message: String::new() }.passed(), None);
    }

    proptest! {
        #[test]
        fn settled_means_that_many_in_a_row(
            answers in proptest::collection::vec(any::<bool>(), 0..60), success in 0u32..4, failure in 0u32..5,
        ) {
            let thresholds = Thresholds { success, failure };
            let mut streak = Streak::default();
            for at in 0..answers.len() {
                let passed = answers[at];
                let needed = usize::try_from(if passed { success } else { failure }.max(1)).expect("small");
                let in_a_row = answers[..=at].iter().rev().take_while(|answer| **answer == passed).count();
                let settled = streak.count(passed, thresholds);
                prop_assert_eq!(settled, (in_a_row >= needed).then_some(passed));
            }
        }
    }
}
