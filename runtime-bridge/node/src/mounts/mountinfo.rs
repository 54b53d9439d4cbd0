//! Reads `/proc/self/mountinfo`. The crate procfs reads it as well, but keeps the octal escapes in paths and refuses
//! paths that are not UTF-8; an overlooked mount would mean that a volume's files are removed.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec};

/// The most bytes that are read: the kernel allows 100,000 mounts in a namespace (`fs.mount-max`), a line has a few
/// hundred bytes.
const MOUNTINFO_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Further readings of a table that may lack mounts, until two are alike.
const READINGS_MAX: usize = 10;

/// The kernel's mark of a mount point that was removed.
const DELETED: &[u8] = b"//deleted";

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

/// All mounts that this process sees, in the order in which they were made. The text of the kernel's table is kept as it is:
/// every start of a container changes the table, most looks are for one path, and on a full node it has a thousand lines.
#[derive(Debug)]
pub(crate) struct MountTable {
    text: Vec<u8>,
}

impl MountTable {
    /// The table of this text, of which every line can be read.
    fn of(text: Vec<u8>) -> Result<Self, String> {
        for line in lines(&text) {
            Fields::of(line).ok_or_else(|| malformed(line))?;
        }
        Ok(Self { text })
    }

    fn fields(&self) -> impl DoubleEndedIterator<Item = Fields<'_>> {
        lines(&self.text).filter_map(Fields::of)
    }

    /// The visible mount at `path`: the last one that was made there.
    pub(crate) fn at(&self, path: &Path) -> Option<MountPoint> {
        self.fields().rfind(|mount| mount.path() == path).map(|mount| mount.point())
    }

    /// The mounts at or below `path`.
    pub(crate) fn at_or_below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = MountPoint> + 'a {
        self.fields().filter(move |mount| mount.path().starts_with(path)).map(|mount| mount.point())
    }

    /// How many mounts there are.
    pub(crate) fn count(&self) -> usize {
        lines(&self.text).count()
    }

    /// All mounts.
    pub(crate) fn all(&self) -> Vec<MountPoint> {
        self.fields().map(|mount| mount.point()).collect()
    }
}

/// The mounts as they were read last, and the open file that tells when they have changed.
struct Table {
    file: File,
    mounts: Arc<MountTable>,
}

/// The table of this process' mount namespace: each of hundreds of volumes is looked for in it.
static TABLE: Mutex<Option<Table>> = Mutex::new(None);

/// All mounts that this process sees. The kernel's table is read once per change.
pub(crate) fn read() -> io::Result<Arc<MountTable>> {
    let mut known = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    // Without a table the next look reads it anew, also after an error.
    let (mut file, earlier) = match known.take() {
        Some(table) => (table.file, Some(table.mounts)),
        None => (File::open("/proc/self/mountinfo")?, None),
    };
    // The file tells of each change once, so a change during the reading is seen by the next look.
    let has_changed = has_changed(&file)?;
    let mounts = match earlier {
        Some(mounts) if !has_changed => mounts,
        _ => Arc::new(whole(&mut file)?),
    };
    *known = Some(Table { file, mounts: mounts.clone() });
    Ok(mounts)
}

/// Whether the mounts have changed since this was asked last.
fn has_changed(file: &File) -> io::Result<bool> {
    let mut polled = [PollFd::new(file, PollFlags::PRI)];
    rustix::event::poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(!polled[0].revents().is_empty())
}

fn whole(file: &mut File) -> io::Result<MountTable> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut read = || {
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(MOUNTINFO_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MOUNTINFO_BYTES_MAX {
            return Err(io::Error::other("/proc/self/mountinfo is too large"));
        }
        Ok(bytes)
    };
    let bytes = if may_miss_mounts(&release) { read_alike(read)? } else { read()? };
    MountTable::of(bytes).map_err(io::Error::other)
}

/// Whether a kernel of this release may leave mounts out of its table while others come and go: those before 5.10.
fn may_miss_mounts(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < (5, 10),
        _ => false,
    }
}

/// Reads until two readings in a row are the same.
fn read_alike(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut last = read()?;
    for _ in 0..READINGS_MAX {
        let next = read()?;
        if next == last {
            return Ok(next);
        }
        last = next;
    }
    Err(io::Error::other("/proc/self/mountinfo changes with each reading"))
}

/// Parses the lines of a mountinfo file. A malformed line is an error, since skipping it would hide a mount.
///
/// # Errors
/// The first line that is malformed.
pub fn parse(text: &[u8]) -> Result<Vec<MountPoint>, String> {
    lines(text).map(|line| Fields::of(line).map(|line| line.point()).ok_or_else(|| malformed(line))).collect()
}

fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split(|b| *b == b'\n').filter(|line| !line.is_empty())
}

fn malformed(line: &[u8]) -> String {
    format!("mountinfo: {:?}", String::from_utf8_lossy(line))
}

