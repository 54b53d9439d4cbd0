//! Opens files below a directory whose contents others may change at any moment, without ever leaving it: by the kernel's
//! `openat2`, and step by step where a kernel before 5.6 or a sandbox does not have that call.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How often a path is opened again: the kernel gives up when another process renames directories along it.
const TRIES_MAX: usize = 32;
/// The most links on the way, the kernel's own limit.
const LINKS_MAX: usize = 40;
/// The most segments of a path with its links.
const SEGMENTS_MAX: usize = 4096;

/// Opens what lies at `path` below `root`, by the rules of `resolve`, of which `BENEATH` always holds. Links are followed as
/// far as they stay below, unless `resolve` forbids that; absolute ones, too, if they name `root` itself on their way. With
/// other flags than `PATH` it has to be a directory.
///
/// # Errors
/// `XDEV` for what leads out (or with `NO_XDEV` to another mount), `LOOP` for too many links, and what `openat` answers.
pub(crate) fn open_beneath(
    root: impl AsFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let (root, resolve) = (root.as_fd(), resolve | ResolveFlags::BENEATH);
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    // Opening a directory waits for no process; a file that was found is opened by `tenant_files::reopen`.
    let flags = if flags.contains(OFlags::PATH) { flags } else { flags | OFlags::DIRECTORY };
    let follows = !resolve.contains(ResolveFlags::NO_SYMLINKS);
    for _ in 0..TRIES_MAX {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return walk(root, path, flags, resolve),
            // The kernel follows no absolute link, wherever it leads.
            Err(Errno::XDEV) if follows => return walk(root, path, flags, resolve),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// The number of the mount on which an open file lies.
pub(crate) fn mount_of(file: impl AsFd) -> Result<u64, Errno> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd()));
    let info = info.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let number = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number.and_then(|number| number.trim().parse().ok()).ok_or(Errno::IO)
}

/// The segments of a path; `None` for an absolute one.
fn segments(path: &Path) -> Option<Vec<OsString>> {
    let of = |part: Component<'_>| match part {
        Component::RootDir | Component::Prefix(_) => None,
        part => Some(part.as_os_str().to_owned()),
    };
    path.components().map(of).collect()
}

/// A way below a directory. Every directory on it is held open, so that nothing that is renamed meanwhile leads elsewhere.
struct Way<'a> {
    root: BorrowedFd<'a>,
    held: Vec<OwnedFd>,
    left: VecDeque<OsString>,
    links: usize,
}

impl Way<'_> {
    fn at(&self) -> BorrowedFd<'_> {
        self.held.last().map_or(self.root, AsFd::as_fd)
    }

    fn lead(&mut self, segments: Vec<OsString>) -> Result<(), Errno> {
        if self.left.len() + segments.len() > SEGMENTS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        segments.into_iter().rev().for_each(|segment| self.left.push_front(segment));
        Ok(())
    }

    /// Goes on where a link leads.
    fn follow(&mut self, link: &OwnedFd) -> Result<(), Errno> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if let Some(relative) = segments(&target) {
            return self.lead(relative);
        }
        // Where the root lies now; a link that names another way there is not followed.
        let root = std::fs::read_link(format!("/proc/self/fd/{}", self.root.as_raw_fd()));
        let root = root.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let below = target.strip_prefix(&root).map_err(|_| Errno::XDEV)?;
        let below = segments(below).ok_or(Errno::XDEV)?;
        self.held.clear();
        self.lead(below)
    }
}

