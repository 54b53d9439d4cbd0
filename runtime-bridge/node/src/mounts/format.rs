//! Disks that are formatted when they are empty, looked through when they are not, and mounted. The programs, their arguments
//! and what follows from their ends are upstream's.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::Lane;

use super::program::Failed;
use super::sys::{already_mounted, failed, mounted_at, refuse_symlink};
use super::{Done, HelperMount, MountError, check_path, helper, program};

/// The type of the file system of an empty disk whose volume does not name one.
const USUAL_TYPE: &str = "ext4";
/// How long the look at what a disk holds may take.
const LOOK_WITHIN: Duration = Duration::from_secs(60);
/// How long formatting or mending may take: on a large disk long, and what is killed half-way may be lost.
pub(super) const WORK_WITHIN: Duration = Duration::from_secs(3600);
/// How `blkid` says that it knows nothing of what is on the disk.
const BLKID_NOTHING: i32 = 2;
/// How `fsck` says that it has mended the file system.
const FSCK_MENDED: i32 = 1;
/// How `fsck` says that it could not mend the file system.
const FSCK_BROKEN: i32 = 4;
/// What is taken for the type of a disk with partitions, so that it is not formatted; upstream's.
const PARTITIONS: &str = "unknown data, probably partitions";

/// Formats the disk `mount.source` if it is empty, and mounts it at `target`. The disk and the target are worked on by one
/// at a time.
pub(super) fn format_and_mount(lane: &Lane, target: &Path, mount: HelperMount) -> Done<()> {
    let (of, target) = (lane.clone(), target.to_path_buf());
    lane.run_steps(async move { mounted(&of, &target, mount).await })
}

async fn mounted(lane: &Lane, target: &Path, mut mount: HelperMount) -> Result<(), MountError> {
    if mount.fs_type.is_empty() {
        USUAL_TYPE.clone_into(&mut mount.fs_type);
    }
    check_type(&mount.fs_type)?;
    helper::refuse_options(&mount)?;
    let source = PathBuf::from(&mount.source);
    let disk = lane.run(move || Disk::at(&source)).await?;
    let of_disk = lane.turn(format!("disk {}:{}", disk.number.0, disk.number.1)).await?;
    let held = Arc::new((of_disk, lane.turn(target.display().to_string()).await?));
    let (place, wanted) = (target.to_path_buf(), disk.clone());
    if lane.run(move || is_there(&place, &wanted)).await? {
        return Ok(());
    }
    let read_only = mount.options.iter().any(|option| option == "ro");
    mount.options.push("defaults".to_owned());
    match format_of(lane, &mount.source, held.clone()).await? {
        None if read_only => {
            return Err(refused(format!(
                "cannot mount unformatted disk {} as we are manipulating it in read-only mode",
                mount.source
            )));
        }
        None => format(lane, target, &mount, held.clone()).await?,
        Some(found) => {
            if found != mount.fs_type {
                tracing::warn!(
                    disk = mount.source,
                    wanted = mount.fs_type,
                    found,
                    "A disk has another format"
                );
            }
            if !read_only {
                mend(lane, &mount.source, held.clone()).await?;
            }
        }
    }
    let check =
        move |place: &Path| if is_there(place, &disk)? { Ok(()) } else { Err(helper::nothing(place)) };
    helper::make(helper::MOUNT, helper::WITHIN, lane, target, &mount, held, check).await
}

pub(super) fn refused(reason: String) -> MountError {
    MountError::Refused { reason }
}

/// The type becomes a part of a program's name, and behind a dot it is the name of any program: `mount` runs `PROGRAM` for
/// `fuse.PROGRAM`, as root. No disk is of such a type.
pub(super) fn check_type(fs_type: &str) -> Result<(), MountError> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let runs_programs = matches!(fs_type, "fuse" | "fuse3" | "fuseblk");
    let begins = fs_type.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && fs_type.bytes().all(is_usual) && !runs_programs {
        return Ok(());
    }
    Err(refused(format!("{fs_type:?} is no type of a file system")))
}

