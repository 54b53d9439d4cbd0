//! Keeps a second kubelet off a root directory. There is no trait: only the daemon takes the lock, before actors start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};

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
    /// The lock file cannot be made, locked or written.
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
        let failed = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |error: io::Error| LockError::Io { operation, path, reason: error.to_string() }
        };
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
            Err(rustix::io::Errno::WOULDBLOCK) => {
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
}
