//! Figures from the kernel's files.

use std::path::Path;

use super::{DiskUsage, FileSystemRoom, Room};
use crate::du::{self, Budget};
use crate::host::Layout;
use crate::tenant_files;

/// A limit of this many bytes or more means unbounded, as upstream.
const UNLIMITED: u64 = 1 << 62;

/// Why a figure cannot be read.
pub(super) type Problem = String;

/// What a pod's containers have filled below the pod's directory beside its volumes; `root` is the kubelet's root directory.
pub(super) fn filled_by_containers(root: &Path, uid: &str, budget: &mut Budget) -> DiskUsage {
    let places = Layout::filled_by_containers(root, uid).into_iter().flatten();
    places.filter_map(|path| du::all(&path, budget)).fold(DiskUsage::default(), DiskUsage::plus)
}

pub(super) fn text(path: &Path) -> Result<String, Problem> {
    tenant_files::kernel_text(path).map_err(|error| format!("read {}: {error}", path.display()))
}

pub(super) fn number(path: &Path) -> Result<u64, Problem> {
    let text = text(path)?;
    text.trim().parse().map_err(|_| format!("{}: {:?} is no number", path.display(), text.trim()))
}

/// The number after `key`, in lines of a key and a number each.
pub(super) fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().filter_map(pair).find_map(|(name, value)| (name == key).then_some(value))
}

/// A line of a key and a number.
pub(super) fn pair(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(char::is_whitespace)?;
    Some((key, value.trim().trim_end_matches(" kB").parse().ok()?))
}

/// The memory limit of a cgroup, bytes; `None` if it has none.
pub(super) fn limit(file: &Path) -> Result<Option<u64>, Problem> {
    let text = text(file)?;
    match text.trim() {
        "max" => Ok(None),
        number => {
            let bytes: u64 =
                number.parse().map_err(|_| format!("{}: {number:?} is no number", file.display()))?;
            Ok(Some(bytes).filter(|bytes| *bytes < UNLIMITED))
        }
    }
}

/// Processes and threads: the smaller one of the kernel's two limits, and their number.
pub(super) fn pids(proc: &Path) -> Result<Room, Problem> {
    let bounds = ["sys/kernel/pid_max", "sys/kernel/threads-max"];
    let bound = bounds.iter().filter_map(|file| number(&proc.join(file)).ok()).min();
    let capacity = bound.ok_or("neither pid_max nor threads-max can be read")?;
    let loadavg = text(&proc.join("loadavg"))?;
    let all = loadavg.split_whitespace().nth(3).and_then(|tasks| tasks.split_once('/')?.1.parse().ok());
    let all: i64 = all.ok_or_else(|| format!("loadavg: {:?} tells of no tasks", loadavg.trim()))?;
    let available = i64::try_from(capacity).unwrap_or(i64::MAX).saturating_sub(all);
    Ok(Room { available, capacity })
}

/// The size and free space of the file system that `path` is on.
pub(super) fn file_system(path: &Path) -> Result<FileSystemRoom, Problem> {
    let failed = |error: rustix::io::Errno| format!("{}: {}", path.display(), std::io::Error::from(error));
    let told = rustix::fs::statvfs(path).map_err(failed)?;
    let device = rustix::fs::stat(path).map_err(failed)?.st_dev;
    let room = |available: u64, capacity: u64| Room {
        available: i64::try_from(available).unwrap_or(i64::MAX),
        capacity,
    };
    Ok(FileSystemRoom {
        device,
        bytes: room(told.f_bavail.saturating_mul(told.f_frsize), told.f_blocks.saturating_mul(told.f_frsize)),
        inodes: (told.f_files > 0).then(|| room(told.f_ffree, told.f_files)),
    })
}
