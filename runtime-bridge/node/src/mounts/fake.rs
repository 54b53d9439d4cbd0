use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;

use super::host_path::PathVerdict;
use super::sys::READY;
use super::{
    Done, FileKind, GroupProgress, HelperMount, HostPathType, Measure, MountError, MountPoint, Mounts,
    Projection, SwapFacts, TmpfsOptions, VolumeFigures, VolumeGroup, atomic, check_path, fake_devices, notes,
};
use crate::host::{FakeDisk, RemoveTreeError};

/// Mounts on a [`FakeDisk`]. Operations take effect when they are called.
#[derive(Debug, Clone)]
pub struct FakeMounts {
    disk: FakeDisk,
    /// When the last change of ownership was made, by path.
    groups: Arc<Mutex<BTreeMap<PathBuf, tokio::time::Instant>>>,
}

impl FakeMounts {
    /// Mounts on `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk, groups: Arc::default() }
    }

    fn run<T: Send + 'static>(
        &self,
        method: &'static str,
        path: &Path,
        work: impl FnOnce(&FakeDisk, &Path) -> Result<T, MountError>,
    ) -> Done<T> {
        let done = check_path(path).and_then(|()| match self.disk.scripted_failure(method, path) {
            Some(reason) => Err(failed(method, path, &reason)),
            None => work(&self.disk, path),
        });
        self.disk.answer(method, path, done)
    }
}

impl Mounts for FakeMounts {
    fn for_namespace(&self, _: &str) -> Arc<dyn Mounts> {
        Arc::new(self.clone())
    }

    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>> {
        self.run("list_below", path, |disk, path| {
            Ok(disk.mounts().into_iter().filter(|mount| mount.path.starts_with(path)).collect())
        })
    }

    fn count(&self) -> Done<usize> {
        std::future::ready(Ok(self.disk.mounts().len())).boxed()
    }

    fn is_mount_point(&self, path: &Path) -> Done<bool> {
        self.run("is_mount_point", path, |disk, path| Ok(mounted_at(disk, path).is_some()))
    }

    fn swap(&self) -> Done<SwapFacts> {
        std::future::ready(Ok(self.disk.swap())).boxed()
    }

    fn mount_tmpfs(&self, target: &Path, options: TmpfsOptions) -> Done<()> {
        self.run("mount_tmpfs", target, |disk, target| {
            match mounted_at(disk, target) {
                Some(mount) if mount.fs_type == "tmpfs" => return Ok(()),
                Some(mount) => return Err(already_mounted(&mount)),
                None => {}
            }
            mount_point_kind(disk, "mount a tmpfs at", target)?;
            disk.set_mode(target, options.mode);
            disk.add_mount(MountPoint {
                path: target.to_path_buf(),
                root: PathBuf::from("/"),
                fs_type: "tmpfs".into(),
                source: "tmpfs".into(),
                options: vec!["rw".into(), "relatime".into()],
                device: (0, 100),
                fs_options: disk.swap().noswap.then(|| "noswap".to_owned()).into_iter().collect(),
            });
            Ok(())
        })
    }

    fn mount_huge_pages(&self, target: &Path, page_bytes: u64) -> Done<()> {
        self.run("mount_huge_pages", target, |disk, target| {
            match mounted_at(disk, target) {
                Some(mount) if mount.fs_type == "hugetlbfs" => return Ok(()),
                Some(mount) => return Err(already_mounted(&mount)),
                None => {}
            }
            mount_point_kind(disk, "mount huge pages at", target)?;
            disk.add_mount(MountPoint {
                path: target.to_path_buf(),
                root: PathBuf::from("/"),
                fs_type: "hugetlbfs".into(),
                source: "nodev".into(),
                options: vec!["rw".into(), format!("pagesize={page_bytes}")],
                device: (0, 101),
                fs_options: Vec::new(),
            });
            Ok(())
        })
    }

    fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Done<()> {
        let source_checked = check_path(source);
        self.run("bind", target, |disk, target| {
            source_checked?;
            let wanted = disk
                .kind_followed(source)
                .ok_or_else(|| failed("bind", source, "No such file or directory"))?;
            let there = mount_point_kind(disk, "bind at", target)?;
            let shown = mounted_at(disk, source).unwrap_or_else(|| MountPoint {
                path: source.to_path_buf(),
                root: source.to_path_buf(),
                fs_type: "ext4".into(),
                source: "/dev/fake".into(),
                options: Vec::new(),
                device: (8, 1),
                fs_options: Vec::new(),
            });
            if let Some(mount) = mounted_at(disk, target) {
                if mount.root != shown.root {
                    return Err(already_mounted(&mount));
                }
                if mount.read_only() || !read_only {
                    return Ok(());
                }
                disk.remove_mounts_at(target);
            } else if (wanted == FileKind::Directory) != (there == FileKind::Directory) {
                return Err(failed("bind at", target, "Not a directory"));
            }
            disk.add_mount(MountPoint {
                path: target.to_path_buf(),
                options: vec![if read_only { "ro" } else { "rw" }.into(), "relatime".into()],
                ..shown
            });
            Ok(())
        })
    }

    fn mount_by_helper(&self, target: &Path, mount: HelperMount) -> Done<()> {
        self.run("mount_by_helper", target, |disk, target| {
            match mounted_at(disk, target) {
                Some(there) if there.fs_type.starts_with(&mount.fs_type) => return Ok(()),
                Some(there) => return Err(already_mounted(&there)),
                None => {}
            }
            mount_point_kind(disk, "mount at", target)?;
            let is_bind = mount.fs_type.is_empty();
            // What is mounted at the source is shown at the target, too.
            if let Some(shown) = mounted_at(disk, Path::new(&mount.source)).filter(|_| is_bind) {
                disk.add_mount(MountPoint { path: target.to_path_buf(), options: mount.options, ..shown });
                return Ok(());
            }
            disk.add_mount(MountPoint {
                path: target.to_path_buf(),
                root: PathBuf::from(if is_bind { &mount.source } else { "/" }),
                fs_type: if is_bind { "ext4".to_owned() } else { mount.fs_type },
                source: mount.source,
                options: mount.options,
                device: (0, 102),
                fs_options: Vec::new(),
            });
            Ok(())
        })
    }

    fn format_and_mount(&self, target: &Path, mount: HelperMount) -> Done<()> {
        self.run("format_and_mount", target, |disk, target| {
            fake_devices::format_and_mount(disk, target, mount)
        })
    }

    fn grow_file_system(&self, target: &Path, disk: &Path) -> Done<()> {
        let device = disk.to_path_buf();
        self.run("grow_file_system", target, |disk, target| fake_devices::grow(disk, target, &device))
    }

    fn unmount(&self, target: &Path) -> Done<()> {
        self.run("unmount", target, |disk, target| {
            if fake_devices::is_busy(disk, target) {
                return Err(failed("unmount", target, "Device or resource busy"));
            }
            disk.remove_mounts_at(target);
            Ok(())
        })
    }

    fn make_empty_dir(&self, path: &Path) -> Done<()> {
        self.run("make_empty_dir", path, |disk, path| {
            match disk.kind(path) {
                None => {
                    path.parent().into_iter().for_each(|above| disk.mkdir(above, 0o750));
                    disk.mkdir(path, 0o777);
                }
                Some(FileKind::Directory) => disk.set_mode(path, 0o777),
                Some(_) => return Err(failed("make the emptyDir", path, "Not a directory")),
            }
            Ok(())
        })
    }

