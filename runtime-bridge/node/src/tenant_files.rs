//! Opens files that a pod can reach: of its volumes, its logs, its termination messages, its cgroups. A container may put a
//! FIFO, a device or a link in the place of such a file, or hold a lease on it (`F_SETLEASE`), for which an ordinary open
//! waits for 45 s. So none of these opens waits: each is refused with its reason, and the actor that asked tries again as after
//! any other failure. What no pod can reach is opened in other modules; the crate `architecture` lists these with a reason each.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// How every file is opened: an open never waits for a lease to end, or for the other end of a FIFO.
const AT_ONCE: OFlags = OFlags::NONBLOCK.union(OFlags::CLOEXEC);
/// To find what lies at a name, without opening it.
const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// To make a file where nothing is.
const MADE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(AT_ONCE);
/// How often a file is made or found, while a container makes and removes it.
const TRIES_MAX: usize = 8;
/// The most bytes of a file of the kernel. The longest one lists processes: the kernel has at most 4,194,304, with 8 bytes each.
const KERNEL_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why a file was not opened, beside what the operating system refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("it is no regular file")]
    NoRegularFile,
    #[error("a process holds a lease on it")]
    Leased,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        let kind = match refused {
            Refused::NoRegularFile => io::ErrorKind::InvalidInput,
            Refused::Leased => io::ErrorKind::WouldBlock,
        };
        Self::new(kind, refused)
    }
}

fn refusal(error: &io::Error) -> Option<Refused> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()).copied()
}

/// Whether a file was refused for its kind: a FIFO, a device, a directory. Of links the error is `ELOOP`.
pub(crate) fn is_no_regular_file(error: &io::Error) -> bool {
    refusal(error) == Some(Refused::NoRegularFile)
}

/// Whether a file was refused for the lease that a process holds on it.
pub(crate) fn is_leased(error: &io::Error) -> bool {
    refusal(error) == Some(Refused::Leased)
}

/// The error of an open with [`AT_ONCE`], which the kernel answers with `EAGAIN` for a lease alone.
fn said(errno: Errno) -> io::Error {
    if errno == Errno::AGAIN { Refused::Leased.into() } else { errno.into() }
}

/// Opens a regular file to read it. A link is not followed.
///
/// # Errors
/// That it is no regular file ([`is_no_regular_file`]), that it is leased ([`is_leased`]), and the operating system's.
pub(crate) fn read(path: &Path) -> io::Result<File> {
    read_at(CWD, path)
}

/// The same as [`read`], of a name in a directory.
pub(crate) fn read_at(dir: impl AsFd, name: impl Arg) -> io::Result<File> {
    reopen(&rustix::fs::openat(dir, name, FOUND, Mode::empty())?)
}

/// The same as [`read`], of what a link leads to.
pub(crate) fn read_followed(path: &Path) -> io::Result<File> {
    reopen(&rustix::fs::openat(CWD, path, FOUND - OFlags::NOFOLLOW, Mode::empty())?)
}

/// The same as [`read`], of what was found before with the flag `PATH`, whatever has its name by now.
pub(crate) fn reopen(found: &OwnedFd) -> io::Result<File> {
    reopened(found, OFlags::RDONLY)
}

fn reopened(found: &OwnedFd, access: OFlags) -> io::Result<File> {
    // Opening a FIFO or a device could have effects, even if it does not wait.
    match FileType::from_raw_mode(rustix::fs::fstat(found)?.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP.into()),
        _ => return Err(Refused::NoRegularFile.into()),
    }
    let through = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened = rustix::fs::open(through.as_str(), access | AT_ONCE, Mode::empty());
    opened.map(File::from).map_err(said)
}

/// Opens a regular file to write it, as it is; makes it with this mode, less the umask, where nothing is. A link is not followed.
///
/// # Errors
/// As [`read`].
pub(crate) fn write(path: &Path, mode: u32) -> io::Result<File> {
    for _ in 0..TRIES_MAX {
        match make_at(CWD, path, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        match rustix::fs::openat(CWD, path, FOUND, Mode::empty()) {
            Err(Errno::NOENT) => {}
            found => return reopened(&found?, OFlags::WRONLY),
        }
    }
    Err(io::Error::other("it comes and goes"))
}

/// Makes a file with this mode, less the umask, in a directory where nothing has its name, to write it.
///
/// # Errors
/// The operating system's, `EEXIST` among them.
pub(crate) fn make_at(dir: impl AsFd, name: impl Arg, mode: u32) -> io::Result<File> {
    rustix::fs::openat(dir, name, MADE, Mode::from_raw_mode(mode)).map(File::from).map_err(said)
}

/// Makes an empty file with this mode, less the umask, unless a file is there. Links are followed.
///
/// # Errors
/// As [`read`].
pub(crate) fn make_followed(path: &Path, mode: u32) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | AT_ONCE;
    rustix::fs::open(path, flags, Mode::from_raw_mode(mode)).map(drop).map_err(said)
}

