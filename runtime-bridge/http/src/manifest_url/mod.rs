//! The manifest URL (row 1.4): an HTTP GET of the pods that a node shall run. PodSources asks.

mod address;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod sys;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::future::BoxFuture;

pub use address::{BadUrl, ManifestAddress};
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeManifestUrl;
pub use sys::NetManifestUrl;

use bridge_io::NotRun;

/// The largest body, in bytes: upstream's bound of 10 MiB.
pub const BODY_BYTES_MAX: usize = 10 << 20;
/// The longest time of one GET, redirects and body included.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a GET brought no manifest. The URL is shown without a user name and password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestUrlError {
    /// No response came, or none that could be read.
    #[error("Get {url:?}: {reason}")]
    Failed {
        /// The URL that was requested.
        url: String,
        /// What went wrong, as Go's net package words it.
        reason: String,
    },
    /// The response's status is not 200.
    #[error("{url}: {status}")]
    Status {
        /// The URL.
        url: String,
        /// The status code and its text.
        status: String,
    },
    /// The body is longer than [`BODY_BYTES_MAX`].
    #[error("{url}: the body has more than {BODY_BYTES_MAX} bytes")]
    TooLarge {
        /// The URL.
        url: String,
    },
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// Gets the manifest. Dropping a future ends its GET.
pub trait ManifestUrl: Send + Sync + std::fmt::Debug {
    /// The URL for people: without a user name and password.
    fn shown(&self) -> String;

    /// The body of a response with status 200, which may be empty. Takes at most [`TIMEOUT`].
    fn get(&self) -> BoxFuture<'static, Result<Vec<u8>, ManifestUrlError>>;
}