    fn make_mount_point(&self, path: &Path) -> Done<()> {
        self.run("make_mount_point", path, |disk, path| {
            match disk.kind(path) {
                None => disk.mkdir(path, 0o750),
                Some(FileKind::Directory) => {}
                Some(_) => return Err(failed("make the mount point", path, "File exists")),
            }
            Ok(())
        })
    }

    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()> {
        let began = tokio::time::Instant::now();
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_path_buf(), began);
        self.run("set_group", path, |disk, path| {
            // The fake disk has no owners; the changed mode shows that the call was made.
            let bits = if group.read_only { 0o2550 } else { 0o2770 };
            match disk.mode(path) {
                Some(mode) => disk.set_mode(path, mode | bits),
                None => return Err(failed("give to the group", path, "No such file or directory")),
            }
            Ok(())
        })
    }

    /// A change that hangs has looked at one file.
    fn group_progress(&self, path: &Path) -> Done<Option<GroupProgress>> {
        let hangs = self.disk.hung().iter().any(|hung| hung == path);
        let began = self.groups.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
        let progress =
            began.filter(|_| hangs).map(|began| GroupProgress { files: 1, since: began.elapsed() });
        std::future::ready(Ok(progress)).boxed()
    }

    /// The fake disk has no owners: everything belongs to root's group.
    fn group_of(&self, path: &Path) -> Done<u32> {
        self.run("group_of", path, |_, _| Ok(0))
    }

    fn is_ready(&self, path: &Path, marker: &Path) -> Done<bool> {
        self.run("is_ready", path, |disk, path| {
            let marked = disk.kind(marker.join(READY)) == Some(FileKind::File);
            Ok(marked && disk.kind(path) == Some(FileKind::Directory))
        })
    }

    fn set_ready(&self, marker: &Path) -> Done<()> {
        self.run("set_ready", marker, |disk, marker| {
            disk.mkdir(marker, 0o750);
            disk.write(marker.join(READY), [], 0o644);
            Ok(())
        })
    }

    fn project(&self, path: &Path, projection: Arc<Projection>) -> Done<bool> {
        self.run("project", path, |disk, path| {
            for name in projection.files.keys() {
                atomic::check_name(name).map_err(|reason| MountError::Refused { reason })?;
            }
            if disk.kind(path) != Some(FileKind::Directory) {
                return Err(failed("write the files of the volume", path, "No such file or directory"));
            }
            projection.nested.iter().for_each(|nested| disk.mkdir(path.join(nested), 0o755));
            Ok(project(disk, path, &projection))
        })
    }

    fn is_projected(&self, path: &Path) -> Done<bool> {
        self.run("is_projected", path, |disk, path| Ok(disk.link_target(path.join(atomic::DATA)).is_some()))
    }

    fn make_subpath(&self, volume: &Path, sub_path: &Path) -> Done<()> {
        self.run("make_subpath", volume, |disk, volume| {
            let mode = disk
                .mode(volume)
                .ok_or_else(|| failed("open the volume", volume, "No such file or directory"))?;
            refuse_outside(disk, volume, sub_path)?;
            if within(disk, volume, sub_path).is_err() {
                disk.mkdir(volume.join(sub_path), mode);
            }
            Ok(())
        })
    }

    fn bind_subpath(&self, volume: &Path, sub_path: &Path, target: &Path) -> Done<()> {
        let source = within(&self.disk, volume, sub_path);
        self.run("bind_subpath", target, |disk, target| {
            let source = source?;
            match mounted_at(disk, target) {
                Some(mount) if mount.root == source => return Ok(()),
                Some(_) => drop(disk.remove_mounts_at(target)),
                None => {}
            }
            disk.remove(target);
            target.parent().into_iter().for_each(|above| disk.mkdir(above, 0o750));
            match disk.kind_followed(&source) {
                Some(FileKind::Directory) => disk.mkdir(target, 0o750),
                _ => disk.write(target, [], 0o640),
            }
            disk.add_mount(MountPoint {
                path: target.to_path_buf(),
                root: source,
                fs_type: "ext4".into(),
                source: "/dev/fake".into(),
                options: vec!["rw".into(), "relatime".into()],
                device: (8, 1),
                fs_options: Vec::new(),
            });
            Ok(())
        })
    }

    fn read_note(&self, note: &Path) -> Done<Option<String>> {
        self.run("read_note", note, |disk, note| match disk.kind(note) {
            None => Ok(None),
            Some(FileKind::File) => {
                let text = String::from_utf8(disk.read(note).unwrap_or_default());
                let text = text.map_err(|_| notes::unreadable(note, "stream did not contain valid UTF-8"))?;
                if text.len() > notes::NOTE_BYTES_MAX {
                    return Err(notes::unreadable(note, "the file is too large"));
                }
                Ok(Some(text))
            }
            Some(_) => Err(notes::unreadable(note, "it is no regular file")),
        })
    }

    fn write_note(&self, note: &Path, text: &str) -> Done<()> {
        self.run("write_note", note, |disk, note| {
            note.parent().into_iter().for_each(|above| disk.mkdir(above, 0o750));
            disk.write(note, text.as_bytes(), 0o600);
            Ok(())
        })
    }

    fn forget(&self, target: &Path, note: &Path) -> Done<()> {
        let note = note.to_path_buf();
        self.run("forget", target, |disk, target| {
            if let Some(mount) = mounted_at(disk, target) {
                return Err(already_mounted(&mount));
            }
            if !disk.children(target).is_empty() {
                return Err(failed("remove", target, "Directory not empty"));
            }
            disk.remove(target);
            disk.remove(&note);
            let above = note.parent().filter(|above| disk.children(above).is_empty());
            if let Some(above) = above {
                disk.remove(above);
            }
            Ok(())
        })
    }

    fn remove_tree(&self, path: &Path) -> Done<()> {
        self.run("remove_tree", path, |disk, path| Ok(fake_remove_tree(disk, path)?))
    }

    fn link_device(&self, device: &Path, link: &Path) -> Done<()> {
        self.run("link_device", link, |disk, link| fake_devices::link(disk, device, link))
    }

    fn unlink_device(&self, link: &Path) -> Done<()> {
        self.run("unlink_device", link, fake_devices::unlink)
    }

    fn map_device(&self, device: &Path, map: &Path, link: &Path) -> Done<()> {
        self.run("map_device", map, |disk, map| fake_devices::map(disk, device, map, link))
    }

    fn is_device_mapped(&self, map: &Path, link: &Path) -> Done<bool> {
        self.run("is_device_mapped", map, |disk, map| Ok(fake_devices::is_mapped(disk, map, link)))
    }

    fn unmap_device(&self, map: &Path) -> Done<()> {
        self.run("unmap_device", map, |disk, map| {
            fake_devices::unmap(disk, map);
            Ok(())
        })
    }

    fn device_bytes(&self, device: &Path) -> Done<u64> {
        self.run("device_bytes", device, |disk, device| match disk.kind_followed(device) {
            Some(_) => Ok(CAPACITY_BYTES),
            None => Err(failed("measure the device", device, "No such file or directory")),
        })
    }

    fn check_host_path(&self, path: &Path, kind: HostPathType) -> Done<()> {
        self.run("check_host_path", path, |disk, path| match kind.judge(disk.kind_followed(path)) {
            PathVerdict::Fine => Ok(()),
            PathVerdict::MakeDirectory => {
                disk.mkdir(path, 0o755);
                Ok(())
            }
            PathVerdict::MakeFile => {
                if path.parent().and_then(|above| disk.kind_followed(above)) != Some(FileKind::Directory) {
                    return Err(failed("make the file", path, "No such file or directory"));
                }
                disk.write(path, [], 0o644);
                Ok(())
            }
            PathVerdict::Wrong(expected) => {
                Err(MountError::HostPathType { path: path.to_path_buf(), expected })
            }
        })
    }

    fn measure(&self, path: &Path, _: Measure) -> Done<VolumeFigures> {
        self.run("measure", path, |disk, path| {
            if disk.kind(path) != Some(FileKind::Directory) {
                return Err(failed("measure", path, "No such file or directory"));
            }
            let used_bytes = disk.files_below(path).values().map(|content| content.len() as u64).sum();
            let inodes_used = disk.paths_below(path).len() as u64;
            Ok(VolumeFigures {
                available_bytes: CAPACITY_BYTES.saturating_sub(used_bytes),
                capacity_bytes: CAPACITY_BYTES,
                used_bytes,
                inodes: INODES,
                inodes_free: INODES.saturating_sub(inodes_used),
                inodes_used,
            })
        })
    }
}

