//! Gives a volume to a group (row 10.23): every file in it belongs to the group with the owner's permissions, and new
//! files in its directories inherit the group.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::sys::failed;
use super::{GroupChange, GroupProgress, MountError, VolumeGroup};

/// The greatest depth of directories; each level holds a descriptor open.
const DEPTH_MAX: usize = 512;
/// The group's permissions on a file of a writable and of a read-only volume.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
/// The additional bits of a directory.
const ENTER: u32 = 0o110;
const SET_GROUP_ID: u32 = 0o2000;

/// Gives the volume to the group, its root last: a correct root means that the rest is done.
pub(super) fn set_group(path: &Path, group: VolumeGroup, files: &AtomicU64) -> Result<(), MountError> {
    let refused = |errno: Errno| failed("give to the group", path)(errno.into());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(refused)?;
    let stat = rustix::fs::fstat(&root).map_err(refused)?;
    if group.change == GroupChange::OnRootMismatch && is_as_it_should_be(&stat, group) {
        return Ok(());
    }
    walk(&root, group, files, 0).map_err(refused)
}

/// A change that is under way: its begin, and the number of files that it has reached.
type Change = (Instant, Arc<AtomicU64>);

/// The changes that are under way, by the volume's path.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes(Arc<Mutex<BTreeMap<PathBuf, Change>>>);

impl Changes {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Change>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the volume to the group, and shows meanwhile how far that is. Only one change of a volume is made at a time.
    pub(super) fn set_group(&self, path: &Path, group: VolumeGroup) -> Result<(), MountError> {
        let files = Arc::new(AtomicU64::new(0));
        self.locked().insert(path.to_path_buf(), (Instant::now(), files.clone()));
        let done = set_group(path, group, &files);
        self.locked().remove(path);
        done
    }

    pub(super) fn progress(&self, path: &Path) -> Option<GroupProgress> {
        let changes = self.locked();
        let (began, files) = changes.get(path)?;
        Some(GroupProgress { files: files.load(Ordering::Relaxed), since: began.elapsed() })
    }
}

/// The wanted permission bits of a file or directory.
fn wanted_bits(kind: FileType, read_only: bool) -> u32 {
    let mask = if read_only { READ_ONLY } else { READ_WRITE };
    if kind == FileType::Directory { mask | ENTER | SET_GROUP_ID } else { mask }
}

fn is_as_it_should_be(root: &Stat, group: VolumeGroup) -> bool {
    let kind = FileType::from_raw_mode(root.st_mode);
    let wanted = wanted_bits(kind, group.read_only);
    kind == FileType::Directory && root.st_gid == group.gid && root.st_mode & wanted == wanted
}

fn walk(at: &OwnedFd, group: VolumeGroup, files: &AtomicU64, depth: usize) -> Result<(), Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(at)?.st_mode);
    if kind == FileType::Directory && depth == DEPTH_MAX {
        tracing::warn!(gid = group.gid, "Directories of a volume lie too deep to be given to the group");
    } else if kind == FileType::Directory {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let readable = rustix::fs::openat(at, ".", flags, Mode::empty())?;
        for entry in Dir::read_from(&readable)? {
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(at, name, flags, Mode::empty()) {
                Ok(child) => walk(&child, group, files, depth + 1)?,
                // The entry has gone meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    files.fetch_add(1, Ordering::Relaxed);
    change(at, kind, group)
}

/// Changes one file. As upstream, a file that cannot be changed does not keep the pod from its volume.
fn change(at: &OwnedFd, kind: FileType, group: VolumeGroup) -> Result<(), Errno> {
    let gid = Gid::from_raw(group.gid);
    // Read before: the kernel takes set-user-ID and set-group-ID bits away with the change of the owner, and they come back.
    let mode = rustix::fs::fstat(at)?.st_mode & 0o7777;
    if let Err(errno) = rustix::fs::chownat(at, "", None, Some(gid), AtFlags::EMPTY_PATH) {
        tracing::warn!(%errno, gid = group.gid, "A file of a volume was not given to the group");
    }
    // A link has no permissions of its own, and its target is not changed.
    if kind == FileType::Symlink {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(mode | wanted_bits(kind, group.read_only));
    // fchmod refuses descriptors without read or write access; the path in /proc leads to exactly this file.
    let through = format!("/proc/self/fd/{}", at.as_raw_fd());
    if let Err(errno) = rustix::fs::chmod(through.as_str(), mode) {
        tracing::warn!(%errno, "A file of a volume did not get its permissions");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn set_group(volume: &Path, group: VolumeGroup) -> Result<(), MountError> {
        let changes = Changes::default();
        let done = changes.set_group(volume, group);
        assert_eq!(changes.progress(volume), None, "it is over");
        done
    }

    fn mode(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.gid(), found.permissions().mode() & 0o7777)
    }

    #[test]
    fn everything_in_it_belongs_to_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("d")).unwrap();
        fs::write(volume.join("d/f"), b"").unwrap();
        fs::write(dir.path().join("outside"), b"").unwrap();
        fs::set_permissions(dir.path().join("outside"), fs::Permissions::from_mode(0o600)).unwrap();
        symlink(dir.path().join("outside"), volume.join("link")).unwrap();
        for (path, mode) in [("", 0o755), ("d", 0o700), ("d/f", 0o600)] {
            fs::set_permissions(volume.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root gives files away");
            return;
        }
        let group = VolumeGroup { gid: 1234, read_only: false, change: GroupChange::Always };
        let before = mode(&dir.path().join("outside"));
        let files = AtomicU64::new(0);
        super::set_group(&volume, group, &files).unwrap();
        assert_eq!(files.into_inner(), 4, "two directories, a file and a link");
        assert_eq!(mode(&volume), (1234, 0o2775));
        assert_eq!(mode(&volume.join("d")), (1234, 0o2770));
        assert_eq!(mode(&volume.join("d/f")), (1234, 0o660));
        assert_eq!(mode(&volume.join("link")).0, 1234);
        assert_eq!(mode(&dir.path().join("outside")), before, "no link is followed");

        // With OnRootMismatch, only a root that differs makes all files be changed again.
        fs::set_permissions(volume.join("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        let on_mismatch = VolumeGroup { change: GroupChange::OnRootMismatch, ..group };
        set_group(&volume, on_mismatch).unwrap();
        assert_eq!(mode(&volume.join("d/f")), (1234, 0o600));
        set_group(&volume, VolumeGroup { gid: 1235, ..on_mismatch }).unwrap();
        assert_eq!(mode(&volume.join("d/f")), (1235, 0o660));
        fs::set_permissions(volume.join("d/f"), fs::Permissions::from_mode(0o400)).unwrap();
        set_group(&volume, VolumeGroup { read_only: true, ..group }).unwrap();
        assert_eq!(mode(&volume.join("d/f")), (1234, 0o440));
        // The kernel takes these bits with a change of the owner, also when the group stays the same.
        fs::set_permissions(volume.join("d/f"), fs::Permissions::from_mode(0o6755)).unwrap();
        for gid in [1234, 1236] {
            set_group(&volume, VolumeGroup { gid, ..group }).unwrap();
            assert_eq!(mode(&volume.join("d/f")), (gid, 0o6775));
        }
    }
}
