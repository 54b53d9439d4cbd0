//! Block devices of pods (row 10.19). A device is shown to a pod by a link in the pod's directory. A bind mount of the device
//! for each pod lies beside the plugin's notes, and a loop device on that mount keeps the device open: the kernel gives its
//! name to no other device while a pod has it.

use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bridge_io::Lane;

use super::program::{self, Failed};
use super::sys::{already_mounted, failed, mounted_at, unmount};
use super::{Done, MountError, check_path};
use crate::host::remove_tree::real_path;
use crate::tenant_files;

/// The program that makes and removes loop devices.
const LOSETUP: &str = "losetup";
/// How long the program may take. Below what a volume's set-up may take, so that this error arrives.
const WITHIN: Duration = Duration::from_secs(60);
/// Where the kernel tells of block devices.
const SYS_BLOCK: &str = "/sys/block";
/// A loop device is released when its last user has closed it, which may be a program that looks at new devices.
const RELEASED_LOOKS: u32 = 40;
const RELEASED_PAUSE: Duration = Duration::from_millis(50);

fn made_above(operation: &'static str, path: &Path) -> Result<(), MountError> {
    let above = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(0o750).create(above).map_err(failed(operation, path))
}

/// Whether there is a link at the path. What is no link stays.
fn is_link(operation: &'static str, link: &Path) -> Result<bool, MountError> {
    match fs::symlink_metadata(link) {
        Ok(found) if found.file_type().is_symlink() => Ok(true),
        Ok(_) => Err(failed(operation, link)(io::Error::other("it is no symbolic link"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(operation, link)(error)),
    }
}

/// Makes a link to a device, over an earlier one.
pub(super) fn link(device: &Path, link: &Path) -> Result<(), MountError> {
    const OPERATION: &str = "link to a device at";
    if is_link(OPERATION, link)? {
        if fs::read_link(link).is_ok_and(|target| target == device) {
            return Ok(());
        }
        fs::remove_file(link).map_err(failed(OPERATION, link))?;
    }
    made_above(OPERATION, link)?;
    symlink(device, link).map_err(failed(OPERATION, link))
}

/// Removes a link to a device.
pub(super) fn unlink(link: &Path) -> Result<(), MountError> {
    const OPERATION: &str = "remove the link to a device at";
    if is_link(OPERATION, link)? {
        fs::remove_file(link).map_err(failed(OPERATION, link))?;
    }
    Ok(())
}

/// The loop devices whose file is exactly the one at `map`, by the kernel's names.
fn loops_on(map: &Path) -> Result<Vec<String>, MountError> {
    let real = real_path(map);
    let names = match fs::read_dir(SYS_BLOCK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.map_err(failed("list the loop devices for", map))?,
    };
    let mut found = Vec::new();
    for entry in names.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("loop") {
            continue;
        }
        let file = match tenant_files::kernel_text(&entry.path().join("loop/backing_file")) {
            Err(error) if tenant_files::is_leased(&error) => {
                return Err(failed("list the loop devices for", map)(error));
            }
            // Without the file the device is not in use.
            Err(_) => continue,
            Ok(file) => file,
        };
        let file = file.trim_end_matches('\n');
        let file = Path::new(file.strip_suffix(" (deleted)").unwrap_or(file));
        if file == map || file == real {
            found.push(name);
        }
    }
    Ok(found)
}

/// The same device, also if its file was made anew; of other files the same file.
fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    if one.file_type().is_block_device() && other.file_type().is_block_device() {
        return one.rdev() == other.rdev();
    }
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Mounts and links the device; returns whether a loop device keeps it open already.
fn show(device: &Path, map: &Path, to: &Path) -> Result<bool, MountError> {
    const OPERATION: &str = "map a device at";
    check_path(device)?;
    check_path(map)?;
    check_path(to)?;
    let real = fs::canonicalize(device).map_err(failed("map the device", device))?;
    made_above(OPERATION, map)?;
    match mounted_at(map)? {
        Some(mount) => {
            let wanted = fs::metadata(&real).map_err(failed("map the device", &real))?;
            let there = fs::metadata(map).map_err(failed(OPERATION, map))?;
            if !is_same(&wanted, &there) {
                return Err(already_mounted(&mount));
            }
            link(&real, to)?;
        }
        None => {
            // First, so that a kubelet that ends in between finds the device in the pod's directory.
            link(&real, to)?;
            tenant_files::write(map, 0o640).map_err(failed(OPERATION, map))?;
            rustix::mount::mount_bind(&real, map).map_err(|errno| failed(OPERATION, map)(errno.into()))?;
        }
    }
    Ok(!loops_on(map)?.is_empty())
}

fn losetup(arguments: &[&str], told: &Failed) -> MountError {
    let reason = format!("{LOSETUP} {} failed: {}: {}", arguments.join(" "), told.why, told.output.trim());
    MountError::Refused { reason }
}

/// Shows a device to a pod.
pub(super) fn map(lane: &Lane, device: &Path, map: &Path, link: &Path) -> Done<()> {
    let (of, device, map, link) = (lane.clone(), device.to_path_buf(), map.to_path_buf(), link.to_path_buf());
    lane.run_steps(async move {
        let turn = of.turn(map.display().to_string()).await?;
        let file = map.clone();
        if of.run(move || show(&device, &file, &link)).await? {
            return Ok(());
        }
        let arguments = ["-f", &*map.to_string_lossy()];
        let made = program::run(&of, LOSETUP, &arguments, WITHIN, turn).await;
        made.map(drop).map_err(|told| losetup(&arguments, &told))
    })
}

/// Whether a device is shown to a pod, with all that belongs to it.
pub(super) fn is_mapped(map: &Path, link: &Path) -> Result<bool, MountError> {
    check_path(link)?;
    let is_linked = fs::symlink_metadata(link).is_ok_and(|found| found.file_type().is_symlink());
    Ok(is_linked && mounted_at(map)?.is_some() && !loops_on(map)?.is_empty())
}

/// Takes the mount and the loop device of a pod away.
fn hide(map: &Path) -> Result<(), MountError> {
    unmount(map)?;
    match fs::remove_file(map) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove the map of a device at", map)(error))
        }
        _ => Ok(()),
    }
}

