//! Measures a directory that a pod fills: links are not followed, other file systems are not entered, and the work is
//! bounded.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use crate::beneath::open_beneath;

/// The disk usage of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files and directories; one with several names counts once.
    pub inodes: u64,
}

impl DiskUsage {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }
}

/// How directories are opened.
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Bytes per block of `st_blocks`, independent of the file system's block size.
const BLOCK_BYTES: u64 = 512;
/// The longest relative path from an open directory; a deeper directory is opened itself, since the kernel accepts no
/// path of more than 4096 bytes.
const WAY_BYTES_MAX: usize = 2048;
/// The most directories that are open at once for this reason. Deeper ones are not counted.
const OPEN_MAX: usize = 128;
/// The most bytes of names of directories that wait. Further directories are not counted.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// The most files with several names that are remembered, so that each counts once. Further ones count once per name.
const LINKED_MAX: usize = 500_000;
/// The bytes that a waiting name takes besides the name itself.
const WAITING_BYTES: usize = 64;

/// The work that is left for one measurement of a pod.
#[derive(Debug)]
pub(crate) struct Budget {
    entries: usize,
    until: Instant,
    exceeded: bool,
}

impl Budget {
    /// A budget of this many names and this much time.
    pub(crate) fn new(entries: usize, time: Duration) -> Self {
        Self { entries, until: Instant::now() + time, exceeded: false }
    }

    /// A budget of this much time and any number of names.
    pub(crate) fn of_time(time: Duration) -> Self {
        Self::new(usize::MAX, time)
    }

    /// Whether a file was skipped, so that there may be more than was counted.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.exceeded
    }

    /// Whether all names are used up, even if time is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn take(&mut self) -> bool {
        let left = self.entries > 0 && Instant::now() < self.until;
        self.entries = self.entries.saturating_sub(1);
        self.exceeded |= !left;
        left
    }
}

#[derive(Default)]
struct Count {
    usage: DiskUsage,
    /// Files with several names, by device and inode: each counts once.
    linked: BTreeSet<(u64, u64)>,
}

impl Count {
    fn add(&mut self, stat: &Stat) {
        self.add_with(stat, LINKED_MAX);
    }

    fn add_with(&mut self, stat: &Stat, linked_max: usize) {
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        if !is_dir && stat.st_nlink > 1 {
            let file = (stat.st_dev, stat.st_ino);
            if self.linked.contains(&file) {
                return;
            }
            if self.linked.len() < linked_max {
                self.linked.insert(file);
            }
        }
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
        self.usage.inodes += 1;
    }
}

/// A directory to read: an open directory above it, or itself, and the relative path from there.
struct Place {
    open: Rc<OwnedFd>,
    /// The number of directories opened on the way here.
    opened: usize,
    way: PathBuf,
}

/// The directories that wait to be read, the deepest first.
#[derive(Default)]
struct Waiting {
    names: Vec<(Rc<Place>, CString)>,
    bytes: usize,
}

impl Waiting {
    /// Adds a directory; returns whether there was room for it.
    fn put(&mut self, parent: &Rc<Place>, name: &CStr) -> bool {
        let bytes = name.to_bytes().len() + WAITING_BYTES;
        if self.bytes + bytes > WAITING_BYTES_MAX {
            return false;
        }
        self.bytes += bytes;
        self.names.push((parent.clone(), name.to_owned()));
        true
    }

    fn take(&mut self) -> Option<(Rc<Place>, CString)> {
        let (parent, name) = self.names.pop()?;
        self.bytes -= name.to_bytes().len() + WAITING_BYTES;
        Some((parent, name))
    }
}

/// Measures a directory with everything below it; `None` if it does not exist.
pub(crate) fn tree(root: &Path, budget: &mut Budget) -> Option<DiskUsage> {
    let top = open(root)?;
    let mut count = Count::default();
    count.add(&rustix::fs::fstat(&top).ok()?);
    let place = Rc::new(Place { open: Rc::new(top), opened: 1, way: PathBuf::new() });
    let mut waiting = Waiting::default();
    let mut next = enter(&place.open, Path::new(".")).map(|dir| (place, dir));
    loop {
        if let Some((place, dir)) = next.take()
            && !content(&place, &dir, &mut count, &mut waiting, budget)
        {
            break;
        }
        let Some((parent, name)) = waiting.take() else { break };
        let way = parent.way.join(OsStr::from_bytes(name.to_bytes()));
        // A directory that is gone meanwhile, or on another file system, does not count.
        let Some(dir) = enter(&parent.open, &way) else { continue };
        if way.as_os_str().len() <= WAY_BYTES_MAX {
            let place = Place { open: parent.open.clone(), opened: parent.opened, way };
            next = Some((Rc::new(place), dir));
        } else if parent.opened < OPEN_MAX
            && let Ok(kept) = dir.try_clone()
        {
            let place = Place { open: Rc::new(kept), opened: parent.opened + 1, way: PathBuf::new() };
            next = Some((Rc::new(place), dir));
        } else {
            budget.exceeded = true;
        }
    }
    Some(count.usage)
}

/// Counts the files in a directory and adds its directories to the waiting ones; returns whether the budget sufficed.
fn content(
    place: &Rc<Place>,
    dir: &OwnedFd,
    count: &mut Count,
    waiting: &mut Waiting,
    budget: &mut Budget,
) -> bool {
    let mut left_out = false;
    let whole = each(dir, budget, |name, stat| {
        count.add(stat);
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            left_out |= !waiting.put(place, name);
        }
    });
    budget.exceeded |= left_out;
    whole
}