/// The fields of a line, as they are written.
struct Fields<'a> {
    device: (u32, u32),
    root: &'a [u8],
    path: &'a [u8],
    options: &'a [u8],
    fs_type: &'a [u8],
    source: &'a [u8],
    fs_options: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads a line such as `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`, with any
    /// number of optional fields before the dash (proc(5)).
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ');
        let (_id, _parent) = (fields.next()?, fields.next()?);
        let (major, minor) = std::str::from_utf8(fields.next()?).ok()?.split_once(':')?;
        let (root, path, options) = (fields.next()?, fields.next()?, fields.next()?);
        fields.find(|field| *field == b"-")?;
        Some(Self {
            device: (major.parse().ok()?, minor.parse().ok()?),
            root,
            path,
            options,
            fs_type: fields.next()?,
            source: fields.next()?,
            fs_options: fields.next().unwrap_or_default(),
        })
    }

    /// The mount point; most are written as they are.
    fn path(&self) -> Cow<'a, Path> {
        if self.path.contains(&b'\\') || self.path.ends_with(DELETED) {
            return Cow::Owned(path(self.path));
        }
        Cow::Borrowed(Path::new(OsStr::from_bytes(self.path)))
    }

    fn point(&self) -> MountPoint {
        let words = |field: &[u8]| options(&text(field));
        MountPoint {
            path: path(self.path),
            root: path(self.root),
            fs_type: text(self.fs_type),
            source: text(self.source),
            options: words(self.options),
            device: self.device,
            fs_options: words(self.fs_options),
        }
    }
}

/// The options of a list; a comma in quotes, such as in an SELinux context with two categories, is a part of its option.
fn options(list: &str) -> Vec<String> {
    let mut is_quoted = false;
    let is_end = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    list.split(is_end).map(str::to_owned).collect()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

fn path(field: &[u8]) -> PathBuf {
    let mut bytes = unescape(field);
    if let Some(alive) = bytes.strip_suffix(DELETED) {
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
    use super::*;

    #[test]
    fn where_the_kernel_may_miss_mounts_two_readings_are_alike() {
        for (release, may) in
            [("4.18.0-553.el8", true), ("5.9.16", true), ("5.10.0-8", false), ("6.1", false), ("odd", false)]
        {
            assert_eq!(may_miss_mounts(release), may, "{release}");
        }
        let mut texts = ["ab", "b", "b", "c"].into_iter();
        let read = || Ok(texts.next().unwrap().as_bytes().to_vec());
        assert_eq!(read_alike(read).unwrap(), b"b");
        let mut number = 0_u8;
        let restless = || {
            number += 1;
            Ok(vec![number])
        };
        assert!(read_alike(restless).is_err());
    }

    #[test]
    fn the_table_is_read_once_per_change_and_no_change_is_missed() {
        // Tests beside this one mount, too.
        let reads_once = || Arc::ptr_eq(&read().unwrap(), &read().unwrap());
        assert!((0..1000).any(|_| reads_once()));
        let dir = tempfile::tempdir().unwrap();
        let is_there = || read().unwrap().at(dir.path()).is_some();
        for _ in 0..3 {
            assert!(!is_there());
            let Some(guard) = crate::mounts::tests::small_tmpfs(dir.path(), 4096) else { return };
            assert!(is_there());
            drop(guard);
        }
    }

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
        let table = MountTable::of(text.to_vec()).unwrap();
        assert_eq!(table.all(), mounts);
        assert_eq!(table.at_or_below(Path::new("/mnt")).collect::<Vec<_>>(), mounts[1..]);
        assert_eq!(table.at_or_below(Path::new("/mn")).count(), 0, "whole segments only");
        for mount in &mounts {
            assert_eq!(table.at(&mount.path).as_ref(), Some(mount));
        }
        assert_eq!(table.at(Path::new("/mnt")), None);
    }

    #[test]
    fn a_comma_in_a_quoted_context_ends_no_option() {
        let text =
            b"36 35 8:16 / /mnt rw,relatime - ext4 /dev/sdb rw,context=\"u:object_r:t:s0:c1,c2\",stripe=4\n";
        let mounts = parse(text).unwrap();
        assert_eq!(mounts[0].fs_options, ["rw", "context=\"u:object_r:t:s0:c1,c2\"", "stripe=4"]);
        assert_eq!(options(""), [""]);
        assert_eq!(options("a,\"b,c"), ["a", "\"b,c"], "a quote that does not end");
    }

    #[test]
    fn the_last_of_mounts_at_one_path_is_the_visible_one() {
        let text = b"36 35 98:0 / /mnt rw - ext4 /dev/vda rw\n37 36 0:50 / /mnt rw - tmpfs tmpfs rw\n";
        let table = MountTable::of(text.to_vec()).unwrap();
        assert_eq!(table.at(Path::new("/mnt")).map(|mount| mount.fs_type).as_deref(), Some("tmpfs"));
        assert_eq!(table.at(Path::new("/mnt/")).map(|mount| mount.fs_type).as_deref(), Some("tmpfs"));
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
            assert!(MountTable::of(line.as_bytes().to_vec()).is_err(), "{line}");
        }
    }

    #[test]
    fn reads_this_machine() {
        let mounts = read().unwrap();
        assert!(mounts.all().iter().any(|mount| mount.path == Path::new("/proc") && mount.fs_type == "proc"));
    }
}