/// The same as the kernel does by [`ResolveFlags::BENEATH`], segment by segment.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags, resolve: ResolveFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mount = resolve.contains(ResolveFlags::NO_XDEV).then(|| mount_of(root)).transpose()?;
    let mut way = Way { root, held: Vec::new(), left: VecDeque::new(), links: 0 };
    way.lead(segments(path).ok_or(Errno::XDEV)?)?;
    while let Some(segment) = way.left.pop_front() {
        if segment == "." {
            continue;
        }
        if segment == ".." {
            way.held.pop().ok_or(Errno::XDEV)?;
            continue;
        }
        let found = rustix::fs::openat(way.at(), segment.as_os_str(), step, Mode::empty())?;
        match FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode) {
            FileType::Symlink if resolve.contains(ResolveFlags::NO_SYMLINKS) => return Err(Errno::LOOP),
            FileType::Symlink => {
                way.follow(&found)?;
                continue;
            }
            FileType::Directory => {}
            _ if way.left.iter().any(|segment| segment != ".") => return Err(Errno::NOTDIR),
            _ => {}
        }
        if let Some(mount) = mount
            && mount_of(&found)? != mount
        {
            return Err(Errno::XDEV);
        }
        way.held.push(found);
    }
    if !flags.contains(OFlags::PATH) {
        return rustix::fs::openat(way.at(), ".", flags - OFlags::NOFOLLOW, Mode::empty());
    }
    match way.held.pop() {
        Some(found) => Ok(found),
        None => rustix::fs::openat(root, ".", step | OFlags::DIRECTORY, Mode::empty()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    /// A directory with files and links, beside one that nothing may reach.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let above = dir.path().canonicalize().unwrap();
        let root = above.join("root");
        fs::create_dir_all(root.join("..data_1/d")).unwrap();
        fs::create_dir_all(above.join("outside")).unwrap();
        fs::write(root.join("..data_1/file"), b"1").unwrap();
        fs::write(above.join("outside/secret"), b"2").unwrap();
        let links: &[(&str, &str)] = &[
            ("..data_1", "..data"),
            ("..data/file", "file"),
            ("../outside", "out"),
            ("..", "up"),
            ("loop", "loop"),
            ("../../file", "..data_1/d/back"),
            ("/proc/self/root", "magic"),
        ];
        for (target, link) in links {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(root.join("..data_1/file"), root.join("absolute")).unwrap();
        symlink(root.join("../outside"), root.join("absolute-out")).unwrap();
        symlink(above.join("outside"), root.join("elsewhere")).unwrap();
        (dir, root)
    }

    fn both(root: &Path, path: &str, resolve: ResolveFlags) -> [Result<u64, Errno>; 2] {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let open = fs::File::open(root).unwrap();
        let inode = |opened: Result<OwnedFd, Errno>| opened.map(|one| rustix::fs::fstat(one).unwrap().st_ino);
        [
            inode(open_beneath(&open, Path::new(path), flags, resolve)),
            inode(walk(open.as_fd(), Path::new(path), flags, resolve)),
        ]
    }

    #[test]
    fn with_and_without_the_kernels_help_the_same_is_found() {
        let (_dir, root) = tree();
        let inode = |path: &str| Ok(fs::metadata(root.join(path)).unwrap().ino());
        let none = ResolveFlags::empty();
        for path in ["file", "./file", "..data/d/back", "absolute", "..data/../file"] {
            assert_eq!(both(&root, path, none), [inode("..data_1/file"); 2], "{path}");
        }
        assert_eq!(both(&root, "", none), [inode("."); 2]);
        assert_eq!(both(&root, "..data/d/..", none), [inode("..data_1"); 2]);
        for (path, errno) in [
            ("out/secret", Errno::XDEV),
            ("up", Errno::XDEV),
            ("..", Errno::XDEV),
            ("../outside", Errno::XDEV),
            ("magic/etc", Errno::XDEV),
            ("absolute-out", Errno::XDEV),
            ("elsewhere/secret", Errno::XDEV),
            ("/etc", Errno::XDEV),
            ("loop", Errno::LOOP),
            ("missing", Errno::NOENT),
            ("file/below", Errno::NOTDIR),
        ] {
            assert_eq!(both(&root, path, none), [Err(errno); 2], "{path}");
        }
    }

    #[test]
    fn links_and_mounts_are_refused_on_demand() {
        let (_dir, root) = tree();
        let inode = |path: &str| Ok(fs::metadata(root.join(path)).unwrap().ino());
        assert_eq!(both(&root, "file", ResolveFlags::NO_SYMLINKS), [Err(Errno::LOOP); 2]);
        assert_eq!(both(&root, "..data_1/file", ResolveFlags::NO_SYMLINKS), [inode("..data_1/file"); 2]);
        let proc = Path::new("/");
        assert_eq!(both(proc, "proc/self", ResolveFlags::NO_XDEV), [Err(Errno::XDEV); 2]);
        let open = fs::File::open(&root).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = walk(open.as_fd(), Path::new("..data_1"), flags, ResolveFlags::NO_XDEV).unwrap();
        assert_eq!(rustix::fs::Dir::read_from(opened).unwrap().count(), 4, "it can be read");
        assert!(walk(open.as_fd(), Path::new("..data_1/file"), flags, ResolveFlags::empty()).is_err());
    }
}
