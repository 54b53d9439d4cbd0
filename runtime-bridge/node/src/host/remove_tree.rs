//! Removes a directory that pods have filled. A pod can write anything into a volume: symbolic links, directories
//! nested without end, millions of files. And where an unmount has failed, the files below the mount must not be
//! removed.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use crate::beneath::mount_of;
use crate::mounts::mountinfo;

/// The most directories that are open at the same time; deeper ones are moved up first.
const DEPTH_MAX: usize = 64;
/// The most names read from a directory before they are removed.
const BATCH: usize = 1024;
/// The most batches from one directory: a process that fills it faster than this must be stopped first.
const BATCHES_MAX: usize = 100_000;

/// Why a tree was not removed completely.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoveTreeError {
    /// A mount is at or below the path; nothing behind the mount was touched.
    #[error("{path} is not removed: {mount} is a mount point", path = path.display(), mount = mount.display())]
    MountInside {
        /// The tree.
        path: PathBuf,
        /// The mount point.
        mount: PathBuf,
    },
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
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> RemoveTreeError {
    let path = path.to_path_buf();
    move |errno| RemoveTreeError::Io { operation, path, reason: std::io::Error::from(errno).to_string() }
}

/// The path as the kernel lists it: links in the directories above are followed, the last segment is not.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    let real = path.parent().and_then(|parent| std::fs::canonicalize(parent).ok());
    match (real, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_path_buf(),
    }
}

/// Removes the file at `path`, or the directory with everything below it; succeeds when nothing is there. With a mount
/// at or below `path` nothing is removed; a mount that appears meanwhile stops the removal there.
pub(crate) fn remove_tree(path: &Path) -> Result<(), RemoveTreeError> {
    let path = &real_path(path);
    let mounts = mountinfo::read().map_err(|error| RemoveTreeError::Io {
        operation: "list the mounts below",
        path: path.clone(),
        reason: error.to_string(),
    })?;
    if let Some(mount) = mounts.at_or_below(path).next() {
        return Err(RemoveTreeError::MountInside { path: path.clone(), mount: mount.path });
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(failed("remove", path)(Errno::INVAL));
    };
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match rustix::fs::open(parent, directory, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        above => above.map_err(failed("open", parent))?,
    };
    let name = CString::new(name.as_encoded_bytes()).map_err(|_| failed("remove", path)(Errno::INVAL))?;
    match rustix::fs::openat(&above, name.as_c_str(), directory | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(root) => {
            let mut removal = Removal { top: path, root: &root, moved_up: 0 };
            removal.empty(&root, path, 1)?;
            remove_dir(&above, &name, path)
        }
        // A link or a file in its place is removed; a link's target stays.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            rustix::fs::unlinkat(&above, name.as_c_str(), AtFlags::empty()).map_err(failed("remove", path))
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("open", path)(errno)),
    }
}

struct Removal<'a> {
    top: &'a Path,
    root: &'a OwnedFd,
    moved_up: u64,
}

