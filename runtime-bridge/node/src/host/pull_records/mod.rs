//! What is known on disk of the images that the kubelet pulls: files that another kubelet finds and understands
//! (FEATURES 6.7). Where they lie and that they are whole is here; what they mean is ImageManager's.

mod disk;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

pub use disk::DiskPullRecords;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakePullRecords;

/// Records of one kind that are looked at; a node has a few hundred images.
const RECORDS_MAX: usize = 10_000;
const PREFIX: &str = "sha256-";
const TEMPORARY: &str = ".tmp";

/// Which records.
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

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// It stays as it is.
    Keep,
    /// It is this from now on.
    Write(Vec<u8>),
    /// It goes.
    Remove,
}

/// Decides what becomes of a record, which is seen as it is at that moment; nothing of one that cannot be read.
pub type Decide = Box<dyn FnOnce(Option<&[u8]>) -> RecordChange + Send>;

/// A record that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFile {
    /// Where it lies.
    pub path: PathBuf,
    /// What is in it, or why that cannot be read.
    pub content: Result<Vec<u8>, String>,
}

/// Why a record could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}", path = path.display())]
pub struct PullRecordsError {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub reason: String,
}

/// The records. Operations take effect in the order in which they were called. One whose future is dropped before it begins
/// has no effect; one that has begun runs to its end, and those called later wait for it.
pub trait PullRecords: Send + Sync + fmt::Debug {
    /// All records of a kind by the names of their files; at most ten thousand.
    fn list(&self, kind: RecordKind) -> BoxFuture<'static, Result<Vec<RecordFile>, PullRecordsError>>;

    /// The record of an image, if there is one.
    fn read(
        &self,
        kind: RecordKind,
        of: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, PullRecordsError>>;

    /// Changes the record of an image, safe on disk when it is done. How many records of this kind there are then.
    fn change(
        &self,
        kind: RecordKind,
        of: &str,
        decide: Decide,
    ) -> BoxFuture<'static, Result<usize, PullRecordsError>>;
}

/// Where the record of an image lies below the kubelet's root directory, as upstream names it.
fn path_of(root: &Path, kind: RecordKind, of: &str) -> PathBuf {
    let hash = Sha256::digest(of.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    directory_of(root, kind).join(format!("{PREFIX}{hex}"))
}

fn directory_of(root: &Path, kind: RecordKind) -> PathBuf {
    root.join("image_manager").join(kind.directory())
}

/// Whether a file is a whole record by its name: neither one that is being written nor anything else.
fn is_record(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.starts_with(PREFIX) && !name.ends_with(TEMPORARY)
}
