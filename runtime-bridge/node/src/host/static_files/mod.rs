//! The manifests of static pods (FEATURES 1.1): read whole, and watched for a reason to read again.

#[cfg(any(test, feature = "fake"))]
mod fake;
mod read;
#[cfg(test)]
mod tests;
mod watch;

use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeStaticFiles;

use bridge_io::{Lane, NotRun};

/// A manifest must be smaller than this, as with Kubernetes' own kubelet.
pub const MANIFEST_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Manifests read from one directory; the API allows a node far fewer pods.
pub const MANIFESTS_MAX: usize = 1024;
/// Bytes of all manifests together that one read holds in memory.
pub const MANIFESTS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One file of the static pod path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// The file, as a path below the one that was asked for.
    pub path: PathBuf,
    /// Its bytes, or why there are none. An error does not mean that the pod is gone.
    pub content: Result<Vec<u8>, ReadError>,
}

/// Why one file gave no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A FIFO, socket or device: it is not opened.
    #[error("it is not a regular file")]
    NotRegular,
    /// It has [`MANIFEST_BYTES_MAX`] bytes or more.
    #[error("it is not smaller than {MANIFEST_BYTES_MAX} bytes")]
    TooLarge,
    /// The files before it already fill [`MANIFESTS_BYTES_MAX`].
    #[error("all manifests together are larger than {MANIFESTS_BYTES_MAX} bytes")]
    TotalTooLarge,
    /// The system did not let it be read.
    #[error("it cannot be read: {0}")]
    Io(String),
}

/// Why the static pod path as a whole could not be read. What was known of its pods still holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaticFilesError {
    /// It is neither a directory nor a regular file.
    #[error("static pod path {path}: it is neither a directory nor a regular file", path = path.display())]
    NotFileOrDirectory {
        /// The static pod path.
        path: PathBuf,
    },
    /// It holds more than [`MANIFESTS_MAX`] files.
    #[error("static pod path {path}: it holds more than {MANIFESTS_MAX} files", path = path.display())]
    TooMany {
        /// The static pod path.
        path: PathBuf,
    },
    /// The system did not let it be looked at or listed.
    #[error("static pod path {path}: cannot {operation}: {reason}", path = path.display())]
    Io {
        /// The static pod path.
        path: PathBuf,
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        reason: String,
    },
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// The files of the static pod path.
pub trait StaticFiles: Send + Sync + std::fmt::Debug {
    /// Reads `path`: every file of a directory but those whose name begins with a dot and not its sub-directories,
    /// or a single file. Sorted by path. A path that does not exist gives no files and no error.
    fn read(&self, path: &Path) -> BoxFuture<'static, Result<Vec<ManifestFile>, StaticFilesError>>;

    /// Yields an item whenever `path` may read differently: at first, and after changes, several within 100 ms as
    /// one. It never ends, also when the path is missing, replaced or removed; what it may then miss for up to 20 s
    /// the caller's own regular reading finds. Items that nobody takes are kept as one. Dropping it ends the watch.
    fn watch(&self, path: &Path) -> BoxStream<'static, ()>;
}

/// The static pod path on this machine's disk.
#[derive(Debug, Clone)]
pub struct DiskStaticFiles {
    lane: Lane,
}

impl DiskStaticFiles {
    /// Files are read on the blocking threads of `io`; a watch is a task there, and the runtime has I/O and time
    /// enabled.
    pub fn new(io: Handle) -> Self {
        Self { lane: Lane::new("PodSources", io) }
    }
}

impl StaticFiles for DiskStaticFiles {
    fn read(&self, path: &Path) -> BoxFuture<'static, Result<Vec<ManifestFile>, StaticFilesError>> {
        let path = path.to_path_buf();
        self.lane.run(move || read::read(&path))
    }

    fn watch(&self, path: &Path) -> BoxStream<'static, ()> {
        watch::watch(&self.lane, path.to_path_buf())
    }
}
