//! The sockets below a directory, as they come and go.
//!
//! inotify only says that something has changed; what there is, is read from the directories. They are also read from time to
//! time, since a link's target, a mount above the directory, or an event that was lost, tells nothing.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::registrations::{Identity, Sockets};
use bridge_io::{Lane, NotRun, lasting};
use bridge_pace::Backoff;

/// Changes within this time after the first one are read together.
const COALESCE: Duration = Duration::from_millis(20);
/// How often the directories are read without any change.
const RESCAN: Duration = Duration::from_secs(20);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(20));
/// How deep directories lie in one another, how many there are, and how many entries they have, at most; what is beyond is
/// passed over.
const DEPTH_MAX: usize = 8;
const DIRECTORIES_MAX: usize = 256;
const ENTRIES_MAX: usize = 4096;

/// The sockets by which plugins register.
pub trait PluginSockets: Send + Sync + 'static {
    /// The sockets that there are, at once and after each change. Several changes may be one item.
    fn watch(&self) -> BoxStream<'static, Sockets>;
}

/// The sockets below a directory, which is made if it is missing. Directories in it are followed, links to directories are
/// not, and names that begin with a dot do not count.
#[derive(Clone, Debug)]
pub struct SocketDirectory {
    lane: Lane,
    path: PathBuf,
}

impl SocketDirectory {
    /// The sockets below `path`, read on `lane`.
    pub fn new(lane: Lane, path: impl Into<PathBuf>) -> Self {
        Self { lane, path: path.into() }
    }
}

impl PluginSockets for SocketDirectory {
    fn watch(&self) -> BoxStream<'static, Sockets> {
        let (tell, told) = mpsc::channel(1);
        let watching = Watching { lane: self.lane.clone(), path: self.path.clone(), tell };
        // Not awaited: the task ends when the stream, and with it the receiver, is dropped.
        drop(self.lane.io().spawn(lasting("watch the plugins' sockets", move || watching.clone().run())));
        tokio_stream::wrappers::ReceiverStream::new(told).boxed()
    }
}

#[derive(Clone)]
struct Watching {
    lane: Lane,
    path: PathBuf,
    tell: mpsc::Sender<Sockets>,
}

type Watch = Arc<AsyncFd<OwnedFd>>;

/// Why the directories were not read.
enum NotRead {
    Failed(String),
    RuntimeGone,
}

impl From<NotRun> for NotRead {
    fn from(not_run: NotRun) -> Self {
        match not_run {
            NotRun::RuntimeGone => Self::RuntimeGone,
            other => Self::Failed(other.to_string()),
        }
    }
}

impl Watching {
    async fn run(self) {
        let (mut watch, mut wait) = (None, BACKOFF.first());
        let mut told = None;
        loop {
            let pause = match self.read(&mut watch).await {
                Ok(sockets) => {
                    wait = BACKOFF.first();
                    if told.as_ref() != Some(&sockets) {
                        if self.tell.send(sockets.clone()).await.is_err() {
                            return;
                        }
                        told = Some(sockets);
                    }
                    RESCAN
                }
                Err(NotRead::RuntimeGone) => return,
                Err(NotRead::Failed(reason)) => {
                    tracing::warn!(path = %self.path.display(), reason, "the plugins' sockets cannot be watched");
                    let pause = wait;
                    wait = BACKOFF.following(wait);
                    pause
                }
            };
            tokio::select! {
                biased;
                () = self.tell.closed() => return,
                () = tokio::time::sleep(pause) => {}
                () = changed(watch.as_ref()) => {}
            }
        }
    }

    /// Reads the directories, and watches each from before it is read.
    async fn read(&self, watch: &mut Option<Watch>) -> Result<Sockets, NotRead> {
        let (path, known) = (self.path.clone(), watch.clone());
        let (armed, sockets) = self
            .lane
            .run(move || {
                let armed = known.map_or_else(arm, Ok).map_err(NotRead::Failed)?;
                let sockets = read(&path, &armed).map_err(|error| NotRead::Failed(error.to_string()))?;
                Ok::<_, NotRead>((armed, sockets))
            })
            .await?;
        *watch = Some(armed);
        Ok(sockets)
    }
}

/// Ends some time after a change; never without a watch.
async fn changed(watch: Option<&Watch>) {
    let Some(watch) = watch else { return std::future::pending().await };
    match watch.readable().await {
        Ok(mut ready) => {
            // The rest of a burst is read with its beginning.
            tokio::time::sleep(COALESCE).await;
            drain(watch);
            ready.clear_ready();
            drain(watch);
        }
        // The directories are read from time to time all the same.
        Err(_) => std::future::pending().await,
    }
}