/// A block device.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// The device itself, links followed.
    path: PathBuf,
    /// Its major and minor number.
    pub number: (u32, u32),
}

impl Disk {
    /// The device at a path. What cannot be read is not taken for empty: it would be formatted.
    pub fn at(path: &Path) -> Result<Self, MountError> {
        const OPERATION: &str = "read the disk";
        check_path(path)?;
        let real = fs::canonicalize(path).map_err(failed(OPERATION, path))?;
        let found = fs::metadata(&real).map_err(failed(OPERATION, path))?;
        if !found.file_type().is_block_device() {
            return Err(failed(OPERATION, path)(io::Error::other("it is no block device")));
        }
        let read = fs::File::open(&real).and_then(|mut disk| disk.read_exact(&mut [0; 512]));
        read.map_err(failed(OPERATION, path))?;
        let number = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        Ok(Self { path: real, number })
    }
}

/// Whether the disk is mounted there already.
pub(super) fn is_there(target: &Path, disk: &Disk) -> Result<bool, MountError> {
    check_path(target)?;
    let Some(mount) = mounted_at(target)? else {
        return refuse_symlink("mount at", target).map(|()| false);
    };
    // The file systems of some kinds have a number of their own.
    let is_source = || fs::canonicalize(&mount.source).is_ok_and(|source| source == disk.path);
    if mount.device == disk.number || is_source() {
        return Ok(true);
    }
    Err(already_mounted(&mount))
}

/// What is on a disk; `None` if it is empty.
pub(super) async fn format_of<T: Send + 'static>(
    lane: &Lane,
    disk: &str,
    held: T,
) -> Result<Option<String>, MountError> {
    let of_disk = |why: &str| refused(format!("failed to get disk format of disk {disk}: {why}"));
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", disk];
    match program::run(lane, "blkid", &arguments, LOOK_WITHIN, held).await {
        Ok((_, said)) => found(&said).map_err(|why| of_disk(&why)),
        Err(Failed { code: Some(BLKID_NOTHING), .. }) => Ok(None),
        Err(told) => Err(of_disk(&told.why)),
    }
}

/// PURE: what `blkid` has found.
fn found(said: &str) -> Result<Option<String>, String> {
    let (mut fs_type, mut has_partitions) = ("", false);
    for line in said.lines().filter(|line| !line.is_empty()) {
        match line.split_once('=') {
            Some((_, value)) if value.contains('=') => {
                return Err(format!("blkid returns invalid output: {said}"));
            }
            Some(("TYPE", value)) => fs_type = value,
            Some(("PTTYPE", value)) => has_partitions = !value.is_empty(),
            Some(_) => {}
            None => return Err(format!("blkid returns invalid output: {said}")),
        }
    }
    let found = if has_partitions { PARTITIONS } else { fs_type };
    Ok(Some(found.to_owned()).filter(|found| !found.is_empty()))
}

/// Formats an empty disk.
async fn format<T: Send + 'static>(
    lane: &Lane,
    target: &Path,
    mount: &HelperMount,
    held: T,
) -> Result<(), MountError> {
    let HelperMount { fs_type, source, options } = mount;
    let mut arguments: Vec<&str> = match fs_type.as_str() {
        "ext3" | "ext4" => vec!["-F", "-m0"],
        "xfs" => vec!["-f"],
        _ => Vec::new(),
    };
    arguments.push(source);
    tracing::info!(disk = source, fs_type, "A disk is empty and is formatted");
    let formatted = program::run(lane, &format!("mkfs.{fs_type}"), &arguments, WORK_WITHIN, held).await;
    formatted.map(drop).map_err(|told| {
        refused(format!(
            "format of disk {source:?} failed: type:({fs_type:?}) target:({:?}) options:({:?}) errcode:({}) output:({}) ",
            target.display().to_string(),
            options.join(","),
            told.why,
            told.output
        ))
    })
}

