//! Keeps a second kubelet off a root directory, and by a file of the administrator's choice off the whole machine. There is no
//! trait: only the daemon takes the locks, before actors start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

const LOCK_FILE: &str = "understudy.lock";

/// Why the lock on a root directory was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Another kubelet uses this root directory.
    #[error("root directory {root} is in use by {holder} (it holds {lock})", root = root.display(), lock = lock.display())]
    Held {
        /// The root directory.
        root: PathBuf,
        /// The lock file.
        lock: PathBuf,
        /// The process that holds the lock, for instance `process 123`.
        holder: String,
    },
    /// A lock file cannot be made, locked, watched or written.
    #[error("cannot {operation} {path}: {reason}", path = path.display())]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
}

/// The lock on a root directory. The lock is released when this is dropped or the process ends in any way.
#[derive(Debug)]
pub struct RootLock {
    _file: File,
}

impl RootLock {
    /// Takes the lock on `root`; a missing directory is made (mode 0750). Fails at once, with the holder, if another
    /// kubelet has the lock.
    pub fn acquire(root: &Path) -> Result<Self, LockError> {
        let lock = root.join(LOCK_FILE);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o750)
            .create(root)
            .map_err(failed("make the directory", root))?;
        // Not truncated: the file may hold the process ID of the present holder.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(&lock)
            .map_err(failed("open", &lock))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held { root: root.to_path_buf(), lock, holder: holder(&mut file) });
            }
            Err(errno) => return Err(failed("lock", &lock)(errno.into())),
        }
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(failed("write", &lock))?;
        Ok(Self { _file: file })
    }
}

/// The lock on a file that several kubelets of a machine share (`--lock-file`, row 19.14). It is released when this is dropped or
/// the process ends in any way.
#[derive(Debug)]
pub struct SharedLock {
    _file: File,
    path: PathBuf,
}

impl SharedLock {
    /// Takes the lock on the file at `path`, which is made with mode 0600 where it is missing. Blocks the thread for as long as
    /// another process has the lock.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(failed("open", path))?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Self { _file: file, path: path.to_owned() }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("lock", path)(errno.into())),
            }
        }
    }

    /// Watches the file; what is returned ends as soon as another process opens it. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The file cannot be watched.
    pub fn contention(&self) -> Result<impl Future<Output = ()> + Send + use<>, LockError> {
        let path = self.path.as_path();
        let unwatched = |errno: Errno| failed("watch", path)(errno.into());
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(unwatched)?;
        inotify::add_watch(&watch, path, WatchFlags::OPEN).map_err(unwatched)?;
        // `AsyncFd::try_new`'s replacement is unsafe for types that change their descriptor, which an `OwnedFd` does not.
        #[allow(deprecated)]
        let watch = AsyncFd::new(watch).map_err(failed("watch", path))?;
        Ok(async move {
            // As upstream, a watch that fails counts as contention, too.
            let _event = watch.readable().await;
        })
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LockError + use<> {
    let path = path.to_path_buf();
    move |error| LockError::Io { operation, path, reason: error.to_string() }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        // The holder has taken the lock and not written its process ID yet.
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_second_one_is_refused_with_the_first_ones_process() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("kubelet");
        let lock = RootLock::acquire(&root).unwrap();
        let error = RootLock::acquire(&root).unwrap_err();
        let expected = format!("is in use by process {}", std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
        RootLock::acquire(&dir.path().join("other")).unwrap();
        drop(lock);
        RootLock::acquire(&root).unwrap();
    }

    #[test]
    fn the_root_is_nobody_elses_from_its_first_moment() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("lib/kubelet");
        let _lock = RootLock::acquire(&root).unwrap();
        let mode = |path: &Path| {
            use std::os::unix::fs::PermissionsExt;
            fs::metadata(path).unwrap().permissions().mode() & 0o7777
        };
        assert_eq!((mode(&root), mode(&root.join(LOCK_FILE))), (0o750, 0o600));
        // An existing directory keeps its mode.
        let open = dir.path().join("open");
        fs::DirBuilder::new().mode(0o755).create(&open).unwrap();
        let _lock = RootLock::acquire(&open).unwrap();
        assert_eq!(mode(&open), 0o755);
    }

    #[test]
    fn what_a_dead_one_has_left_does_not_hold() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(LOCK_FILE), "4000000000 and rubbish").unwrap();
        let _lock = RootLock::acquire(dir.path()).unwrap();
        let text = fs::read_to_string(dir.path().join(LOCK_FILE)).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_root_that_cannot_be_made_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(matches!(RootLock::acquire(&dir.path().join("file/root")), Err(LockError::Io { .. })));
    }

    #[test]
    fn a_shared_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = SharedLock::acquire(&path).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let second = std::thread::spawn({
            let path = path.clone();
            move || {
                let lock = SharedLock::acquire(&path);
                tell.send(()).unwrap();
                lock
            }
        });
        assert!(told.try_recv().is_err());
        drop(first);
        told.recv().unwrap();
        assert!(second.join().unwrap().is_ok());
        let error = SharedLock::acquire(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot open {}: ", dir.path().display())), "{error}");
    }

    #[tokio::test]
    async fn a_shared_lock_tells_when_another_process_opens_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = SharedLock::acquire(&path).unwrap();
        let mut contended = std::pin::pin!(lock.contention().unwrap());
        assert_eq!(contended.as_mut().now_or_never(), None);
        File::open(&path).unwrap();
        contended.await;
    }
}
