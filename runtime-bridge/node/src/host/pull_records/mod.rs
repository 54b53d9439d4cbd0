//! Records on disk of the images that the kubelet pulls, in files that the Go kubelet understands, too (row 6.7). This
//! module finds and writes the files completely; ImageManager interprets them.

mod disk;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use sha2::{Digest, Sha256};

pub use disk::DiskPullRecords;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakePullRecords;

/// The most records of one kind that are read; a node has a few hundred images.
const RECORDS_MAX: usize = 10_000;
const PREFIX: &str = "sha256-";
const TEMPORARY: &str = ".tmp";

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Pulls that have begun, by the image as pods spell it.
    Pulling,
    /// Images that have been pulled, by the runtime's reference.
    Pulled,
}

impl RecordKind {
    fn directory(self) -> &'static str {
        match self {
            RecordKind::Pulling => "pulling",
            RecordKind::Pulled => "pulled",
        }
    }
}

/// The change to make to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// The record stays as it is.
    Keep,
    /// The record gets this content.
    Write(Vec<u8>),
    /// The record is removed.
    Remove,
}

/// Decides on a change from the record's present content; `None` if there is no record or it cannot be read.
pub type Decide = Box<dyn FnOnce(Option<&[u8]>) -> RecordChange + Send>;

/// An existing record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// The file's path.
    pub path: PathBuf,
    /// The content, or why it cannot be read.
    pub content: Result<Vec<u8>, String>,
}

/// Why a record could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct PullRecordsError {
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's error.
    pub reason: String,
}

/// The records. Operations take effect in the order of the calls. An operation whose future is dropped before it begins
/// has no effect; one that has begun runs to its end, and later ones wait for it.
pub trait PullRecords: Send + Sync + fmt::Debug {
    /// All records of a kind, sorted by file name; at most ten thousand. Their names are read with the call, and each record when
    /// its turn comes, so that no more than one of them, of at most 1 MiB, is held at once, and other operations come between. One
    /// that is removed meanwhile is left out. An error about the directory is the only item.
    fn list(&self, kind: RecordKind) -> BoxStream<'static, Result<RecordFile, PullRecordsError>>;

    /// The record of an image, if there is one.
    fn read(
        &self,
        kind: RecordKind,
        of: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, PullRecordsError>>;

    /// Changes the record of an image; the change is safe on disk when the future ends. Returns the number of records
    /// of this kind.
    fn change(
        &self,
        kind: RecordKind,
        of: &str,
        decide: Decide,
    ) -> BoxFuture<'static, Result<usize, PullRecordsError>>;
}

/// The path of an image's record, named as upstream names it.
fn path_of(root: &Path, kind: RecordKind, of: &str) -> PathBuf {
    let hash = Sha256::digest(of.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    directory_of(root, kind).join(format!("{PREFIX}{hex}"))
}

fn directory_of(root: &Path, kind: RecordKind) -> PathBuf {
    root.join("image_manager").join(kind.directory())
}

/// Whether a file's name is that of a complete record.
fn is_record(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.starts_with(PREFIX) && !name.ends_with(TEMPORARY)
}
