//! Block devices on the disk in memory. A loop device is, as the kernel shows it, a file below `/sys/block`.

use std::path::{Path, PathBuf};

use super::fake::{already_mounted, failed, mount_point_kind, mounted_at};
use super::{FileKind, HelperMount, MountError, MountPoint, format};
use crate::host::FakeDisk;

/// The file on a fake file system with a mark for each time that it was made larger.
pub const GROWN: &str = ".grown";

const LOOPS: &str = "/sys/block";
const BACKING_FILE: &str = "loop/backing_file";

/// The loop devices whose file is at `map`.
fn loops_on(disk: &FakeDisk, map: &Path) -> Vec<PathBuf> {
    let wanted = map.to_string_lossy().into_owned().into_bytes();
    let files = disk.files_below(LOOPS).into_iter().filter(|(_, file)| *file == wanted);
    files.filter_map(|(path, _)| Some(Path::new(LOOPS).join(path.iter().next()?))).collect()
}

/// Whether something keeps the file at `path` open.
pub(super) fn is_busy(disk: &FakeDisk, path: &Path) -> bool {
    !loops_on(disk, path).is_empty()
}

pub(super) fn link(disk: &FakeDisk, device: &Path, link: &Path) -> Result<(), MountError> {
    if !matches!(disk.kind(link), None | Some(FileKind::Symlink)) {
        return Err(failed("link to a device at", link, "it is no symbolic link"));
    }
    link.parent().into_iter().for_each(|above| disk.mkdir(above, 0o750));
    disk.symlink(link, device);
    Ok(())
}

pub(super) fn unlink(disk: &FakeDisk, link: &Path) -> Result<(), MountError> {
    if !matches!(disk.kind(link), None | Some(FileKind::Symlink)) {
        return Err(failed("remove the link to a device at", link, "it is no symbolic link"));
    }
    disk.remove(link);
    Ok(())
}

pub(super) fn map(disk: &FakeDisk, device: &Path, map: &Path, to: &Path) -> Result<(), MountError> {
    let real = disk.link_target(device).unwrap_or_else(|| device.to_path_buf());
    if disk.kind_followed(device).is_none() {
        return Err(failed("map the device", device, "No such file or directory"));
    }
    map.parent().into_iter().for_each(|above| disk.mkdir(above, 0o750));
    match mounted_at(disk, map) {
        Some(mount) if mount.root != real => return Err(already_mounted(&mount)),
        Some(_) => {}
        None => {
            disk.write(map, [], 0o640);
            disk.add_mount(MountPoint {
                path: map.to_path_buf(),
                root: real.clone(),
                fs_type: "devtmpfs".into(),
                source: "devtmpfs".into(),
                options: vec!["rw".into()],
                device: (0, 6),
                fs_options: Vec::new(),
            });
        }
    }
    link(disk, &real, to)?;
    if loops_on(disk, map).is_empty() {
        let free = (0..).map(|number| Path::new(LOOPS).join(format!("loop{number}")));
        if let Some(free) = free.into_iter().find(|free| disk.kind(free).is_none()) {
            disk.write(free.join(BACKING_FILE), map.to_string_lossy().into_owned(), 0o444);
        }
    }
    Ok(())
}

pub(super) fn is_mapped(disk: &FakeDisk, map: &Path, link: &Path) -> bool {
    disk.kind(link) == Some(FileKind::Symlink)
        && mounted_at(disk, map).is_some()
        && !loops_on(disk, map).is_empty()
}

pub(super) fn unmap(disk: &FakeDisk, map: &Path) {
    for found in loops_on(disk, map) {
        disk.remove(found);
    }
    disk.remove_mounts_at(map);
    disk.remove(map);
}

/// The file system stays what it is; where it is mounted, a file tells how often it has been made larger.
pub(super) fn grow(disk: &FakeDisk, target: &Path, device: &Path) -> Result<(), MountError> {
    let device = disk.link_target(device).unwrap_or_else(|| device.to_path_buf());
    match mounted_at(disk, target) {
        Some(there) if there.source == device.to_string_lossy() => {}
        _ => return Err(failed("find the file system at", target, "nothing of the disk is mounted there")),
    }
    let mark = target.join(GROWN);
    let times = disk.read(&mark).map_or(0, |marks| marks.len());
    disk.write(&mark, vec![b'+'; times + 1], 0o600);
    Ok(())
}

/// The content of a disk's file is the type of its file system; an empty file is a disk that is not formatted.
pub(super) fn format_and_mount(disk: &FakeDisk, target: &Path, mount: HelperMount) -> Result<(), MountError> {
    let HelperMount { fs_type, source, options } = mount;
    let wanted = if fs_type.is_empty() { "ext4".to_owned() } else { fs_type };
    format::check_type(&wanted)?;
    let device = disk.link_target(&source).unwrap_or_else(|| PathBuf::from(&source));
    // A device that was made without content has a file system of every type.
    let is_bare = disk.kind(&device) == Some(FileKind::BlockDevice);
    let Some(found) = disk.read(&device).or_else(|| is_bare.then(|| wanted.clone().into_bytes())) else {
        return Err(failed("read the disk", Path::new(&source), "No such file or directory"));
    };
    match mounted_at(disk, target) {
        Some(there) if there.source == device.to_string_lossy() => return Ok(()),
        Some(there) => return Err(already_mounted(&there)),
        None => {}
    }
    mount_point_kind(disk, "mount at", target)?;
    if found.is_empty() {
        if options.iter().any(|option| option == "ro") {
            let reason =
                format!("cannot mount unformatted disk {source} as we are manipulating it in read-only mode");
            return Err(MountError::Refused { reason });
        }
        disk.write(&device, wanted.as_bytes(), 0o660);
    } else if found != wanted.as_bytes() {
        return Err(MountError::Refused { reason: "mount failed: exit status 32".to_owned() });
    }
    // As the kernel tells it: a file system that is mounted with one label for all files takes no others.
    let (context, options): (Vec<String>, Vec<String>) =
        options.into_iter().partition(|option| option.starts_with("context="));
    let fs_options = if context.is_empty() { vec!["seclabel".to_owned()] } else { context };
    let source = device.to_string_lossy().into_owned();
    let device = number_of(disk, &source);
    let (path, root) = (target.to_path_buf(), PathBuf::from("/"));
    disk.add_mount(MountPoint { path, root, fs_type: wanted, source, options, device, fs_options });
    Ok(())
}

/// The number of the file system on this device: each has its own.
fn number_of(disk: &FakeDisk, source: &str) -> (u32, u32) {
    const MAJOR: u32 = 7;
    let mounts = disk.mounts();
    let of_disks = || mounts.iter().filter(|mount| mount.device.0 == MAJOR);
    let known = of_disks().find(|mount| mount.source == source).map(|mount| mount.device);
    known.unwrap_or_else(|| (MAJOR, of_disks().map(|mount| mount.device.1 + 1).max().unwrap_or(0)))
}
