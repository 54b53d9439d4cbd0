//! State that neither the API server nor the runtime knows, kept across restarts of the kubelet.
//!
//! A checkpoint is JSON under a name such as `pod-status/<uid>`. After a crash of the process or of the machine a load
//! returns the content of the last save that was reported as done, or of a later save, and never a part of one.

mod dir;
#[cfg(any(test, feature = "fake"))]
mod fake;
pub mod file;
mod serial_executor;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

pub use dir::DirCheckpoints;
pub(crate) use dir::{read_bounded, write_synced};
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeCheckpoints;
pub(crate) use serial_executor::{Refused, SerialExecutor};

/// The largest checkpoint, bytes of JSON text.
pub const CHECKPOINT_BYTES_MAX: usize = 1024 * 1024;
/// So long one operation on a disk that is in order may take, with all that wait before it.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// The most segments of a name.
const SEGMENTS_MAX: usize = 4;
/// The longest segment of a name: it leaves room for prefix and suffix within the 255 bytes of a file name.
const SEGMENT_BYTES_MAX: usize = 200;

/// Why a checkpoint could not be saved, loaded, listed or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The name is not 1 to 4 segments of `[A-Za-z0-9._-]` that do not begin with a dot.
    #[error("checkpoint name {name:?}: {reason}")]
    InvalidName {
        /// The name as given.
        name: String,
        /// The rule that the name breaks.
        reason: &'static str,
    },
    /// The content is larger than [`CHECKPOINT_BYTES_MAX`].
    #[error("checkpoint {name}: {bytes} bytes are more than the {CHECKPOINT_BYTES_MAX} allowed")]
    TooLarge {
        /// The checkpoint's name.
        name: String,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The stored content is damaged. It has been set aside: the next load finds nothing.
    #[error("checkpoint {name} is corrupt: {reason}")]
    Corrupt {
        /// The checkpoint's name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The disk or the quota is full. The earlier content is still stored.
    #[error("checkpoint {name}: no space left to {operation} it")]
    DiskFull {
        /// The checkpoint's name.
        name: String,
        /// The operation that failed.
        operation: &'static str,
    },
    /// Another file system operation failed. The earlier content is still stored.
    #[error("checkpoint {name}: cannot {operation}: {reason}")]
    Io {
        /// The checkpoint or the prefix.
        name: String,
        /// The operation that failed.
        operation: &'static str,
        /// The operating system's error.
        reason: String,
    },
    /// Too many operations already wait for the disk.
    #[error("checkpoint {name}: too many operations wait for the disk")]
    Busy {
        /// The checkpoint or the prefix.
        name: String,
    },
    /// The I/O runtime has shut down.
    #[error("checkpoint {name}: the I/O runtime has shut down")]
    RuntimeGone {
        /// The checkpoint or the prefix.
        name: String,
    },
}

/// A store of checkpoints. Operations take effect in the order of the calls, even when their futures are polled in
/// another order. An operation whose future is dropped before it begins has no effect; one that has begun runs to its
/// end, and later ones wait for it.
pub trait CheckpointStore: Send + Sync + std::fmt::Debug {
    /// The same checkpoints for another subsystem: hanging operations of one do not stop the other, so the two must not
    /// use the same names.
    fn for_owner(&self, owner: &'static str) -> Arc<dyn CheckpointStore>;

    /// Replaces the checkpoint `name`; ends only when the content is safe on disk.
    fn save(&self, name: &str, content: &Value) -> BoxFuture<'static, Result<(), CheckpointError>>;

    /// The content of `name`; `None` when there is none.
    fn load(&self, name: &str) -> BoxFuture<'static, Result<Option<Value>, CheckpointError>>;

    /// All names that begin with `prefix` (for instance `pod-status/`), sorted. An empty prefix lists all.
    fn list(&self, prefix: &str) -> BoxFuture<'static, Result<Vec<String>, CheckpointError>>;

    /// Removes `name`; succeeds when there is none.
    fn remove(&self, name: &str) -> BoxFuture<'static, Result<(), CheckpointError>>;
}

/// What the disk answers to an operation on `name`, if it does so within this time: for work of many operations, which has no
/// deadline as a whole.
///
/// # Errors
/// The operation's error, or that it has not ended in time.
pub async fn in_time<T>(
    within: Duration,
    name: &str,
    operation: &'static str,
    answer: impl Future<Output = Result<T, CheckpointError>> + Send,
) -> Result<T, CheckpointError> {
    tokio::time::timeout(within, answer).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {within:?}");
        Err(CheckpointError::Io { name: name.to_owned(), operation, reason })
    })
}

fn check_name(name: &str) -> Result<(), CheckpointError> {
    let invalid = |reason| Err(CheckpointError::InvalidName { name: name.to_owned(), reason });
    if name.is_empty() {
        return invalid("it is empty");
    }
    if name.split('/').count() > SEGMENTS_MAX {
        return invalid("it has more than 4 segments");
    }
    for segment in name.split('/') {
        if segment.is_empty() {
            return invalid("it has an empty segment");
        }
        if segment.starts_with('.') {
            return invalid("a segment begins with a dot");
        }
        if segment.len() > SEGMENT_BYTES_MAX {
            return invalid("a segment is longer than 200 bytes");
        }
        if !segment.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-')) {
            return invalid("a segment has a character other than letters, digits, dot, underscore and dash");
        }
    }
    Ok(())
}

/// The text of a checkpoint; an error when it is too large.
fn encode(name: &str, content: &Value) -> Result<Vec<u8>, CheckpointError> {
    let text = serde_json::to_vec(content).expect("a JSON value has only string keys, so it can be written");
    if text.len() > CHECKPOINT_BYTES_MAX {
        return Err(CheckpointError::TooLarge { name: name.to_owned(), bytes: text.len() });
    }
    Ok(text)
}
