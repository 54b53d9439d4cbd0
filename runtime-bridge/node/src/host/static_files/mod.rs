//! The manifest files of static pods (row 1.1): read completely, and watched for changes. PodSources uses them; ConfigManager
//! watches the kubelet's configuration (row 30.8).

#[cfg(any(test, feature = "fake"))]
mod fake;
mod read;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::runtime::Handle;

#[cfg(any(test, feature = "fake"))]
pub use fake::FakeStaticFiles;

use bridge_io::{Lane, NotRun};

/// A manifest must be smaller than this, bytes, as in the Go kubelet.
pub const MANIFEST_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// The most manifests read from one directory; the API allows a node far fewer pods.
pub const MANIFESTS_MAX: usize = 1024;
/// The most bytes of all manifests together in one read.
pub const MANIFESTS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One file at the static pod path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// The file's path.
    pub path: PathBuf,
    /// The file's bytes, or why they cannot be read. An error does not mean that the pod is gone.
    pub content: Result<Vec<u8>, ReadError>,
}

/// Why one file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The file is a FIFO, socket or device, and is not opened.
    #[error("it is not a regular file")]
    NotRegular,
    /// The file has [`MANIFEST_BYTES_MAX`] bytes or more.
    #[error("it is not smaller than {MANIFEST_BYTES_MAX} bytes")]
    TooLarge,
    /// The files before this one already fill [`MANIFESTS_BYTES_MAX`].
    #[error("all manifests together are larger than {MANIFESTS_BYTES_MAX} bytes")]
    TotalTooLarge,
    /// The operating system's error.
    #[error("it cannot be read: {0}")]
    Io(String),
}

/// Why the static pod path as a whole could not be read. The pods that were read last stay desired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StaticFilesError {
    /// The path is neither a directory nor a regular file.
    #[error("static pod path {path}: it is neither a directory nor a regular file", path = path.display())]
    NotFileOrDirectory {
        /// The static pod path.
        path: PathBuf,
    },
    /// The directory holds more than [`MANIFESTS_MAX`] files.
    #[error("static pod path {path}: it holds more than {MANIFESTS_MAX} files", path = path.display())]
    TooMany {
        /// The static pod path.
        path: PathBuf,
    },
    /// The path could not be opened or listed.
    #[error("static pod path {path}: cannot {operation}: {reason}", path = path.display())]
    Io {
        /// The static pod path.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The operating system's error.
        reason: String,
    },
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// What a watch has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesChanged {
    /// The files that were removed or moved away, also those that are there again. At most [`MANIFESTS_MAX`]: of more
    /// only the reading tells that they are gone.
    pub removed: BTreeSet<PathBuf>,
}

/// The files at the static pod path.
pub trait StaticFiles: Send + Sync + std::fmt::Debug {
    /// Reads `path`: every file of a directory, without dot-files and sub-directories, or a single file. Sorted by
    /// path. A path that does not exist yields no files and no error.
    fn read(&self, path: &Path) -> BoxFuture<'static, Result<Vec<ManifestFile>, StaticFilesError>>;

    /// A stream with an item whenever `path` may have changed: one at first, and one for all changes within 100 ms. It
    /// never ends, also when the path is missing, replaced or removed; a change that it then misses for up to 20 s is
    /// found by the caller's own regular reading. Items that are not taken are merged into one. Dropping the stream
    /// ends the watch.
    fn watch(&self, path: &Path) -> BoxStream<'static, FilesChanged>;
}

/// The static pod path on this machine's disk.
#[derive(Debug, Clone)]
pub struct DiskStaticFiles {
    lane: Lane,
}

impl DiskStaticFiles {
    /// Files are read on the blocking threads of `io`; a watch is a task there, and the runtime must have I/O and time
    /// enabled.
    pub fn new(io: Handle) -> Self {
        Self::for_owner("PodSources", io)
    }

    /// The same for files of another subsystem, whose blocking calls have a lane of their own.
    pub fn for_owner(owner: &'static str, io: Handle) -> Self {
        Self { lane: Lane::new(owner, io) }
    }
}

impl StaticFiles for DiskStaticFiles {
    fn read(&self, path: &Path) -> BoxFuture<'static, Result<Vec<ManifestFile>, StaticFilesError>> {
        let path = path.to_path_buf();
        self.lane.run(move || read::read(&path))
    }

    fn watch(&self, path: &Path) -> BoxStream<'static, FilesChanged> {
        watch::watch(&self.lane, path.to_path_buf())
    }
}
