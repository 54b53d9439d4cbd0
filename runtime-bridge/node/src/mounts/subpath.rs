//! Parts of volumes (row 10.20). Containers write into a volume while other containers of the pod start, so any file in
//! it may be replaced by a symbolic link between two calls. So no name is resolved twice: every step goes through the
//! descriptor that the step before has opened, and the kernel itself keeps resolution within the volume.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::MountError;
use super::sys::{failed, mounted_at, unmount};
use crate::beneath::open_beneath;
use crate::tenant_files;

/// The most segments of a path; the API's limit on its bytes allows about a thousand.
const SEGMENTS_MAX: usize = 2048;

fn refused(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> MountError {
    let path = path.to_path_buf();
    move |errno| failed(operation, &path)(errno.into())
}

/// The segments of a path within a volume.
fn segments(sub_path: &Path) -> Result<Vec<&Path>, MountError> {
    let invalid = |reason| MountError::InvalidPath { path: sub_path.to_path_buf(), reason };
    let mut segments = Vec::new();
    for part in sub_path.components() {
        match part {
            Component::Normal(name) => segments.push(Path::new(name)),
            Component::CurDir => {}
            Component::ParentDir => return Err(invalid("the path has a \"..\"")),
            Component::RootDir | Component::Prefix(_) => return Err(invalid("the path is absolute")),
        }
    }
    if segments.len() > SEGMENTS_MAX {
        return Err(invalid("the path has too many segments"));
    }
    Ok(segments)
}

/// Opens the volume's root. A link there is the administrator's (a hostPath), and is followed.
fn open_volume(volume: &Path) -> Result<OwnedFd, MountError> {
    rustix::fs::open(volume, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(refused("open the volume", volume))
}

/// Opens the file at a path within the volume, without reading it. Links are followed as long as they stay within.
fn open_within(volume: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    open_beneath(volume, path, OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_MAGICLINKS)
}

/// Makes the missing parts of a directory within the volume, each with the mode of the volume's root. An existing file
/// is kept and need not be a directory. Only errors about missing parts are returned; `bind_subpath` reports others.
pub(super) fn make_subpath(volume: &Path, sub_path: &Path) -> Result<(), MountError> {
    make_directory(volume, sub_path, None)
}

/// The same as `make_subpath`, with an explicit mode.
pub(super) fn make_directory(volume: &Path, sub_path: &Path, mode: Option<u32>) -> Result<(), MountError> {
    const OPERATION: &str = "make the directory";
    let shown = volume.join(sub_path);
    let segments = segments(sub_path)?;
    let root = open_volume(volume)?;
    if !matches!(open_within(&root, sub_path), Err(Errno::NOENT)) {
        return Ok(());
    }
    let mode = match mode {
        Some(mode) => mode,
        None => rustix::fs::fstat(&root).map_err(refused("look at", volume))?.st_mode,
    };
    let mode = Mode::from_raw_mode(mode & 0o7777);
    let (mut above, mut known) = (open_within(&root, Path::new("")), PathBuf::new());
    for segment in segments {
        let dir = above.map_err(refused(OPERATION, &shown))?;
        known.push(segment);
        above = match open_within(&root, &known) {
            Err(Errno::NOENT) => make_one(&dir, segment, mode),
            opened => opened,
        };
    }
    above.map(drop).map_err(refused(OPERATION, &shown))
}

fn make_one(dir: &OwnedFd, name: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(dir, name, mode) {
        // Another container of the pod has made it meanwhile; a link in its place fails below.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    // The umask has removed bits.
    rustix::fs::fchmod(&made, mode)?;
    Ok(made)
}

/// Makes a part of the volume visible at `target`, whose directories are made. Succeeds when the same file or directory
/// is already mounted there; another mount is removed first.
pub(super) fn bind_subpath(volume: &Path, sub_path: &Path, target: &Path) -> Result<(), MountError> {
    segments(sub_path)?;
    let root = open_volume(volume)?;
    let shown = volume.join(sub_path);
    let source = open_within(&root, sub_path).map_err(refused("open", &shown))?;
    let wanted = rustix::fs::fstat(&source).map_err(refused("look at", &shown))?;
    if mounted_at(target)?.is_some() {
        let seen = rustix::fs::lstat(target).map_err(refused("look at", target))?;
        if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino) {
            return Ok(());
        }
        unmount(target)?;
    }
    make_target(target, &wanted)?;
    // The descriptor stays the file that was opened within the volume, whatever is renamed meanwhile.
    let through = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
    rustix::mount::mount_bind(&through, target).map_err(refused("bind at", target))
}

/// Makes the mount point: a directory for a directory, a file for anything else.
fn make_target(target: &Path, wanted: &Stat) -> Result<(), MountError> {
    const OPERATION: &str = "make the mount point";
    if let Some(above) = target.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(above).map_err(failed(OPERATION, target))?;
    }
    let is_dir = FileType::from_raw_mode(wanted.st_mode) == FileType::Directory;
    match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() == is_dir && !there.is_symlink() => return Ok(()),
        // A mount point of an earlier instance, when the same path was of another kind.
        Ok(there) if there.is_dir() => fs::remove_dir(target).map_err(failed(OPERATION, target))?,
        Ok(_) => fs::remove_file(target).map_err(failed(OPERATION, target))?,
        Err(_) => {}
    }
    if is_dir {
        fs::DirBuilder::new().mode(0o750).create(target).map_err(failed(OPERATION, target))
    } else {
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(target);
        made.map(drop).map_err(failed(OPERATION, target))
    }
}

