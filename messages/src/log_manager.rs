//! The messages that LogManager receives.

use std::time::Duration;

use crate::config_manager::Configured;
use crate::facts::PodObserved;
use crate::{delivery, receives};

/// How logs are rotated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRotation {
    /// `containerLogMaxSize` in bytes; `None` if logs are not rotated.
    pub bytes_max: Option<u64>,
    /// `containerLogMaxFiles`: the most files of one log, the current one included.
    pub files_max: usize,
    /// `containerLogMaxWorkers`: how many logs are rotated at the same time, and how many files compressed.
    pub workers: usize,
    /// `containerLogMonitorInterval`: period of looks at the sizes.
    pub interval: Duration,
}

impl Default for LogRotation {
    fn default() -> Self {
        Self { bytes_max: Some(10 << 20), files_max: 5, workers: 1, interval: Duration::from_secs(10) }
    }
}

/// How logs are rotated from now on. Writer: ConfigManager.
pub type LogRotationConfigured = Configured<LogRotation>;
delivery!(LogRotationConfigured => (): Command, LatestPerKey);

receives!("LogManager": PodObserved, LogRotationConfigured);
