use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;

use super::host_path::PathVerdict;
use super::sys::READY;
use super::{
    Done, FileKind, HostPathType, MountError, MountPoint, Mounts, Projection, SwapFacts, TmpfsOptions,
    VolumeFigures, VolumeGroup, atomic, check_path,
};
use crate::host::{FakeDisk, RemoveTreeError};

/// Mounts on a [`FakeDisk`]. Operations take effect when they are called.
#[derive(Debug, Clone)]
pub struct FakeMounts {
    disk: FakeDisk,
}

impl FakeMounts {
    /// Mounts on `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk }
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
    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>> {
        self.run("list_below", path, |disk, path| {
            Ok(disk.mounts().into_iter().filter(|mount| mount.path.starts_with(path)).collect())
        })
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
            if let Some(mount) = mounted_at(disk, target) {
                if mount.root != source {
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
                root: source.to_path_buf(),
                fs_type: "ext4".into(),
                source: "/dev/fake".into(),
                options: vec![if read_only { "ro" } else { "rw" }.into(), "relatime".into()],
                device: (8, 1),
                fs_options: Vec::new(),
            });
            Ok(())
        })
    }

    fn unmount(&self, target: &Path) -> Done<()> {
        self.run("unmount", target, |disk, target| {
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

    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()> {
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

    fn remove_tree(&self, path: &Path) -> Done<()> {
        self.run("remove_tree", path, |disk, path| Ok(fake_remove_tree(disk, path)?))
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

    fn measure(&self, path: &Path) -> Done<VolumeFigures> {
        self.run("measure", path, |disk, path| {
            if disk.kind(path) != Some(FileKind::Directory) {
                return Err(failed("measure", path, "No such file or directory"));
            }
            let files = disk.files_below(path);
            let used_bytes = files.values().map(|content| content.len() as u64).sum();
            let inodes_used = 1 + files.len() as u64;
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

/// The bytes and inodes of every file system of the fake.
const CAPACITY_BYTES: u64 = 1 << 30;
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

fn mounted_at(disk: &FakeDisk, path: &Path) -> Option<MountPoint> {
    disk.mounts().into_iter().rfind(|mount| mount.path == path)
}

fn mount_point_kind(disk: &FakeDisk, operation: &'static str, target: &Path) -> Result<FileKind, MountError> {
    match disk.kind(target) {
        None => Err(failed(operation, target, "No such file or directory")),
        Some(FileKind::Symlink) => Err(MountError::InvalidPath {
            path: target.to_path_buf(),
            reason: "the mount point is a symbolic link",
        }),
        Some(kind) => Ok(kind),
    }
}

fn failed(operation: &'static str, path: &Path, reason: &str) -> MountError {
    MountError::Io { operation, path: path.to_path_buf(), reason: reason.to_owned() }
}

fn already_mounted(mount: &MountPoint) -> MountError {
    MountError::AlreadyMounted {
        target: mount.path.clone(),
        by: format!("{} ({})", mount.source, mount.fs_type),
    }
}
