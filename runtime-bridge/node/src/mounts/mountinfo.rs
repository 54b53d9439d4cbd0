//! Reads `/proc/self/mountinfo`. The crate procfs reads it as well, but keeps the octal escapes in paths and refuses
//! paths that are not UTF-8; an overlooked mount would mean that a volume's files are removed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The most bytes that are read: the kernel allows 100,000 mounts in a namespace (`fs.mount-max`), a line has a few
/// hundred bytes.
const MOUNTINFO_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// One mount: a line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountPoint {
    /// The mount point.
    pub path: PathBuf,
    /// The directory of the file system that is mounted there; `/` unless it is a bind mount.
    pub root: PathBuf,
    /// The type of the file system, for instance `tmpfs`.
    pub fs_type: String,
    /// The mounted source: a device, `tmpfs`, an NFS export.
    pub source: String,
    /// The options of this mount, for instance `ro`, `nosuid`.
    pub options: Vec<String>,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The options of the file system itself, for instance the controllers of a cgroup hierarchy.
    pub fs_options: Vec<String>,
}

impl MountPoint {
    /// Whether this mount is read-only.
    pub fn read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

/// All mounts that this process sees, in the order in which they were made.
pub(crate) fn read() -> std::io::Result<Vec<MountPoint>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::fs::File::open("/proc/self/mountinfo")?.take(MOUNTINFO_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOUNTINFO_BYTES_MAX {
        return Err(std::io::Error::other("/proc/self/mountinfo is too large"));
    }
    parse(&bytes).map_err(std::io::Error::other)
}

/// The mounts at or below `path`.
pub(crate) fn at_or_below<'a>(
    mounts: &'a [MountPoint],
    path: &'a Path,
) -> impl Iterator<Item = &'a MountPoint> + 'a {
    mounts.iter().filter(move |mount| mount.path.starts_with(path))
}

/// Parses the lines of a mountinfo file. A malformed line is an error, since skipping it would hide a mount.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<MountPoint>, String> {
    text.split(|b| *b == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| parse_line(line).ok_or_else(|| format!("mountinfo: {:?}", String::from_utf8_lossy(line))))
        .collect()
}

/// Parses a line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`, with any
/// number of optional fields before the dash (proc(5)).
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|b| *b == b' ');
    let (_id, _parent) = (fields.next()?, fields.next()?);
    let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
    let root = path(fields.next()?);
    let mounted_at = path(fields.next()?);
    let options = text(fields.next()?).split(',').map(str::to_owned).collect();
    fields.find(|field| *field == b"-")?;
    Some(MountPoint {
        path: mounted_at,
        root,
        fs_type: text(fields.next()?),
        source: text(fields.next()?),
        options,
        device: (major.parse().ok()?, minor.parse().ok()?),
        fs_options: fields.next().map(text).unwrap_or_default().split(',').map(str::to_owned).collect(),
    })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    let mut bytes = unescape(field);
    // The kernel's mark of a mount point that was removed.
    if let Some(alive) = bytes.strip_suffix(b"//deleted") {
        bytes = alive.to_vec();
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Replaces the octal escapes of space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| matches!(d, b'0'..=b'7')));
        if let Some(digits) = octal {
            let value = digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            plain.push((value & 0xff) as u8);
            rest = &after[3..];
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn reads_optional_fields_escapes_and_bytes() {
        let text = b"36 35 98:0 / / rw,noatime - ext4 /dev/vda rw\n\
            40 36 0:50 /sub\\040dir /mnt/a\\040b\\134c ro,nosuid shared:1 master:2 - tmpfs tm\\011pfs rw,size=1k\n\
            41 36 0:51 / /mnt/\xff rw - nfs4 host:/export rw\n\
            42 36 0:52 / /mnt/gone//deleted rw - tmpfs tmpfs rw\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[0].path, Path::new("/"));
        assert_eq!(mounts[1].path, Path::new("/mnt/a b\\c"));
        assert_eq!(mounts[1].root, Path::new("/sub dir"));
        assert_eq!(mounts[1].source, "tm\tpfs");
        assert_eq!(mounts[1].device, (0, 50));
        assert_eq!(mounts[1].fs_options, ["rw", "size=1k"]);
        assert!(mounts[1].read_only() && !mounts[0].read_only());
        assert_eq!(mounts[2].path.as_os_str().as_bytes(), b"/mnt/\xff");
        assert_eq!(mounts[3].path, Path::new("/mnt/gone"));
        assert_eq!(at_or_below(&mounts, Path::new("/mnt")).count(), 3);
        assert_eq!(at_or_below(&mounts, Path::new("/mn")).count(), 0, "whole segments only");
    }

    #[test]
    fn a_line_it_cannot_read_is_an_error() {
        for line in [
            "36 35 98:0 / /",
            "36 35 98:0 / / rw shared:1",
            "36 35 x:0 / / rw - ext4 /dev/vda rw",
            "36 35 98:0 / / rw - ext4",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn reads_this_machine() {
        let mounts = read().unwrap();
        assert!(mounts.iter().any(|mount| mount.path == Path::new("/proc") && mount.fs_type == "proc"));
    }
}
