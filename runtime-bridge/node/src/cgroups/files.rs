//! The writes to a cgroup file system; tests replace it by a tree of directories that behaves like the kernel's.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use crate::tenant_files;

/// Changes to a cgroup file system. Reading is plain reading of files.
pub(super) trait Files: Send + Sync + std::fmt::Debug {
    /// Makes one directory; the kernel fills it with files.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes one directory together with the kernel's files in it.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Writes to an existing file.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
}

/// The kernel's cgroup file system.
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
        tenant_files::kernel_write(file)?.write_all(text.as_bytes())
    }
}
