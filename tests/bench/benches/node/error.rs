//! What ends a measurement.

use std::path::PathBuf;
use std::time::Duration;

use bridge_cri::{CriClientError, CriError};

/// A measurement that came to no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A call to the runtime failed.
    #[error("runtime: {0}")]
    Cri(#[from] CriError),
    /// The runtime's endpoint is none.
    #[error("runtime: {0}")]
    Endpoint(#[from] CriClientError),
    /// Something of the operating system failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// It did not happen in time.
    #[error("{what}: not within {:.0} s ({seen})", within.as_secs_f64())]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// What was to be seen instead.
        seen: String,
    },
    /// The kubelet ended by itself.
    #[error("the kubelet ended ({status}); its log is {}", log.display())]
    Ended {
        /// How.
        status: std::process::ExitStatus,
        /// Where to read why.
        log: PathBuf,
    },
    /// Something that must hold does not.
    #[error("{0}")]
    Wrong(String),
}

impl BenchError {
    /// For `map_err`: what was tried on which file.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