impl Removal<'_> {
    fn empty(&mut self, dir: &OwnedFd, path: &Path, depth: usize) -> Result<(), RemoveTreeError> {
        for _ in 0..BATCHES_MAX {
            let names = some_names(dir).map_err(failed("list", path))?;
            if names.is_empty() {
                return Ok(());
            }
            for name in names {
                self.remove(dir, &name, path, depth)?;
            }
        }
        Err(RemoveTreeError::Io {
            operation: "empty",
            path: path.to_path_buf(),
            reason: "it is filled faster than it can be emptied".into(),
        })
    }

    fn remove(
        &mut self,
        dir: &OwnedFd,
        name: &CStr,
        above: &Path,
        depth: usize,
    ) -> Result<(), RemoveTreeError> {
        let path = || above.join(name.to_string_lossy().as_ref());
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(Errno::BUSY) => return Err(self.mount_inside(path())),
            Err(errno) => return Err(failed("remove", &path())(errno)),
        }
        if depth >= DEPTH_MAX {
            return self.move_up(dir, name).map_err(failed("move up", &path()));
        }
        let child = match open_on_same_mount(dir, name) {
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::XDEV) => return Err(self.mount_inside(path())),
            child => child.map_err(failed("open", &path()))?,
        };
        let child_path = path();
        self.empty(&child, &child_path, depth + 1)?;
        remove_dir(dir, name, &child_path)
    }

    /// Moves a deep directory directly below the top, where the next batch finds it, so that the number of open
    /// directories stays bounded for any depth.
    fn move_up(&mut self, dir: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        loop {
            self.moved_up += 1;
            let to = format!(".removing-{}", self.moved_up);
            match rustix::fs::renameat_with(dir, name, self.root, to.as_str(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::NOENT) => return Ok(()),
                done => return done,
            }
        }
    }

    fn mount_inside(&self, mount: PathBuf) -> RemoveTreeError {
        RemoveTreeError::MountInside { path: self.top.to_path_buf(), mount }
    }
}

fn remove_dir(dir: &OwnedFd, name: &CStr, path: &Path) -> Result<(), RemoveTreeError> {
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("remove", path)(errno)),
    }
}

fn some_names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    // A descriptor of its own, since a shared one would continue where its last read stopped.
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
            if names.len() == BATCH {
                break;
            }
        }
    }
    Ok(names)
}

/// Opens a directory below `dir`; fails with `XDEV` when it is a mount point.
fn open_on_same_mount(dir: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes without the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let child = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            if mount_of(&child)? != mount_of(dir)? {
                return Err(Errno::XDEV);
            }
            Ok(child)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn removes_everything_but_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), b"1").unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        for n in 0..(BATCH * 2 + 10) {
            fs::write(tree.join(format!("a/file-{n}")), b"").unwrap();
        }
        symlink(&outside, tree.join("link")).unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        symlink("/nowhere", tree.join("dangling")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read(outside.join("precious")).unwrap(), b"1");

        remove_tree(&tree).unwrap();
        remove_tree(Path::new("/nowhere/at/all")).unwrap();

        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(fs::symlink_metadata(&tree).is_err());
        assert!(outside.join("precious").exists());
    }

    #[test]
    fn nesting_deeper_than_any_path_may_be_long_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let open = |at: &OwnedFd, name: &str| {
            rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
        };
        let mut at = OwnedFd::from(fs::File::open(&tree).unwrap());
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = open(&at, "d");
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_mount_below_is_named_and_nothing_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let mount = tree.join("volumes/v");
        fs::create_dir_all(&mount).unwrap();
        fs::write(tree.join("a"), b"").unwrap();
        let Some(mounted) = crate::mounts::tests::small_tmpfs(&mount, 65536) else { return };
        fs::write(mount.join("precious"), b"1").unwrap();
        let mount = real_path(&mount);
        assert_eq!(
            remove_tree(&tree),
            Err(RemoveTreeError::MountInside { path: real_path(&tree), mount: mount.clone() })
        );
        assert!(remove_tree(&mount).is_err(), "at the mount itself");
        assert!(tree.join("a").exists() && mount.join("precious").exists());

        // A mount is found through a link above it, too, although the kernel does not list it under that path.
        let link = dir.path().join("link");
        symlink(&tree, &link).unwrap();
        assert!(matches!(remove_tree(&link.join("volumes")), Err(RemoveTreeError::MountInside { .. })));

        // The walk stops at a mount that the check beforehand has missed.
        let root = OwnedFd::from(fs::File::open(&tree).unwrap());
        let mut removal = Removal { top: &tree, root: &root, moved_up: 0 };
        let walked = removal.empty(&root, &tree, 1);
        assert!(matches!(walked, Err(RemoveTreeError::MountInside { .. })), "{walked:?}");
        assert!(mount.join("precious").exists());
        drop(mounted);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
