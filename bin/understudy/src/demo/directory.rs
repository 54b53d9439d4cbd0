//! The demo's directory, which is removed with everything in it, also with the kubelet's mounts.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

/// A temporary directory, removed when it is dropped.
pub struct Directory {
    temporary: Option<TempDir>,
    path: PathBuf,
}

impl Directory {
    /// Makes the directory.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn make() -> io::Result<Self> {
        let temporary = tempfile::Builder::new().prefix("understudy-demo-").tempdir()?;
        // The path as the kernel lists mount points.
        let path = temporary.path().canonicalize()?;
        Ok(Self { temporary: Some(temporary), path })
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Unmounts and removes everything in the directory.
    ///
    /// # Errors
    /// A file in it cannot be unmounted or removed.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.unmount_all()?;
        let Some(temporary) = self.temporary.take() else { return Ok(()) };
        temporary.close().with_context(|| format!("remove {}", self.path.display()))
    }

    /// Unmounts everything in the directory: a kubelet with that privilege mounts its root directory on itself, and
    /// volumes below it.
    fn unmount_all(&self) -> anyhow::Result<()> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        // The last mount first, since it may be on top of an earlier one.
        for point in mount_points(&mounts, &self.path).into_iter().rev() {
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            unmount(&point, flags).with_context(|| format!("unmount {}", point.display()))?;
        }
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Another error is being returned already, so this one is dropped.
        let _ = self.unmount_all();
    }
}

/// The mount points below a directory, in the order of mounting.
fn mount_points(mountinfo: &str, below: &Path) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    points.map(PathBuf::from).filter(|point| point.starts_with(below)).collect()
}

/// A field of mountinfo with its octal escapes of white space and backslashes replaced.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |text, (escape, char)| text.replace(escape, char))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_is_unmounted() {
        let mountinfo = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            44 27 254:0 /x /tmp/a\\040b/kubelet rw shared:3 - ext4 /dev/vda rw\n\
            45 44 0:50 / /tmp/a\\040b/kubelet/pods/u rw - tmpfs tmpfs rw\n\
            46 27 0:51 / /tmp/a\\040bc rw - tmpfs tmpfs rw\n";
        assert_eq!(
            mount_points(mountinfo, Path::new("/tmp/a b")),
            [Path::new("/tmp/a b/kubelet"), Path::new("/tmp/a b/kubelet/pods/u")]
        );
    }

    #[test]
    fn it_goes_with_what_is_in_it() {
        let directory = Directory::make().unwrap();
        let path = directory.path().to_owned();
        std::fs::write(path.join("file"), "text").unwrap();
        directory.close().unwrap();
        assert!(!path.exists());
        let path = Directory::make().unwrap().path().to_owned();
        assert!(!path.exists());
    }
}