fn enter(at: &OwnedFd, way: &Path) -> Option<OwnedFd> {
    open_beneath(at, way, DIRECTORY, ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV).ok()
}

/// Measures a file, or a directory with everything below it; `None` if it does not exist.
pub(crate) fn all(path: &Path, budget: &mut Budget) -> Option<DiskUsage> {
    let stat = rustix::fs::lstat(path).ok()?;
    if FileType::from_raw_mode(stat.st_mode).is_dir() {
        return tree(path, budget);
    }
    let mut count = Count::default();
    count.add(&stat);
    Some(count.usage)
}

/// Measures the files directly in a directory; `None` if it does not exist.
pub(crate) fn files(dir: &Path, budget: &mut Budget) -> Option<DiskUsage> {
    let opened = open(dir)?;
    let mut count = Count::default();
    each(&opened, budget, |_, stat| {
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            count.add(stat);
        }
    });
    Some(count.usage)
}

fn open(path: &Path) -> Option<OwnedFd> {
    rustix::fs::open(path, DIRECTORY, Mode::empty()).ok()
}

/// Calls `seen` for each entry; returns whether the budget sufficed for all.
fn each(dir: &OwnedFd, budget: &mut Budget, mut seen: impl FnMut(&CStr, &Stat)) -> bool {
    let Ok(entries) = Dir::read_from(dir) else { return true };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if !budget.take() {
            return false;
        }
        if let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            seen(name, &stat);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn ample() -> Budget {
        Budget::new(1000, Duration::from_secs(600))
    }

    #[test]
    fn everything_counts_once_and_links_lead_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::hard_link(root.join("a/b/file"), root.join("again")).unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("big"), vec![1; 1_000_000]).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        let found = tree(&root, &mut ample()).unwrap();
        assert_eq!(found.inodes, 5, "three directories, a file with two names, a link");
        assert!((100_000..200_000).contains(&found.bytes), "{found:?}");
        let flat = files(&root, &mut ample()).unwrap();
        assert_eq!(flat.inodes, 2, "the file and the link");
        assert_eq!(tree(&dir.path().join("none"), &mut ample()), None);
        assert_eq!(tree(&root.join("link"), &mut ample()), None, "a link is no directory");
        assert_eq!(all(&root, &mut ample()), Some(found));
        let (file, link) = (all(&root.join("again"), &mut ample()), all(&root.join("link"), &mut ample()));
        assert!(file.is_some_and(|file| file.inodes == 1 && file.bytes >= 100_000), "{file:?}");
        assert!(link.is_some_and(|link| link.inodes == 1 && link.bytes < 100_000), "{link:?}");
        assert_eq!(all(&root.join("none"), &mut ample()), None);
    }

    #[test]
    fn nothing_hides_in_the_depth_or_behind_a_name_that_is_no_text() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = open(dir.path()).unwrap();
        let deep = "d".repeat(250);
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, deep.as_str(), Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&at, c"\xff\xfe", Mode::RWXU).unwrap();
            at = enter(&at, Path::new(&deep)).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::openat(&at, "hidden", flags, Mode::RWXU).unwrap();
        rustix::io::write(&file, &[1; 300_000]).unwrap();
        let odd = rustix::fs::openat(&at, c"\xff", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
        rustix::io::write(&odd, &[1; 300_000]).unwrap();
        let mut budget = ample();
        let found = tree(dir.path(), &mut budget).unwrap();
        assert_eq!((found.inodes, budget.is_exceeded()), (83, false));
        assert!(found.bytes >= 600_000, "{found:?}");
        drop(at);
        crate::host::remove_tree::remove_tree(dir.path()).unwrap();
    }

    #[test]
    fn many_names_of_one_file_hide_nothing_in_a_directory_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        fs::create_dir_all(root.join("below")).unwrap();
        fs::write(root.join("below/big"), vec![1; 1_000_000]).unwrap();
        fs::write(root.join("0"), "x").unwrap();
        for number in 1..100 {
            fs::hard_link(root.join("0"), root.join(number.to_string())).unwrap();
        }
        let mut few = Budget::new(50, Duration::from_secs(600));
        assert!(tree(&root, &mut few).unwrap().bytes < 1_000_000 && few.is_exceeded());
        let mut timed = Budget::of_time(Duration::from_secs(600));
        let found = tree(&root, &mut timed).unwrap();
        assert_eq!((found.inodes, timed.is_exceeded()), (4, false));
        assert!(found.bytes >= 1_000_000, "{found:?}");
    }

    #[test]
    fn files_with_several_names_are_remembered_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let mut count = Count::default();
        for file in ["a", "b", "c"] {
            let (one, other) = (dir.path().join(file), dir.path().join(format!("{file}2")));
            fs::write(&one, "x").unwrap();
            fs::hard_link(&one, &other).unwrap();
            for name in [one, other] {
                count.add_with(&rustix::fs::stat(&name).unwrap(), 2);
            }
        }
        assert_eq!((count.usage.inodes, count.linked.len()), (4, 2), "both names of the third count");
    }

    #[test]
    fn the_work_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(dir.path().join(number.to_string()), "x").unwrap();
        }
        let mut budget = Budget::new(30, Duration::from_secs(600));
        assert_eq!(tree(dir.path(), &mut budget).unwrap().inodes, 31);
        assert_eq!(files(dir.path(), &mut budget), Some(DiskUsage::default()), "nothing is left");
        let mut late = Budget::new(1000, Duration::ZERO);
        assert_eq!(tree(dir.path(), &mut late).unwrap().inodes, 1);
        assert!(budget.is_exceeded() && late.is_exceeded());
    }
}
