//! File systems that become as large as their disks (row 10.25). The programs, their arguments and the texts are upstream's.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bridge_io::Lane;

use super::format::{Disk, WORK_WITHIN, format_of, is_there, refused};
use super::{Done, MountError, program};

/// Makes the file system of `disk`, which is mounted at `target`, as large as the disk. One at a time works on a disk and on a
/// target, as with those that are mounted.
pub(super) fn grow(lane: &Lane, target: &Path, disk: &Path) -> Done<()> {
    let (of, target, disk) = (lane.clone(), target.to_path_buf(), disk.to_path_buf());
    lane.run_steps(async move { grown(&of, &target, disk).await })
}

async fn grown(lane: &Lane, target: &Path, path: PathBuf) -> Result<(), MountError> {
    let source = path.display().to_string();
    let disk = lane.run(move || Disk::at(&path)).await?;
    let of_disk = lane.turn(format!("disk {}:{}", disk.number.0, disk.number.1)).await?;
    let held = Arc::new((of_disk, lane.turn(target.display().to_string()).await?));
    let place = target.to_path_buf();
    if !lane.run(move || is_there(&place, &disk)).await? {
        return Err(refused(format!("the device {source} is not mounted at {}", target.display())));
    }
    let checked = format_of(lane, &source, held.clone()).await;
    let found = checked.map_err(|error| {
        refused(format!("ResizeFS.Resize - error checking format for device {source}: {error}"))
    })?;
    let Some(found) = found else { return Ok(()) };
    let Some((program, arguments, subject)) = resizer(&found, &source, target) else {
        return Err(refused(format!(
            "ResizeFS.Resize - resize of format {found} is not supported for device {source} mounted at {}",
            target.display()
        )));
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    tracing::info!(disk = source, target = %target.display(), "A file system grows");
    let grown = program::run(lane, program, &arguments, WORK_WITHIN, held).await;
    grown.map(drop).map_err(|told| {
        refused(format!("resize of device {subject} failed: {}. {program} output: {}", told.why, told.output))
    })
}

/// PURE: the program for a type of file systems, its arguments, and what its error names.
fn resizer(fs_type: &str, disk: &str, target: &Path) -> Option<(&'static str, Vec<String>, String)> {
    let place = target.display().to_string();
    match fs_type {
        "ext3" | "ext4" => Some(("resize2fs", vec![disk.to_owned()], disk.to_owned())),
        "xfs" => Some(("xfs_growfs", vec!["-d".to_owned(), place.clone()], place)),
        "btrfs" => {
            let words = ["filesystem", "resize", "max"].map(str::to_owned);
            Some(("btrfs", words.into_iter().chain([place.clone()]).collect(), place))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use rustix::fs::statvfs;
    use tokio::runtime::Handle;

    use super::*;
    use crate::mounts::{HelperMount, Mounts, SystemMounts};

    /// A loop device on a sparse file, mounted somewhere; both are undone with the guard, also after a failure.
    struct Loop {
        device: String,
        target: PathBuf,
    }

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(&self.target).stderr(std::process::Stdio::null()).status();
            let _ = Command::new("losetup").args(["-d", &self.device]).status();
        }
    }

    #[test]
    fn each_type_has_upstreams_program() {
        let told = |fs_type: &str| {
            let found = resizer(fs_type, "/dev/a", Path::new("/t"));
            found.map(|(program, arguments, subject)| format!("{program} {}: {subject}", arguments.join(" ")))
        };
        assert_eq!(told("ext4").as_deref(), Some("resize2fs /dev/a: /dev/a"));
        assert_eq!(told("ext3"), told("ext4"));
        assert_eq!(told("xfs").as_deref(), Some("xfs_growfs -d /t: /t"));
        assert_eq!(told("btrfs").as_deref(), Some("btrfs filesystem resize max /t: /t"));
        assert_eq!(told("vfat"), None);
    }

    /// Whether this process may grow a mounted ext4: the kernel asks for CAP_SYS_RESOURCE.
    fn may_grow_mounted() -> bool {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
        u64::from_str_radix(effective.trim(), 16).unwrap() & 1 << CAP_SYS_RESOURCE != 0
    }

    #[tokio::test]
    async fn a_file_system_grows_with_its_disk_while_it_is_mounted() {
        if !may_grow_mounted() {
            eprintln!("skipped: this process has no CAP_SYS_RESOURCE");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (image, target) = (root.join("disk.img"), root.join("target"));
        fs::create_dir(&target).unwrap();
        let file = fs::File::create(&image).unwrap();
        file.set_len(16 << 20).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&image).output().ok();
        let Some(made) = made.filter(|made| made.status.success()) else {
            eprintln!("skipped: this process cannot make loop devices");
            return;
        };
        let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        let disk = Loop { device: device.clone(), target: target.clone() };
        let mounts = SystemMounts::new(Handle::current());
        let mount = HelperMount { fs_type: String::new(), source: device.clone(), options: Vec::new() };
        let early = mounts.grow_file_system(&target, Path::new(&device)).await.unwrap_err().to_string();
        assert!(early.contains("is not mounted at"), "{early}");
        mounts.format_and_mount(&target, mount).await.unwrap();
        fs::write(target.join("kept"), "kept").unwrap();
        let bytes = || statvfs(&target).map(|found| found.f_blocks * found.f_frsize).unwrap();
        let before = bytes();
        file.set_len(64 << 20).unwrap();
        assert!(Command::new("losetup").args(["-c", &device]).status().unwrap().success());
        for _ in 0..2 {
            mounts.grow_file_system(&target, Path::new(&device)).await.unwrap();
            assert!(bytes() > before * 3, "{before} and then {}", bytes());
        }
        assert_eq!(fs::read(target.join("kept")).unwrap(), b"kept");
        drop(disk);
    }
}
