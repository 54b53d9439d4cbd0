//! The errors of a measurement.

use std::path::PathBuf;
use std::time::Duration;

use bridge_cri::{CriClientError, CriError};

/// Why a measurement gives no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A call to the runtime failed.
    #[error("runtime: {0}")]
    Cri(#[from] CriError),
    /// The runtime's endpoint is invalid.
    #[error("runtime: {0}")]
    Endpoint(#[from] CriClientError),
    /// A call to the operating system failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The file that it was about.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// Something did not happen in time.
    #[error("{what}: not within {:.0} s ({seen})", within.as_secs_f64())]
    Late {
        /// What was waited for.
        what: String,
        /// How long the wait was.
        within: Duration,
        /// The last state seen.
        seen: String,
    },
    /// The kubelet ended by itself.
    #[error("the kubelet ended ({status}); its log is {}", log.display())]
    Ended {
        /// Its exit status.
        status: std::process::ExitStatus,
        /// Its log file.
        log: PathBuf,
    },
    /// Something that must hold does not.
    #[error("{0}")]
    Wrong(String),
}

impl BenchError {
    /// For `map_err`: `what` is the action that failed, on the file `path`.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
