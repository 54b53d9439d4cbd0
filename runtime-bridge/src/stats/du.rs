//! How much lies in a directory that a pod fills: links are not followed, other file systems not entered, and the work
//! is bounded.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};

use super::DiskUsage;

/// Bytes in a block, whatever the file system's own are.
const BLOCK_BYTES: u64 = 512;

/// How much work is left for one measurement of all pods.
#[derive(Debug)]
pub(super) struct Budget {
    entries: usize,
    until: Instant,
}

impl Budget {
    /// For so many names, and so long.
    pub(super) fn new(entries: usize, time: Duration) -> Self {
        Self { entries, until: Instant::now() + time }
    }

    fn take(&mut self) -> bool {
        let left = self.entries > 0 && Instant::now() < self.until;
        self.entries = self.entries.saturating_sub(1);
        left
    }
}

#[derive(Default)]
struct Count {
    usage: DiskUsage,
    /// Those with several names: each counts once.
    linked: BTreeSet<(u64, u64)>,
}

impl Count {
    fn add(&mut self, stat: &Stat) {
        let is_dir = FileType::from_raw_mode(stat.st_mode).is_dir();
        if !is_dir && stat.st_nlink > 1 && !self.linked.insert((stat.st_dev, stat.st_ino)) {
            return;
        }
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK_BYTES));
        self.usage.inodes += 1;
    }
}

/// A directory with all below it; `None` without it.
pub(super) fn tree(root: &Path, budget: &mut Budget) -> Option<DiskUsage> {
    let top = open(CWD, root, ResolveFlags::empty())?;
    let mut count = Count::default();
    count.add(&rustix::fs::fstat(&top).ok()?);
    let mut left = vec![PathBuf::new()];
    while let Some(dir) = left.pop() {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = match dir.as_os_str().is_empty() {
            true => open(&top, Path::new("."), within),
            false => open(&top, &dir, within),
        };
        // What is gone meanwhile, or is another file system, does not count.
        let Some(opened) = opened else { continue };
        let whole = each(&opened, budget, |name, stat| {
            count.add(stat);
            if FileType::from_raw_mode(stat.st_mode).is_dir()
                && let Ok(name) = name.to_str()
            {
                left.push(dir.join(name));
            }
        });
        if !whole {
            break;
        }
    }
    Some(count.usage)
}

/// The files that lie in a directory itself; `None` without it.
pub(super) fn files(dir: &Path, budget: &mut Budget) -> Option<DiskUsage> {
    let opened = open(CWD, dir, ResolveFlags::empty())?;
    let mut count = Count::default();
    each(&opened, budget, |_, stat| {
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            count.add(stat);
        }
    });
    Some(count.usage)
}

fn open(at: impl std::os::fd::AsFd, path: &Path, resolve: ResolveFlags) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve).ok()
}

/// Whether all could be looked at within the budget.
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
    }
}
