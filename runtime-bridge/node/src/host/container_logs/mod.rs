//! The files of a container's log: the one that the runtime writes, and those rotated from it. LogManager uses them.
//!
//! A pod may have the directory of all logs mounted and may put anything into it. So the directories of the pod and the
//! container are entered without following links, and only regular files within them are accessed, by name.

mod disk;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use futures::future::BoxFuture;

pub use disk::DiskContainerLogs;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeContainerLogs;

use bridge_io::NotRun;

/// The suffix of a compressed log.
pub const COMPRESSED: &str = ".gz";
/// The suffix of a log while it is being compressed.
pub const UNFINISHED: &str = ".tmp";

/// Where the runtime writes a container's log: `<root>/<pod>/<container>/<file>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The directory of all logs. Links on the way to it are the administrator's, and are followed.
    pub root: PathBuf,
    /// The name of the pod's directory.
    pub pod: String,
    /// The name of the container's directory.
    pub container: String,
    /// The log's file name.
    pub file: String,
}

/// Why a log could not be read, renamed, removed or compressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// A link, a directory or a device is where a log should be.
    #[error("{path} is not a regular file", path = path.display())]
    NotALog {
        /// The path.
        path: PathBuf,
    },
    /// Too many logs are already being compressed.
    #[error("too many logs are being compressed")]
    Busy,
    /// The work was not done: too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// The result of compressing a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressed {
    /// The log is compressed.
    Done,
    /// The log is gone, or is already being compressed.
    Nothing,
    /// The log was still growing and stays as it is.
    Growing,
}

type Done<T> = BoxFuture<'static, Result<T, LogError>>;

/// The files of containers' logs.
///
/// An operation whose future is dropped before it begins has no effect; one that has begun runs to its end even when
/// its future is dropped. All are idempotent.
pub trait ContainerLogs: Send + Sync + std::fmt::Debug {
    /// The size of each log in bytes, in the order of the places; `None` where there is no file.
    fn sizes(&self, places: Vec<LogPlace>) -> Done<Vec<Result<Option<u64>, LogError>>>;

    /// The names of regular files beside the log that begin with the log's name and a dot, sorted; of very many, only
    /// some.
    fn rotated(&self, place: &LogPlace) -> Done<Vec<String>>;

    /// Removes files beside the log; missing ones count as removed. A file that [`compress`](Self::compress) is writing
    /// stays.
    fn remove(&self, place: &LogPlace, names: Vec<String>) -> Done<()>;

    /// Renames a file beside the log, or the log itself. Replacing an existing file is an error.
    fn rename(&self, place: &LogPlace, from: &str, to: &str) -> Done<()>;

    /// Compresses a rotated file to `<name>.gz` and removes the original, on a thread of low priority.
    fn compress(&self, place: &LogPlace, name: &str) -> Done<Compressed>;
}