/// Looks through the file system of a disk, and mends what can be mended. Only a file system that is known to be broken is not
/// mounted.
async fn mend<T: Send + 'static>(lane: &Lane, disk: &str, held: T) -> Result<(), MountError> {
    let Err(told) = program::run(lane, "fsck", &["-a", disk], WORK_WITHIN, held).await else { return Ok(()) };
    match told.code {
        Some(FSCK_BROKEN) => Err(refused(format!(
            "'fsck' found errors on device {disk} but could not correct them: {}",
            told.output
        ))),
        Some(FSCK_MENDED) => {
            tracing::info!(disk, "A disk had errors, which fsck has mended");
            Ok(())
        }
        // A look that has not ended has the disk still.
        None if !told.is_missing => Err(refused(format!("fsck of disk {disk}: {}", told.why))),
        _ => {
            tracing::warn!(disk, why = told.why, output = told.output, "A disk is mounted without fsck");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tokio::runtime::Handle;

    use super::*;
    use crate::mounts::{Mounts, SystemMounts};

    /// A loop device on a sparse file; it is released with the guard.
    struct Loop(String);

    impl Drop for Loop {
        fn drop(&mut self) {
            let _ = Command::new("losetup").args(["-d", &self.0]).status();
        }
    }

    fn disk(image: &Path, bytes: u64) -> Option<Loop> {
        fs::File::create(image).and_then(|file| file.set_len(bytes)).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(image).output().ok();
        let made = made.filter(|made| made.status.success());
        let made = made.map(|made| Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()));
        if made.is_none() {
            eprintln!("skipped: this process cannot make loop devices");
        }
        made
    }

    fn of(disk: &str, fs_type: &str, options: &[&str]) -> HelperMount {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        HelperMount { fs_type: fs_type.to_owned(), source: disk.to_owned(), options }
    }

    #[test]
    fn what_is_on_a_disk_is_read_as_upstream_reads_it() {
        let is = |said: &str| found(said);
        assert_eq!(is("DEVNAME=/dev/a\nTYPE=ext4\n"), Ok(Some("ext4".to_owned())));
        assert_eq!(is("DEVNAME=/dev/a\nPTTYPE=dos\nTYPE=ext4\n"), Ok(Some(PARTITIONS.to_owned())));
        assert_eq!(is(""), Ok(None));
        assert_eq!(is("\nTYPE=\n"), Ok(None));
        for odd in ["TYPE=ext4=x\n", "nothing\n"] {
            assert_eq!(is(odd), Err(format!("blkid returns invalid output: {odd}")));
        }
    }

    #[test]
    fn a_type_is_no_path_and_no_option() {
        for fine in ["ext4", "xfs", "f2fs", "vfat", "no-such"] {
            assert_eq!(check_type(fine), Ok(()), "{fine}");
        }
        for odd in ["", "-t", "../../tmp/x", "a/b", "ext4 x", "ext4\n", ".x", "a\0"] {
            assert!(check_type(odd).is_err(), "{odd:?}");
        }
        for program in ["fuse.sh", "ext4.x", "fuse", "fuseblk", "fuseblk.ntfs"] {
            assert!(check_type(program).is_err(), "{program:?}");
        }
    }

    #[tokio::test]
    async fn an_empty_disk_is_formatted_once_and_what_is_on_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let Some(device) = disk(&root.join("disk.img"), 8 << 20) else { return };
        let Some(other) = disk(&root.join("other.img"), 8 << 20) else { return };
        let (target, elsewhere) = (root.join("target"), root.join("elsewhere"));
        fs::create_dir(&target).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let mounts = SystemMounts::new(Handle::current());
        let read_only = mounts.format_and_mount(&target, of(&device.0, "", &["ro"])).await.unwrap_err();
        assert_eq!(
            read_only.to_string(),
            format!("cannot mount unformatted disk {} as we are manipulating it in read-only mode", device.0)
        );
        let wanted = of(&device.0, "", &["noexec"]);
        let both = (
            mounts.format_and_mount(&target, wanted.clone()),
            mounts.format_and_mount(&elsewhere, wanted.clone()),
        );
        let both = tokio::join!(both.0, both.1);
        assert_eq!(both, (Ok(()), Ok(())), "the second finds what the first has formatted");
        let there = mounted_at(&target).unwrap().expect("it is mounted");
        assert_eq!(there.fs_type, "ext4");
        assert!(there.options.iter().any(|option| option == "noexec"), "{there:?}");
        fs::write(target.join("kept"), "kept").unwrap();
        assert_eq!(fs::read(elsewhere.join("kept")).unwrap(), b"kept");
        mounts.format_and_mount(&target, wanted.clone()).await.unwrap();
        let refused = mounts.format_and_mount(&target, of(&other.0, "", &[])).await;
        assert!(matches!(refused, Err(MountError::AlreadyMounted { .. })), "{refused:?}");
        for place in [&target, &elsewhere] {
            mounts.unmount(place).await.unwrap();
            assert_eq!(mounted_at(place), Ok(None), "once");
        }

        mounts.format_and_mount(&target, of(&device.0, "ext4", &["ro"])).await.unwrap();
        assert_eq!(fs::read(target.join("kept")).unwrap(), b"kept");
        mounts.unmount(&target).await.unwrap();
        let mismatch = mounts.format_and_mount(&target, of(&device.0, "vfat", &[])).await.unwrap_err();
        assert!(mismatch.to_string().starts_with("mount failed: exit status"), "{mismatch}");
        assert_eq!(mounted_at(&target), Ok(None));
        mounts.format_and_mount(&target, wanted).await.unwrap();
        assert_eq!(fs::read(target.join("kept")).unwrap(), b"kept", "nothing was formatted anew");
        mounts.unmount(&target).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_no_empty_disk_is_not_formatted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (target, file) = (root.join("target"), root.join("file"));
        fs::create_dir(&target).unwrap();
        fs::write(&file, [0; 4096]).unwrap();
        let mounts = SystemMounts::new(Handle::current());
        for odd in [&file, &root.join("missing"), &target] {
            let source = odd.display().to_string();
            let told = mounts.format_and_mount(&target, of(&source, "", &[])).await.unwrap_err();
            assert!(told.to_string().starts_with(&format!("cannot read the disk {source}: ")), "{told}");
        }
        assert_eq!(fs::read(&file).unwrap(), [0; 4096]);
        for odd in ["-U", "relative", "/dev/../x"] {
            assert!(mounts.format_and_mount(&target, of(odd, "", &[])).await.is_err(), "{odd}");
        }
        let Some(device) = disk(&root.join("disk.img"), 8 << 20) else { return };
        let missing = mounts.format_and_mount(&target, of(&device.0, "no-such", &[])).await.unwrap_err();
        let text = format!(
            "format of disk {:?} failed: type:(\"no-such\") target:({:?}) options:(\"defaults\") \
             errcode:(exec: \"mkfs.no-such\": executable file not found in $PATH) output:() ",
            device.0, target
        );
        assert_eq!(missing.to_string(), text);
        // A partition table without partitions, in the first sector.
        let mut sector = [0; 512];
        sector[446 + 4] = 0x83;
        sector[446 + 8] = 1;
        sector[446 + 12] = 8;
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        fs::write(&device.0, sector).unwrap();
        let parted = mounts.format_and_mount(&target, of(&device.0, "ext4", &[])).await.unwrap_err();
        assert!(parted.to_string().starts_with("mount failed: exit status"), "{parted}");
        let kept = fs::read(root.join("disk.img")).unwrap();
        assert_eq!(kept[510..512], [0x55, 0xaa]);
    }
}