/// The bytes of every file system of the fake.
const CAPACITY_BYTES: u64 = 1 << 30;
/// The inodes of every file system of the fake.
const INODES: u64 = 1 << 16;

/// Makes the layout of the real implementation; directories are numbered, since the fake has no time.
fn project(disk: &FakeDisk, volume: &Path, projection: &Projection) -> bool {
    let before = disk.link_target(volume.join(atomic::DATA)).map(|target| volume.join(target));
    let seen = before.as_ref().map(|before| {
        let files = disk.files_below(before).into_iter();
        files.map(|(path, content)| (path.to_string_lossy().into_owned(), content)).collect()
    });
    let wanted: BTreeMap<String, Vec<u8>> =
        projection.files.iter().map(|(path, file)| (path.clone(), file.content.expose().to_vec())).collect();
    if seen.as_ref() == Some(&wanted) {
        return false;
    }
    let number = before.as_ref().and_then(|before| before.extension()?.to_str()?.parse::<u32>().ok());
    let name = format!("..2026_01_01_00_00_00.{}", number.unwrap_or(0) + 1);
    disk.mkdir(volume.join(&name), 0o755);
    for (path, file) in &projection.files {
        disk.write(volume.join(&name).join(path), file.content.expose(), file.mode);
    }
    let (shown, gone) = (
        atomic::visible(wanted.keys().map(String::as_str)),
        seen.iter().flat_map(|seen| atomic::visible(seen.keys().map(String::as_str))),
    );
    for name in gone.filter(|name| !shown.contains(name)) {
        disk.remove(volume.join(name));
    }
    disk.symlink(volume.join(atomic::DATA), &name);
    for name in shown {
        disk.symlink(volume.join(name), Path::new(atomic::DATA).join(name));
    }
    if let Some(before) = before {
        disk.remove(before);
    }
    true
}

