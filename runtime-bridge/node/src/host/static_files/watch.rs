use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use bridge_io::{Lane, NotRun};
use bridge_pace::Backoff;

use super::{FilesChanged, MANIFESTS_MAX};

/// Changes within this time after the first one are merged into one item.
pub(super) const COALESCE: Duration = Duration::from_millis(100);
/// A pause of this length ends an item earlier, so that a single change is reported soon.
const QUIET: Duration = Duration::from_millis(5);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(20));
/// How often the path's inode is compared. inotify watches an inode: when another inode appears under the path without
/// an event at the old one (its parent was renamed, a mount was made above), only a comparison notices.
const SAME_CHECK: Duration = Duration::from_secs(20);

/// The names that were removed since the last item was taken.
type Removed = Arc<Mutex<BTreeSet<PathBuf>>>;

pub(super) fn watch(lane: &Lane, path: PathBuf) -> BoxStream<'static, FilesChanged> {
    // Room for one item: several items that wait say no more than one.
    let (tell, told) = mpsc::channel(1);
    let removed = Removed::default();
    let watching = Watching { lane: lane.clone(), path, tell, removed: removed.clone() };
    let changed = move |()| {
        let mut removed = removed.lock().unwrap_or_else(PoisonError::into_inner);
        FilesChanged { removed: std::mem::take(&mut *removed) }
    };
    bridge_io::told_by(lane.io(), watching.run(), told).map(changed).boxed()
}

struct Watching {
    lane: Lane,
    path: PathBuf,
    tell: mpsc::Sender<()>,
    removed: Removed,
}

/// Why a watch has ended.
enum Ended {
    /// The watched inode is gone or was replaced.
    Replaced,
    /// The stream was dropped.
    Unwanted,
}

impl Watching {
    async fn run(self) {
        let mut wait = BACKOFF.first();
        let mut was_there = true;
        loop {
            let (path, removed) = (self.path.clone(), self.removed.clone());
            match self.lane.run(move || arm(path, removed)).await {
                Ok(armed) => {
                    wait = BACKOFF.first();
                    was_there = true;
                    // Changes before the watch was set up made no event.
                    self.tell();
                    if matches!(self.until_ended(&armed).await, Ended::Unwanted) {
                        return;
                    }
                }
                Err(NotArmed::RuntimeGone) => return,
                Err(NotArmed::Failed) => {}
            }
            if std::mem::take(&mut was_there) {
                self.tell();
            }
            tokio::select! {
                biased;
                () = self.tell.closed() => return,
                () = tokio::time::sleep(wait) => {}
            }
            wait = BACKOFF.following(wait);
        }
    }

    fn tell(&self) {
        // Full: the waiting item stands for this one, too. Closed: the next wait notices it.
        let _ = self.tell.try_send(());
    }

