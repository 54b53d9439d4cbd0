//! Whether the content of a tmpfs stays in memory (KEP-2400): its pages are swapped out like any others, unless it is
//! mounted with `noswap`, which not every kernel has.

use std::fs;

use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_flag, fsopen};

/// The version of Linux since which the option certainly exists.
const NOSWAP_SINCE: (u32, u32) = (6, 4);
/// The mount option.
pub(super) const NOSWAP: &str = "noswap";

/// Whether the content of volumes in memory may be written to a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapFacts {
    /// The machine swaps.
    pub on: bool,
    /// A tmpfs is mounted with `noswap`, since the kernel has the option.
    pub noswap: bool,
}

/// Whether the machine swaps now. A machine without the file does not.
pub(super) fn is_on() -> bool {
    is_on_by(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

/// Whether there are lines after the table's heading.
fn is_on_by(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

/// Whether this process may mount a tmpfs with `noswap`. It may not within a user namespace. Otherwise the kernel's
/// version decides; an older kernel is asked, since distributions port features back.
pub(super) fn noswap_is_there() -> bool {
    if in_user_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default()) {
        return false;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    version(&release).is_some_and(|version| version >= NOSWAP_SINCE) || kernel_takes_it()
}

/// Whether this process is in a user namespace: outside of any, all IDs map to themselves.
fn in_user_namespace(uid_map: &str) -> bool {
    let mut lines = uid_map.lines().filter(|line| !line.trim().is_empty());
    let (first, second) = (lines.next(), lines.next());
    // A kernel without user namespaces does not have the file.
    let Some(first) = first else { return false };
    second.is_some() || !first.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Major and minor version of a release such as `6.8.0-45-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether the kernel accepts the option for a tmpfs, which is not mounted and is discarded at once.
fn kernel_takes_it() -> bool {
    let Ok(context) = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC) else { return false };
    fsconfig_set_flag(&context, NOSWAP).and_then(|()| fsconfig_create(&context)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernels_files_say() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert!(!is_on_by(head) && !is_on_by(""));
        assert!(is_on_by(&format!("{head}/dev/vda2   partition\t1048572\t0\t-2\n")));
        assert!(!in_user_namespace("         0          0 4294967295\n") && !in_user_namespace(""));
        assert!(in_user_namespace("         0       1000          1\n"));
        assert!(in_user_namespace("0 0 4294967294\n4294967294 5 1\n"));
        assert_eq!(version("6.8.0-45-generic"), Some((6, 8)));
        assert_eq!(version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(version("6.4"), Some(NOSWAP_SINCE));
        assert_eq!(version("unknown"), None);
    }

    #[test]
    fn a_kernel_that_has_it_takes_it() {
        if !rustix::process::geteuid().is_root() || !noswap_is_there() {
            eprintln!("skipped: root and Linux 6.4 are needed");
            return;
        }
        assert!(kernel_takes_it());
    }
}