/// The content of a regular file within a volume, read without leaving the volume; `None` if it does not exist.
pub(crate) fn read_within(volume: &Path, path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, MountError> {
    let invalid = |reason| Err(MountError::InvalidPath { path: path.to_path_buf(), reason });
    segments(path)?;
    let root = open_volume(volume)?;
    let shown = volume.join(path);
    let found = match open_within(&root, path) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(refused("open", &shown))?,
    };
    let file = match tenant_files::reopen(&found) {
        Err(error) if tenant_files::is_no_regular_file(&error) => return invalid("it is no regular file"),
        file => file.map_err(failed("open", &shown))?,
    };
    match tenant_files::content(file, bytes_max).map_err(failed("read", &shown))? {
        None => invalid("the file is too large"),
        content => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::mounts::tests::small_tmpfs;
    use crate::tenant_files::tests::Lease;

    fn volume() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().canonicalize().unwrap().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o2777)).unwrap();
        (dir, volume)
    }

    #[test]
    fn missing_directories_get_the_volumes_mode() {
        let (_dir, volume) = volume();
        make_subpath(&volume, Path::new("a/b/./c")).unwrap();
        make_subpath(&volume, Path::new("a/b/c")).unwrap();
        for made in ["a", "a/b", "a/b/c"] {
            let mode = fs::metadata(volume.join(made)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, 0o2777, "{made}");
        }
        fs::set_permissions(volume.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        make_subpath(&volume, Path::new("a")).unwrap();
        assert_eq!(fs::metadata(volume.join("a")).unwrap().permissions().mode() & 0o7777, 0o700);
        fs::write(volume.join("file"), b"").unwrap();
        make_subpath(&volume, Path::new("file")).unwrap();
        make_subpath(&volume, Path::new("file/below")).unwrap();
        assert!(fs::metadata(volume.join("file")).unwrap().is_file());
        for bad in ["../x", "/etc", "a/../../x"] {
            assert!(make_subpath(&volume, Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn no_link_leads_out() {
        let (dir, volume) = volume();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), b"secret").unwrap();
        symlink(&outside, volume.join("absolute")).unwrap();
        symlink("../outside", volume.join("relative")).unwrap();
        symlink("..", volume.join("up")).unwrap();
        symlink("nothing", volume.join("dangling")).unwrap();
        symlink("/proc/self/root", volume.join("magic")).unwrap();
        let root = open_volume(&volume).unwrap();
        for bad in ["absolute", "relative", "up", "up/outside", "absolute/secret", "magic", "magic/etc"] {
            assert!(open_within(&root, Path::new(bad)).is_err(), "{bad}");
            let _binding_it_fails = make_subpath(&volume, &Path::new(bad).join("new"));
            assert!(read_within(&volume, Path::new(bad), 100).is_err(), "{bad}");
            let target = dir.path().join("target");
            assert!(bind_subpath(&volume, Path::new(bad), &target).is_err(), "{bad}");
            assert!(!target.exists(), "{bad}");
        }
        assert!(make_subpath(&volume, Path::new("dangling")).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
        // Links that stay within the volume are allowed.
        fs::create_dir(volume.join("real")).unwrap();
        symlink("real", volume.join("inside")).unwrap();
        assert!(open_within(&root, Path::new("inside")).is_ok());
        symlink(volume.join("real"), volume.join("by-its-whole-path")).unwrap();
        assert!(open_within(&root, Path::new("by-its-whole-path")).is_ok());
    }

    #[test]
    fn files_within_are_read_up_to_a_limit() {
        let (_dir, volume) = volume();
        fs::create_dir(volume.join("d")).unwrap();
        fs::write(volume.join("d/f"), b"12345").unwrap();
        assert_eq!(read_within(&volume, Path::new("d/f"), 5).unwrap().as_deref(), Some(&b"12345"[..]));
        assert!(read_within(&volume, Path::new("d/f"), 4).is_err());
        assert_eq!(read_within(&volume, Path::new("d/g"), 4), Ok(None));
        assert!(read_within(&volume, Path::new("d"), 4).is_err(), "a directory");
        let Some(_lease) = Lease::on(&volume.join("d/f")) else { return };
        let error = read_within(&volume, Path::new("d/f"), 5).unwrap_err().to_string();
        assert!(error.ends_with("a process holds a lease on it"), "{error}");
    }

    #[test]
    fn a_part_is_bound_kept_and_exchanged() {
        let (dir, volume) = volume();
        let mounts = dir.path().canonicalize().unwrap().join("mounts");
        fs::create_dir(&mounts).unwrap();
        let Some(_guard) = small_tmpfs(&mounts, 65536) else { return };
        let target = mounts.join("v/c/0");
        make_subpath(&volume, Path::new("a/b")).unwrap();
        fs::write(volume.join("a/b/f"), b"1").unwrap();
        bind_subpath(&volume, Path::new("a/b"), &target).unwrap();
        bind_subpath(&volume, Path::new("a/b"), &target).unwrap();
        assert_eq!(fs::read(target.join("f")).unwrap(), b"1");
        assert_eq!(fs::metadata(target.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o750);
        // The path now names another file, which a restarted container gets.
        fs::rename(volume.join("a/b"), volume.join("old")).unwrap();
        fs::write(volume.join("a/b"), b"a file").unwrap();
        bind_subpath(&volume, Path::new("a/b"), &target).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"a file");
        unmount(&target).unwrap();
        assert!(mounted_at(&target).unwrap().is_none());
    }

    /// A container swaps a directory and a link to the outside as fast as it can.
    #[test]
    fn whoever_swaps_a_directory_for_a_link_gets_nothing_from_outside() {
        let (dir, volume) = volume();
        let mounts = dir.path().canonicalize().unwrap().join("mounts");
        fs::create_dir(&mounts).unwrap();
        let Some(_guard) = small_tmpfs(&mounts, 65536) else { return };
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("sub")).unwrap();
        fs::write(outside.join("sub/secret"), b"secret").unwrap();
        fs::create_dir_all(volume.join("a/sub")).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                let (a, link) = (volume.join("a"), volume.join("link"));
                while !over.load(Ordering::Relaxed) {
                    let cwd = rustix::fs::CWD;
                    rustix::fs::renameat_with(cwd, &a, cwd, &link, exchange).unwrap();
                }
            });
            let target = mounts.join("v/c/0");
            for n in 0..400 {
                if bind_subpath(&volume, Path::new("a/sub"), &target).is_ok() {
                    assert!(!target.join("secret").exists(), "round {n}");
                }
                let _ = unmount(&target);
                let _ = make_subpath(&volume, &Path::new("a").join(format!("new-{n}")));
            }
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing was made outside");
    }
}
