//! A container's log file: read from its end or an offset, and watched for changes. NodeApi reads it.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::tenant_files;
use bridge_io::Io;

/// The most bytes of one read.
const BLOCK_BYTES: usize = 16 * 1024;
/// The file is checked at this interval even if no change is reported.
const LOOK: Duration = Duration::from_secs(1);
/// The most followers that watch; others look at that interval. The system has few instances of inotify for each user, and other
/// programs of the node need some.
const WATCHES_MAX: usize = 32;
/// A log that is being rotated is missing for a moment: the pauses, in milliseconds, before it is opened again.
const AWAY_MS: [u64; 4] = [10, 40, 100, 200];

/// An open log. Reading happens on threads that may block.
#[derive(Clone, Debug)]
pub struct LogFile {
    io: Io,
    path: PathBuf,
    file: Arc<File>,
}

/// Wakes when a file in the log's directory has changed.
#[derive(Debug)]
pub struct LogWatch {
    changes: Option<(AsyncFd<OwnedFd>, SemaphorePermit<'static>)>,
}

pub(super) async fn blocking<T: Send + 'static>(
    io: &Io,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    io.blocking(work).await.unwrap_or_else(|not_run| Err(io::Error::other(not_run)))
}

/// The offset of the last `lines` lines; an incomplete last line is not counted.
fn tail_start(file: &File, lines: u64) -> io::Result<u64> {
    let mut right = file.metadata()?.len();
    let mut seen = 0;
    let mut block = vec![0; BLOCK_BYTES];
    while right > 0 {
        let left = right.saturating_sub(BLOCK_BYTES as u64);
        let part = &mut block[..usize::try_from(right - left).unwrap_or(BLOCK_BYTES)];
        file.read_exact_at(part, left)?;
        for (at, byte) in part.iter().enumerate().rev() {
            if *byte == b'\n' {
                seen += 1;
                if seen > lines {
                    return Ok(left + at as u64 + 1);
                }
            }
        }
        right = left;
    }
    Ok(0)
}

impl LogFile {
    /// A file that is open; `path` is where it was found.
    pub(super) fn of(io: &Io, path: PathBuf, file: File) -> Self {
        Self { io: io.clone(), path, file: Arc::new(file) }
    }

    /// Opens the file at a path, following links.
    ///
    /// # Errors
    /// The operating system's error; also for a file that is not regular.
    pub async fn open(io: &Io, path: &Path) -> io::Result<Self> {
        for pause_ms in AWAY_MS {
            match Self::open_now(io, path).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                }
                opened => return opened,
            }
        }
        Self::open_now(io, path).await
    }

    async fn open_now(io: &Io, path: &Path) -> io::Result<Self> {
        let path = path.to_owned();
        let (path, file) = blocking(io, move || {
            let path = std::fs::canonicalize(path)?;
            let file = tenant_files::read(&path)?;
            Ok((path, file))
        })
        .await?;
        Ok(Self { io: io.clone(), path, file: Arc::new(file) })
    }

    /// The offset at which the last `lines` lines begin, bytes.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn tail_start(&self, lines: u64) -> io::Result<u64> {
        let file = self.file.clone();
        blocking(&self.io, move || tail_start(&file, lines)).await
    }

    /// Up to 16 KiB from `offset` on; empty at the end of the file.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn read_at(&self, offset: u64) -> io::Result<Vec<u8>> {
        let file = self.file.clone();
        blocking(&self.io, move || {
            let mut block = vec![0; BLOCK_BYTES];
            let count = file.read_at(&mut block, offset)?;
            block.truncate(count);
            Ok(block)
        })
        .await
    }

    /// The file that has the path now, if it is another one: the log was rotated.
    ///
    /// # Errors
    /// The operating system's error; a missing file is none.
    pub async fn successor(&self) -> io::Result<Option<Self>> {
        let (path, file) = (self.path.clone(), self.file.clone());
        let opened = blocking(&self.io, move || {
            let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
            let now = match std::fs::metadata(&path) {
                Ok(now) => now,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            if identity(&now) == identity(&file.metadata()?) {
                return Ok(None);
            }
            match tenant_files::read(&path) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        });
        let opened = opened.await?;
        Ok(opened.map(|file| Self { file: Arc::new(file), ..self.clone() }))
    }

    /// Begins to watch the file's directory. Where that fails (too many watches), `changed` waits a whole second.
    pub fn watch(&self) -> LogWatch {
        static PLACES: Semaphore = Semaphore::const_new(WATCHES_MAX);
        let Ok(place) = PLACES.try_acquire() else { return LogWatch { changes: None } };
        let made = self.io.enter(|| {
            let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let directory = self.path.parent().unwrap_or(Path::new("/"));
            let flags = WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVE | WatchFlags::DELETE;
            inotify::add_watch(&fd, directory, flags)?;
            // `AsyncFd::try_new`'s replacement is unsafe for types that change their descriptor, which an `OwnedFd`
            // does not.
            #[allow(deprecated)]
            let fd = AsyncFd::new(fd)?;
            Ok::<_, io::Error>(fd)
        });
        LogWatch { changes: made.ok().map(|watch| (watch, place)) }
    }
}