/// The whole content of a file; `None` if it has more bytes.
///
/// # Errors
/// The operating system's.
pub(crate) fn content(file: File, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= bytes_max).then_some(content))
}

/// The text of a file of the kernel (`/proc`, cgroups): a container may hold a lease on those of its cgroup.
///
/// # Errors
/// That it is leased, and the operating system's.
pub(crate) fn kernel_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    kernel_read(path)?.take(KERNEL_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a file of the kernel to read it.
///
/// # Errors
/// As [`kernel_text`].
pub(crate) fn kernel_read(path: &Path) -> io::Result<File> {
    rustix::fs::open(path, OFlags::RDONLY | AT_ONCE, Mode::empty()).map(File::from).map_err(said)
}

/// Opens a file of the kernel to write it. While it is open no process gets a lease on it.
///
/// # Errors
/// As [`kernel_text`].
pub(crate) fn kernel_write(path: &Path) -> io::Result<File> {
    rustix::fs::open(path, OFlags::WRONLY | AT_ONCE, Mode::empty()).map(File::from).map_err(said)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that holds a write lease on a file until this is dropped, and does not give it up when it is asked to.
    pub(crate) struct Lease(Child);

    impl Lease {
        /// `None`, with the reason in the log, where no lease can be had.
        pub(crate) fn on(path: &Path) -> Option<Self> {
            // 1024 is F_SETLEASE, 1 is F_WRLCK.
            let script = "$SIG{IO} = 'IGNORE'; open(F, '<', $ARGV[0]) or die; fcntl(F, 1024, 1) or die $!; \
                          $| = 1; print \"held\\n\"; <STDIN>;";
            let mut perl = Command::new("perl");
            perl.args(["-e", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
            let Ok(mut child) = perl.spawn() else {
                eprintln!("skipped: there is no perl to hold a lease");
                return None;
            };
            let mut told = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut told).unwrap();
            let lease = Self(child);
            if told != "held\n" {
                eprintln!("skipped: no lease is granted on {}", path.display());
                return None;
            }
            Some(lease)
        }
    }

    impl Drop for Lease {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    fn text(file: io::Result<File>) -> String {
        String::from_utf8(content(file.unwrap(), 100).unwrap().unwrap()).unwrap()
    }

    /// Were one of these opens to wait, this test would take 45 s and find no error.
    #[test]
    fn a_lease_is_told_at_once_and_waited_for_by_no_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "content").unwrap();
        let Some(lease) = Lease::on(&path) else { return };
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        let opened = File::open(dir.path()).unwrap();
        let all = [
            read(&path).err(),
            read_at(&opened, "file").err(),
            read_followed(&link).err(),
            write(&path, 0o600).err(),
            make_followed(&path, 0o600).err(),
            kernel_text(&path).err(),
            kernel_write(&path).err(),
        ];
        for (number, error) in all.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("{number}: it was opened"));
            assert!(is_leased(&error), "{number}: {error}");
            assert_eq!(error.to_string(), "a process holds a lease on it");
        }
        drop(lease);
        assert_eq!(text(read(&path)), "content", "it is over");
    }

    #[test]
    fn only_regular_files_are_opened_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "content").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        rustix::fs::mkfifoat(CWD, at("fifo"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(text(read(&at("file"))), "content");
        assert_eq!(text(read_followed(&at("link"))), "content");
        for error in
            [read(&at("fifo")), read(dir.path()), read_followed(&at("device")), write(&at("fifo"), 0o600)]
        {
            let error = error.unwrap_err();
            assert!(is_no_regular_file(&error), "{error}");
        }
        for error in [read(&at("link")), write(&at("link"), 0o600)] {
            assert_eq!(Errno::from_io_error(&error.unwrap_err()), Some(Errno::LOOP));
        }
        assert_eq!(read(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_made_or_kept_and_read_up_to_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, 0o600).unwrap().write_all(b"12345").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        write(&path, 0o644).unwrap().write_all(b"ab").unwrap();
        assert_eq!(text(read(&path)), "ab345", "what is there stays");
        assert_eq!(content(read(&path).unwrap(), 4).unwrap(), None);
        let directory = File::open(dir.path()).unwrap();
        assert_eq!(make_at(&directory, "file", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        make_followed(&path, 0o600).unwrap();
        assert_eq!(text(read(&path)), "ab345");
    }
}