/// Removes a tree by the rule of the real implementation: not with a mount at or below it.
pub(crate) fn fake_remove_tree(disk: &FakeDisk, path: &Path) -> Result<(), RemoveTreeError> {
    if let Some(mount) = disk.mounts().into_iter().find(|mount| mount.path.starts_with(path)) {
        return Err(RemoveTreeError::MountInside { path: path.to_path_buf(), mount: mount.path });
    }
    disk.remove(path);
    Ok(())
}

/// The file at a path within a volume. The fake follows no link there.
fn within(disk: &FakeDisk, volume: &Path, sub_path: &Path) -> Result<PathBuf, MountError> {
    refuse_outside(disk, volume, sub_path)?;
    let path = volume.join(sub_path);
    match disk.kind(&path) {
        Some(_) => Ok(path),
        None => Err(failed("open", &path, "No such file or directory")),
    }
}

fn refuse_outside(disk: &FakeDisk, volume: &Path, sub_path: &Path) -> Result<(), MountError> {
    let invalid = |reason| Err(MountError::InvalidPath { path: sub_path.to_path_buf(), reason });
    if sub_path.components().any(|part| part == std::path::Component::ParentDir) {
        return invalid("the path has a \"..\"");
    }
    if sub_path.is_absolute() {
        return invalid("the path is absolute");
    }
    let mut path = volume.to_path_buf();
    for part in sub_path {
        path.push(part);
        if disk.kind(&path) == Some(FileKind::Symlink) {
            return Err(failed("open", &path, "Too many levels of symbolic links"));
        }
    }
    Ok(())
}

pub(super) fn mounted_at(disk: &FakeDisk, path: &Path) -> Option<MountPoint> {
    disk.mounts().into_iter().rfind(|mount| mount.path == path)
}

pub(super) fn mount_point_kind(
    disk: &FakeDisk,
    operation: &'static str,
    target: &Path,
) -> Result<FileKind, MountError> {
    match disk.kind(target) {
        None => Err(failed(operation, target, "No such file or directory")),
        Some(FileKind::Symlink) => Err(MountError::InvalidPath {
            path: target.to_path_buf(),
            reason: "the mount point is a symbolic link",
        }),
        Some(kind) => Ok(kind),
    }
}

pub(super) fn failed(operation: &'static str, path: &Path, reason: &str) -> MountError {
    MountError::Io { operation, path: path.to_path_buf(), reason: reason.to_owned() }
}

pub(super) fn already_mounted(mount: &MountPoint) -> MountError {
    MountError::AlreadyMounted {
        target: mount.path.clone(),
        by: format!("{} ({})", mount.source, mount.fs_type),
    }
}