/// Undoes [`map`], but for the link.
pub(super) fn unmap(lane: &Lane, map: &Path) -> Done<()> {
    let (of, map) = (lane.clone(), map.to_path_buf());
    lane.run_steps(async move {
        let mut turn = of.turn(map.display().to_string()).await?;
        let on = |file: PathBuf| {
            move || {
                check_path(&file)?;
                loops_on(&file)
            }
        };
        for name in of.run(on(map.clone())).await? {
            let device = format!("/dev/{name}");
            let arguments = ["-d", device.as_str()];
            let undone = program::run(&of, LOSETUP, &arguments, WITHIN, turn).await;
            (turn, _) = undone.map_err(|told| losetup(&arguments, &told))?;
        }
        // The mount is busy until the device is released.
        for _ in 0..RELEASED_LOOKS {
            if of.run(on(map.clone())).await?.is_empty() {
                break;
            }
            tokio::time::sleep(RELEASED_PAUSE).await;
        }
        let ended = of.run(move || hide(&map)).await;
        drop(turn);
        ended
    })
}

/// The size of a device in bytes.
pub(super) fn bytes(device: &Path) -> Result<u64, MountError> {
    let sized = fs::File::open(device).and_then(|mut file| file.seek(SeekFrom::End(0)));
    sized.map_err(failed("measure the device", device))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tokio::runtime::Handle;

    use super::super::{FileKind, Mounts, SystemMounts};
    use super::*;

    fn run(program: &str, arguments: &[&str]) -> Option<String> {
        let told = Command::new(program).args(arguments).output().ok()?;
        told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
    }

    /// A loop device on a file, which stands for a disk; `None`, with the reason printed, where there are none.
    fn disk(image: &Path) -> Option<String> {
        fs::File::create(image).and_then(|file| file.set_len(1 << 20)).unwrap();
        let made = run(LOSETUP, &["--find", "--show", image.to_str().unwrap()]);
        if made.is_none() {
            eprintln!("skipped: this process cannot make loop devices");
        }
        made
    }

    #[tokio::test]
    async fn a_device_is_kept_open_until_it_is_taken_from_its_pod() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (image, other) = (root.join("disk.img"), root.join("other.img"));
        let (Some(device), Some(stranger)) = (disk(&image), disk(&other)) else { return };
        let alias = root.join("by-id");
        symlink(&device, &alias).unwrap();
        let (map, link) = (root.join("plugins/x/dev/u"), root.join("pods/u/volumeDevices/x/pv"));
        let mounts = SystemMounts::new(Handle::current());
        assert_eq!(mounts.is_device_mapped(&map, &link).await, Ok(false));
        mounts.map_device(&alias, &map, &link).await.unwrap();
        mounts.map_device(&alias, &map, &link).await.unwrap();
        assert_eq!(mounts.is_device_mapped(&map, &link).await, Ok(true));
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(&device), "the device itself");
        assert_eq!(loops_on(&map).unwrap().len(), 1, "once");
        assert_eq!(mounts.device_bytes(&link).await, Ok(1 << 20));
        let refused = mounts.map_device(Path::new(&stranger), &map, &link).await;
        assert!(matches!(refused, Err(MountError::AlreadyMounted { .. })), "{refused:?}");
        // A restart of the machine leaves the files, and a half of it is done again.
        mounts.unlink_device(&link).await.unwrap();
        assert_eq!(mounts.is_device_mapped(&map, &link).await, Ok(false));
        mounts.map_device(&alias, &map, &link).await.unwrap();

        for _ in 0..2 {
            mounts.unmap_device(&map).await.unwrap();
            mounts.unlink_device(&link).await.unwrap();
        }
        assert!(!map.exists() && fs::symlink_metadata(&link).is_err());
        assert_eq!((loops_on(&map).unwrap(), mounted_at(&map).unwrap()), (vec![], None));
        assert_eq!(loops_on(&image).unwrap().len(), 1, "what is not the pod's stays");
        for device in [device, stranger] {
            run(LOSETUP, &["-d", &device]).unwrap();
        }
    }

    #[tokio::test]
    async fn what_is_no_link_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = SystemMounts::new(Handle::current());
        let path = dir.path().join("volumeDevices/x/pv");
        fs::create_dir_all(&path).unwrap();
        assert!(mounts.link_device(Path::new("/dev/null"), &path).await.is_err());
        assert!(mounts.unlink_device(&path).await.is_err());
        let link = dir.path().join("volumeDevices/x/other");
        mounts.link_device(Path::new("/dev/null"), &link).await.unwrap();
        mounts.link_device(Path::new("/dev/zero"), &link).await.unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("/dev/zero"));
        assert_eq!(FileKind::CharDevice, {
            let kind = fs::metadata(&link).unwrap().file_type();
            if kind.is_char_device() { FileKind::CharDevice } else { FileKind::File }
        });
    }
}