    async fn until_ended(&self, armed: &Armed) -> Ended {
        loop {
            tokio::select! {
                biased;
                () = self.tell.closed() => return Ended::Unwanted,
                () = tokio::time::sleep(SAME_CHECK) => {
                    let (path, identity) = (self.path.clone(), armed.identity);
                    let same = self.lane.run(move || Ok::<_, NotRun>(identity_of(&path) == Some(identity)));
                    if same.await != Ok(true) {
                        return Ended::Replaced;
                    }
                }
                seen = armed.events() => match seen {
                    Seen::Nothing => {}
                    Seen::Gone => return Ended::Replaced,
                    Seen::Change => {
                        let more = armed.settle().await;
                        self.tell();
                        if more == Seen::Gone {
                            return Ended::Replaced;
                        }
                    }
                },
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Nothing,
    Change,
    Gone,
}

enum NotArmed {
    /// The path is missing, or the system refused; tried again later.
    Failed,
    RuntimeGone,
}

impl From<NotRun> for NotArmed {
    fn from(not_run: NotRun) -> Self {
        match not_run {
            NotRun::RuntimeGone => Self::RuntimeGone,
            NotRun::Busy { .. } | NotRun::Late { .. } => Self::Failed,
        }
    }
}

/// An inotify instance with one watch: on the directory, or for a single file on its parent directory, since editors
/// replace a file instead of writing it.
struct Armed {
    inotify: AsyncFd<OwnedFd>,
    /// The only file name that counts, when the path is a single file.
    only: Option<OsString>,
    identity: (u64, u64),
    path: PathBuf,
    removed: Removed,
}

/// Device and inode of the watched directory.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let directory = match std::fs::metadata(path).ok()? {
        metadata if metadata.is_dir() => metadata,
        // A file may be replaced, so its parent directory is watched.
        _ => std::fs::metadata(path.parent()?).ok()?,
    };
    Some((directory.dev(), directory.ino()))
}

fn arm(of: PathBuf, removed: Removed) -> Result<Armed, NotArmed> {
    let path = of.as_path();
    let is_dir = std::fs::metadata(path).map_err(|_| NotArmed::Failed)?.is_dir();
    let (watched, only) = if is_dir {
        (path, None)
    } else {
        (path.parent().ok_or(NotArmed::Failed)?, path.file_name().map(OsString::from))
    };
    let warn = |operation: &str, reason: String| {
        tracing::warn!(path = %path.display(), operation, reason, "The path is not watched, only read regularly");
        NotArmed::Failed
    };
    let identity = identity_of(path).ok_or(NotArmed::Failed)?;
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
        .map_err(|errno| warn("make an inotify instance", errno.to_string()))?;
    // A file counts when it is closed, not at every write, since half a manifest is none.
    let flags = WatchFlags::CREATE
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR;
    inotify::add_watch(&inotify, watched, flags).map_err(|errno| warn("watch", errno.to_string()))?;
    // `AsyncFd::try_new`'s replacement is unsafe for types that change their descriptor, which an `OwnedFd` does not.
    #[allow(deprecated)]
    let inotify = AsyncFd::new(inotify).map_err(|error| warn("register", error.to_string()))?;
    Ok(Armed { inotify, only, identity, path: of, removed })
}

impl Armed {
    async fn events(&self) -> Seen {
        match self.inotify.readable().await {
            Ok(mut ready) => {
                let seen = self.drain();
                ready.clear_ready();
                // An event may have arrived between the last read and the clearing.
                seen.max(self.drain())
            }
            Err(_) => Seen::Gone,
        }
    }

    /// Waits until changes have paused for a moment, or until they may not be merged any longer.
    async fn settle(&self) -> Seen {
        let end = tokio::time::Instant::now() + COALESCE;
        let mut seen = Seen::Change;
        loop {
            tokio::time::sleep(QUIET).await;
            let more = self.drain();
            seen = seen.max(more);
            if more != Seen::Change || tokio::time::Instant::now() >= end {
                return seen;
            }
        }
    }

    fn drain(&self) -> Seen {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut seen = Seen::Nothing;
        loop {
            match reader.next() {
                Ok(event) => seen = seen.max(self.judge(event.events(), event.file_name())),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return seen,
                Err(_) => return Seen::Gone,
            }
        }
    }

    fn judge(&self, events: ReadFlags, name: Option<&std::ffi::CStr>) -> Seen {
        if events.intersects(
            ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT,
        ) {
            return Seen::Gone;
        }
        // After an overflow anything may have changed.
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Seen::Change;
        }
        let Some(name) = name.map(std::ffi::CStr::to_bytes) else { return Seen::Nothing };
        let matters = match &self.only {
            Some(only) => only.as_bytes() == name,
            None => !name.starts_with(b"."),
        };
        if !matters {
            return Seen::Nothing;
        }
        if events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.note_removed(name);
        }
        Seen::Change
    }

    fn note_removed(&self, name: &[u8]) {
        let path = match self.only {
            Some(_) => self.path.clone(),
            None => self.path.join(OsStr::from_bytes(name)),
        };
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        if removed.len() < MANIFESTS_MAX {
            removed.insert(path);
        }
    }
}
