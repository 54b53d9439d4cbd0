//! The machine's logs: a directory into which others write, pods among them where they have it mounted. NodeApi shows it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_io::Io;
use jiff::Timestamp;
use rustix::fs::{OFlags, ResolveFlags};

use super::log_file::{LogFile, blocking};
use crate::beneath::open_beneath;
use crate::tenant_files;

/// So many names of a directory are read.
const NAMES_MAX: usize = 10_000;

/// The directory of the machine's logs.
#[derive(Clone, Debug)]
pub struct SystemLogs {
    io: Io,
    root: Arc<Path>,
}

/// What lies at a path.
#[derive(Debug)]
pub enum SystemLog {
    /// A directory with these names, sorted; those of directories end with a slash.
    Directory(Vec<String>),
    /// A regular file.
    File(SystemLogFile),
}

/// A regular file below the directory.
#[derive(Debug)]
pub struct SystemLogFile {
    /// To read it.
    pub file: LogFile,
    /// How long it was when it was opened, in bytes.
    pub bytes: u64,
    /// When it was written last.
    pub modified: Timestamp,
}

impl SystemLogs {
    /// The logs below this directory, read on the I/O runtime.
    pub fn new(io: Io, root: impl Into<PathBuf>) -> Self {
        Self { io, root: root.into().into() }
    }

    /// The same for one of several that share the threads which read.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Self {
        Self { io: self.io.of_tenant(tenant), root: self.root.clone() }
    }

    /// Looks at a path below the directory. Links are followed as far as they stay below it.
    ///
    /// # Errors
    /// The operating system's error; for what is neither a directory nor a regular file, `InvalidInput`.
    pub async fn find(&self, path: &str) -> io::Result<SystemLog> {
        let (root, path) = (self.root.clone(), PathBuf::from(path));
        let found = blocking(&self.io, move || find(&root, &path)).await?;
        Ok(match found {
            Found::Directory(names) => SystemLog::Directory(names),
            Found::File { file, path, bytes, modified } => {
                SystemLog::File(SystemLogFile { file: LogFile::of(&self.io, path, file), bytes, modified })
            }
        })
    }
}

enum Found {
    Directory(Vec<String>),
    File { file: File, path: PathBuf, bytes: u64, modified: Timestamp },
}

fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let at =
        open_beneath(&File::open(root)?, path, OFlags::PATH | OFlags::CLOEXEC, ResolveFlags::NO_MAGICLINKS)?;
    // What was found, whatever lies at the path by now.
    let through = PathBuf::from(format!("/proc/self/fd/{}", at.as_raw_fd()));
    let metadata = std::fs::metadata(&through)?;
    if metadata.is_dir() {
        return names(&through).map(Found::Directory);
    }
    let file = tenant_files::reopen(&at)?;
    let modified = Timestamp::try_from(metadata.modified()?).unwrap_or(Timestamp::UNIX_EPOCH);
    Ok(Found::File { file, path: root.join(path), bytes: metadata.len(), modified })
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)?.take(NAMES_MAX) {
        let entry = entry?;
        let mut name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            name.push('/');
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    async fn kind(logs: &SystemLogs, path: &str) -> String {
        match logs.find(path).await {
            Ok(SystemLog::Directory(names)) => names.join(" "),
            Ok(SystemLog::File(found)) => {
                let text = found.file.read_at(0).await.unwrap();
                assert_eq!(found.bytes, text.len() as u64);
                String::from_utf8(text).unwrap()
            }
            Err(error) => format!("{:?}", error.kind()),
        }
    }

    #[tokio::test]
    async fn what_lies_below_is_shown_and_no_link_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let (root, out) = (dir.path().join("log"), dir.path().join("secret"));
        std::fs::create_dir_all(root.join("pods")).unwrap();
        std::fs::write(root.join("pods/0.log"), "line\n").unwrap();
        std::fs::write(&out, "secret").unwrap();
        symlink(root.join("pods/0.log"), root.join("here")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink(&out, root.join("far")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let logs = SystemLogs::new(Io::current(), &root);
        assert_eq!(kind(&logs, "").await, "far here out pipe pods/");
        for path in ["pods/0.log", "here"] {
            assert_eq!(kind(&logs, path).await, "line\n", "{path}");
        }
        for path in ["out", "far", "../secret"] {
            assert_eq!(kind(&logs, path).await, "CrossesDevices", "{path}");
        }
        assert_eq!(kind(&logs, "pipe").await, "InvalidInput", "a reader of it would wait");
        assert_eq!(kind(&logs, "nothing").await, "NotFound");
    }
}