fn drain(watch: &Watch) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch.get_ref(), &mut buffer);
    loop {
        match reader.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn arm() -> Result<Watch, String> {
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
        .map_err(|errno| format!("making an inotify instance: {errno}"))?;
    // `AsyncFd::try_new`'s replacement is unsafe for types that change their descriptor, which an `OwnedFd` does not.
    #[allow(deprecated)]
    let inotify =
        AsyncFd::new(inotify).map_err(|error| format!("registering an inotify instance: {error}"))?;
    Ok(Arc::new(inotify))
}

/// The sockets below a directory, with a watch on each directory.
fn read(root: &Path, watch: &Watch) -> std::io::Result<Sockets> {
    std::fs::create_dir_all(root)?;
    let mut open = vec![(root.to_owned(), 0)];
    let (mut sockets, mut seen, mut entries) = (Sockets::new(), BTreeSet::new(), 0);
    while let Some((directory, depth)) = open.pop() {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let watched = inotify::add_watch(watch.get_ref(), &directory, flags);
        match (watched, directory == root) {
            (Ok(_), _) => {}
            (Err(errno), true) => return Err(errno.into()),
            // It went meanwhile.
            (Err(_), false) => continue,
        }
        let listed = match std::fs::read_dir(&directory) {
            Ok(listed) => listed,
            Err(error) if directory == root => return Err(error),
            Err(_) => continue,
        };
        for entry in listed.flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                // A part of the sockets would look as if the others had gone.
                return Err(std::io::Error::other(format!("it has more than {ENTRIES_MAX} entries")));
            }
            let (name, path) = (entry.file_name(), entry.path());
            // A path that is no text cannot be an endpoint.
            let (Some(name), Some(text)) = (name.to_str(), path.to_str()) else { continue };
            if name.starts_with('.') {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth < DEPTH_MAX && seen.len() < DIRECTORIES_MAX && seen.insert(path.clone()) {
                    open.push((path, depth + 1));
                }
                continue;
            }
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            if metadata.file_type().is_socket() {
                sockets.insert(text.to_owned(), identity(&metadata));
            }
        }
    }
    Ok(sockets)
}

/// A socket's data never change, so that its time of modification is that of its making; its mode may change later.
fn identity(metadata: &std::fs::Metadata) -> Identity {
    let made_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    Identity { device: metadata.dev(), inode: metadata.ino(), made_ns }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;
    use bridge_io::Io;

    async fn next(stream: &mut BoxStream<'static, Sockets>) -> Sockets {
        tokio::time::timeout(Duration::from_secs(10), stream.next()).await.expect("in time").expect("an item")
    }

    fn names(sockets: &Sockets, root: &Path) -> Vec<String> {
        let root = format!("{}/", root.display());
        sockets.keys().map(|path| path.strip_prefix(&root).expect("below the root").to_owned()).collect()
    }

    #[tokio::test]
    async fn sockets_are_seen_as_they_come_and_go_in_directories_too() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("made/here");
        let mut stream = SocketDirectory::new(Io::current().lane().clone(), &root).watch();
        assert!(next(&mut stream).await.is_empty() && root.is_dir());

        let _a = UnixListener::bind(root.join("a.sock")).unwrap();
        let first = next(&mut stream).await;
        assert_eq!(names(&first, &root), ["a.sock"]);

        // Files, hidden sockets and links to directories do not count; a link to a socket does.
        std::fs::write(root.join("plain"), "").unwrap();
        let _hidden = UnixListener::bind(root.join(".hidden")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let _other = UnixListener::bind(elsewhere.path().join("other.sock")).unwrap();
        symlink(elsewhere.path(), root.join("directory-link")).unwrap();
        symlink(elsewhere.path().join("other.sock"), root.join("link.sock")).unwrap();
        assert_eq!(names(&next(&mut stream).await, &root), ["a.sock", "link.sock"]);
        std::fs::remove_file(root.join("link.sock")).unwrap();
        assert_eq!(names(&next(&mut stream).await, &root), ["a.sock"]);

        std::fs::create_dir(root.join("sub")).unwrap();
        let _b = UnixListener::bind(root.join("sub/b.sock")).unwrap();
        assert_eq!(names(&next(&mut stream).await, &root), ["a.sock", "sub/b.sock"]);
        std::fs::remove_dir_all(root.join("sub")).unwrap();
        assert_eq!(names(&next(&mut stream).await, &root), ["a.sock"]);
    }

    #[tokio::test]
    async fn a_socket_that_is_made_anew_is_another_and_one_with_another_mode_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let _first = UnixListener::bind(&path).unwrap();
        let mut stream = SocketDirectory::new(Io::current().lane().clone(), directory.path()).watch();
        let first = next(&mut stream).await;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(identity(&std::fs::metadata(&path).unwrap()), *first.values().next().unwrap());
        // The new socket is made before the old one goes, so that no inode is used twice.
        let beside = directory.path().join(".new");
        let _second = UnixListener::bind(&beside).unwrap();
        std::fs::rename(&beside, &path).unwrap();
        let second = next(&mut stream).await;
        assert_eq!(first.keys().collect::<Vec<_>>(), second.keys().collect::<Vec<_>>());
        assert_ne!(first, second);
    }

    #[tokio::test]
    async fn a_directory_that_is_removed_is_made_and_watched_again() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("registry");
        let mut stream = SocketDirectory::new(Io::current().lane().clone(), &root).watch();
        assert!(next(&mut stream).await.is_empty());
        let _a = UnixListener::bind(root.join("a.sock")).unwrap();
        assert_eq!(next(&mut stream).await.len(), 1);
        std::fs::remove_dir_all(&root).unwrap();
        assert!(next(&mut stream).await.is_empty() && root.is_dir());
        let _b = UnixListener::bind(root.join("b.sock")).unwrap();
        assert_eq!(names(&next(&mut stream).await, &root), ["b.sock"]);
    }
}
