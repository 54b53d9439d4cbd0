//! What is written in a cgroup file system; tests put a tree of directories with a kernel's manners in its place.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The changes that are made. Reading is plain reading of files.
pub(super) trait Files: Send + Sync + std::fmt::Debug {
    /// Makes one directory: the kernel puts its files into it.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes one directory with the kernel's files in it.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Writes to a file that is there.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
}

/// The kernel's own.
#[derive(Debug)]
pub(super) struct KernelFiles;

impl Files for KernelFiles {
    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir(dir)
    }

    fn remove_dir(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir(dir)
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        fs::OpenOptions::new().write(true).open(file)?.write_all(text.as_bytes())
    }
}