impl LogWatch {
    /// Ends with the next change, or after a second. Changes since the last call count.
    pub async fn changed(&mut self) {
        let Some((changes, _)) = &self.changes else { return tokio::time::sleep(LOOK).await };
        if let Ok(Ok(mut ready)) = tokio::time::timeout(LOOK, changes.readable()).await {
            // The events are discarded: the file itself shows what has changed.
            let mut events = [0u8; 4096];
            while rustix::io::read(changes.get_ref(), &mut events).is_ok_and(|count| count > 0) {}
            ready.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant_files::tests::Lease;

    fn start_of(text: &str, lines: u64) -> u64 {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        tail_start(file.as_file(), lines).unwrap()
    }

    #[test]
    fn the_tail_begins_after_a_line_end() {
        assert_eq!(start_of("", 3), 0);
        assert_eq!(start_of("a\nb\nc\n", 0), 6);
        assert_eq!(start_of("a\nb\nc\n", 1), 4);
        assert_eq!(start_of("a\nb\nc\n", 9), 0);
        assert_eq!(start_of("a\nb\nc", 1), 2, "the line that has not ended comes on top");
        let long = "x".repeat(BLOCK_BYTES) + "\n";
        assert_eq!(start_of(&long.repeat(3), 2), BLOCK_BYTES as u64 + 1);
    }

    #[tokio::test]
    async fn a_read_has_sixteen_kibibytes_at_most() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, "x".repeat(20_000)).unwrap();
        let log = LogFile::open(&Io::current(), &path).await.unwrap();
        let mut lengths = Vec::new();
        for offset in [0, 16_384, 20_000] {
            lengths.push(log.read_at(offset).await.unwrap().len());
        }
        assert_eq!(lengths, [16_384, 3616, 0]);
    }

    #[tokio::test]
    async fn a_log_that_is_away_for_a_moment_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        let io = Io::current();
        let begins = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            std::fs::write(&path, "new").unwrap();
        };
        let (log, ()) = tokio::join!(LogFile::open(&io, &path), begins);
        assert_eq!(log.unwrap().read_at(0).await.unwrap(), b"new");
        assert!(LogFile::open(&io, &directory.path().join("none")).await.is_err());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn followers_without_a_watch_see_changes_at_the_next_look() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, "old").unwrap();
        let log = LogFile::open(&Io::current(), &path).await.unwrap();
        let mut watches: Vec<LogWatch> = (0..100).map(|_| log.watch()).collect();
        let watching = |watches: &[LogWatch]| watches.iter().filter(|watch| watch.changes.is_some()).count();
        assert!(watching(&watches) <= WATCHES_MAX);
        let mut last = watches.pop().unwrap();
        assert!(last.changes.is_none());
        tokio::time::timeout(LOOK * 30, last.changed()).await.expect("it looks");
        drop(watches);
        assert_eq!(watching(&[log.watch()]), 1, "a follower that goes leaves its watch to the next");
    }

    #[tokio::test]
    async fn a_rotated_log_has_a_successor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("0.log");
        std::fs::write(&path, "old").unwrap();
        let io = Io::current();
        let log = LogFile::open(&io, &path).await.unwrap();
        assert!(log.successor().await.unwrap().is_none());
        let mut watch = log.watch();
        std::fs::rename(&path, directory.path().join("0.log.1")).unwrap();
        assert!(log.successor().await.unwrap().is_none(), "the new one is not there yet");
        std::fs::write(&path, "new").unwrap();
        watch.changed().await;
        let next = log.successor().await.unwrap().expect("another file");
        assert_eq!(next.read_at(0).await.unwrap(), b"new");
        assert_eq!(log.read_at(0).await.unwrap(), b"old", "what was open can be read to its end");
        assert!(LogFile::open(&io, directory.path()).await.is_err(), "a directory is no log");
        drop(next);
        let Some(_lease) = Lease::on(&path) else { return };
        let error = LogFile::open(&io, &path).await.unwrap_err().to_string();
        assert_eq!(error, "a process holds a lease on it");
    }
}
