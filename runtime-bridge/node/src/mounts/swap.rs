//! Whether what is kept in memory stays there (KEP-2400): pages of a tmpfs are swapped out like any others, unless it
//! is mounted with `noswap`, which not every kernel knows.

use std::fs;

use rustix::mount::{FsOpenFlags, fsconfig_create, fsconfig_set_flag, fsopen};

/// Since this version of Linux the option is there for certain.
const NOSWAP_SINCE: (u32, u32) = (6, 4);
/// The option.
pub(super) const NOSWAP: &str = "noswap";

/// Whether volumes in memory may come to lie on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SwapFacts {
    /// The machine swaps.
    pub on: bool,
    /// A tmpfs can be kept out of it, and is.
    pub noswap: bool,
}

/// As it is now. A machine without the file swaps nothing.
pub(super) fn is_on() -> bool {
    is_on_by(&fs::read_to_string("/proc/swaps").unwrap_or_default())
}

/// The first line is the table's head.
fn is_on_by(swaps: &str) -> bool {
    swaps.trim().lines().count() > 1
}

/// Whether this process may mount a tmpfs with `noswap`. A user namespace of its own forbids it; otherwise the kernel's
/// version decides, and where that is too old the kernel is asked: distributions bring features back to old ones.
pub(super) fn noswap_is_there() -> bool {
    if in_user_namespace(&fs::read_to_string("/proc/self/uid_map").unwrap_or_default()) {
        return false;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    version(&release).is_some_and(|version| version >= NOSWAP_SINCE) || kernel_takes_it()
}

/// Outside of any, all IDs mean themselves.
fn in_user_namespace(uid_map: &str) -> bool {
    let mut lines = uid_map.lines().filter(|line| !line.trim().is_empty());
    let (first, second) = (lines.next(), lines.next());
    // A kernel without user namespaces has no such file.
    let Some(first) = first else { return false };
    second.is_some() || !first.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Major and minor of `6.8.0-45-generic`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Has the kernel make a tmpfs with the option, which is mounted nowhere and goes at once.
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
