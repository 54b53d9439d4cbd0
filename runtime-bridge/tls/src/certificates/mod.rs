//! The node's own certificates: keys and requests are made here, the cluster signs them, and the pairs of certificate
//! and key are kept on disk.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod pair;
mod request;
mod store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use bridge_io::NotRun;
#[cfg(any(test, feature = "fake"))]
pub use fake::{FakeAuthority, FakeCertificates};
pub use pair::{CurrentPair, Leaf, Pair};
pub use request::{KeyPem, Names, Purpose, Subject};
pub use store::{CertificateStore, DirCertificates, write_private};

/// Why a certificate cannot be had or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{operation} {}: {reason}", path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// A file does not hold a certificate and its key.
    #[error("could not convert data from {path:?} into cert/key pair: {reason}")]
    Pair {
        /// The file, or the origin of the bytes.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Another kind of file stands where the link to the current pair should be.
    #[error("expected {path:?} to be a symlink but it is a file")]
    NoLink {
        /// The path of the link.
        path: PathBuf,
    },
    /// A key or a request could not be made.
    #[error("unable to generate a certificate signing request: {0}")]
    Made(String),
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

impl CertificateError {
    fn io(operation: &'static str, path: &Path, error: &std::io::Error) -> Self {
        Self::Io { operation, path: path.to_owned(), reason: error.to_string() }
    }

    fn pair(path: &Path, reason: impl Into<String>) -> Self {
        Self::Pair { path: path.to_owned(), reason: reason.into() }
    }
}
