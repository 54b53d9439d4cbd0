//! The files that a container's log consists of: the one that the runtime writes, and those rotated from it.
//!
//! A pod may have the directory of all logs mounted and put whatever it likes there. So the pod's and the container's
//! directory are entered without following a link, files are touched by their names within that directory alone, and
//! only regular files are.

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

/// What is added to the name of a log that has been compressed.
pub const COMPRESSED: &str = ".gz";
/// What is added to the name of a log while it is being compressed.
pub const UNFINISHED: &str = ".tmp";

/// Where the runtime writes a container's log: `<root>/<pod>/<container>/<file>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// The directory of all logs. Links on the way to it are the administrator's, and are followed.
    pub root: PathBuf,
    /// The pod's directory there.
    pub pod: String,
    /// The container's directory below that.
    pub container: String,
    /// The log's name.
    pub file: String,
}

/// Why a log could not be looked at, renamed, removed or compressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// An operation of the file system failed.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A link, a directory or a device where a log should be.
    #[error("{path} is not a regular file", path = path.display())]
    NotALog {
        /// Where.
        path: PathBuf,
    },
    /// Too many logs are being compressed.
    #[error("too many logs are being compressed")]
    Busy,
    /// The work was not done: too much of it waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// What became of a log that was to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressed {
    /// It is.
    Done,
    /// It has gone, or is being compressed already.
    Nothing,
    /// It still grew: it stays as it is.
    Growing,
}

type Done<T> = BoxFuture<'static, Result<T, LogError>>;

/// The files of containers' logs.
///
/// Every operation belongs to whoever asked until it begins, and once begun runs to its end even when its future is
/// dropped. All are idempotent.
pub trait ContainerLogs: Send + Sync + std::fmt::Debug {
    /// The size of each log in bytes, in the order of the places; none where there is no file.
    fn sizes(&self, places: Vec<LogPlace>) -> Done<Vec<Result<Option<u64>, LogError>>>;

    /// The names of regular files beside the log that begin with its name and a dot, sorted; of very many only some.
    fn rotated(&self, place: &LogPlace) -> Done<Vec<String>>;

    /// Removes files beside the log; those that are gone are removed. A file that is just being written by
    /// [`compress`](Self::compress) stays.
    fn remove(&self, place: &LogPlace, names: Vec<String>) -> Done<()>;

    /// Renames a file beside the log, or the log itself. Nothing that is there is ever replaced: that is an error.
    fn rename(&self, place: &LogPlace, from: &str, to: &str) -> Done<()>;

    /// Compresses a rotated file to `<name>.gz` and removes it. It takes its time, on a thread of low priority.
    fn compress(&self, place: &LogPlace, name: &str) -> Done<Compressed>;
}
