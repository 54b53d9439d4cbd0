use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use futures::FutureExt;
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use tokio::runtime::Handle;

use super::helper::Unmounting;
use super::host_path::PathVerdict;
use super::{
    Done, FileKind, GroupProgress, HelperMount, HostPathType, Measure, MountError, MountPoint, Mounts,
    Projection, SwapFacts, TmpfsOptions, VolumeFigures, VolumeGroup, atomic, check_path, devices, format,
    grow, helper, measure::Looks, mountinfo, notes, ownership, subpath, swap,
};
use crate::host::remove_tree;
use crate::tenant_files;
use bridge_io::{Keys, Lane};

/// The most mounts on top of each other that one unmount removes.
const STACKED_MOUNTS_MAX: usize = 16;
/// The file whose existence means that a volume was set up completely.
pub(super) const READY: &str = "ready";

/// This machine's mounts. System calls run on the blocking threads of the I/O runtime.
#[derive(Debug, Clone)]
pub struct SystemMounts {
    /// For mountinfo and the kubelet's own directories, which answer at once.
    lane: Lane,
    /// For what lies on volumes and paths that pods name, which may be on a server that does not answer.
    touching: Lane,
    shares: Keys,
    unmounting: Unmounting,
    looks: Looks,
    changes: ownership::Changes,
    /// Whether a tmpfs can be mounted with `noswap`; determined once.
    noswap: Arc<OnceLock<bool>>,
}

impl SystemMounts {
    /// The mounts of this process' mount namespace.
    pub fn new(io: Handle) -> Self {
        let lane = Lane::new("VolumeManager", io);
        Self {
            looks: Looks::new(&lane),
            touching: lane.wide_beside("VolumeManager, at volumes"),
            shares: Keys::default(),
            unmounting: Unmounting::new(&lane),
            changes: ownership::Changes::default(),
            lane,
            noswap: Arc::default(),
        }
    }

    fn run<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
    ) -> Done<T> {
        run_in(&self.lane, path, work)
    }

    /// As [`run`](Self::run), for work that may hang at a volume.
    fn touch<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
    ) -> Done<T> {
        let Some(share) = share_of_pod(path) else { return run_in(&self.touching, path, work) };
        let (lane, shares, path) = (self.touching.clone(), self.shares.clone(), path.to_path_buf());
        async move {
            let turn = shares.turn(share).await;
            let work = move |path: &Path| {
                let _until_it_ends = turn;
                work(path)
            };
            run_in(&lane, &path, work).await
        }
        .boxed()
    }
}

/// How many threads one pod's volumes may keep busy: they may hold as many files as their pod likes, or not answer.
const POD_THREADS_MAX: usize = 4;

/// The share of the threads that work at a path below a pod's directory takes: paths of one pod share a few.
fn share_of_pod(path: &Path) -> Option<String> {
    let uid = path.iter().skip_while(|part| *part != "pods").nth(1)?;
    let number = path.as_os_str().as_encoded_bytes().iter().map(|byte| usize::from(*byte)).sum::<usize>();
    Some(format!("{}#{}", uid.display(), number % POD_THREADS_MAX))
}

/// Runs the work for a path, after all earlier work for it in any lane.
pub(super) fn run_in<T: Send + 'static>(
    lane: &Lane,
    path: &Path,
    work: impl FnOnce(&Path) -> Result<T, MountError> + Send + 'static,
) -> Done<T> {
    let path = path.to_path_buf();
    lane.run_alone(path.display().to_string(), move || {
        check_path(&path)?;
        work(&path)
    })
}

impl Mounts for SystemMounts {
    fn for_namespace(&self, namespace: &str) -> Arc<dyn Mounts> {
        Arc::new(Self {
            lane: self.lane.of_tenant(namespace),
            touching: self.touching.of_tenant(namespace),
            unmounting: self.unmounting.of_tenant(namespace),
            looks: self.looks.of_tenant(namespace),
            ..self.clone()
        })
    }

    fn list_below(&self, path: &Path) -> Done<Vec<MountPoint>> {
        self.run(path, list_below)
    }

    fn count(&self) -> Done<usize> {
        self.lane.run(|| Ok(read_mounts(Path::new("/"))?.count()))
    }

    fn is_mount_point(&self, path: &Path) -> Done<bool> {
        self.run(path, |path| Ok(mounted_at(path)?.is_some()))
    }

    fn swap(&self) -> Done<SwapFacts> {
        let noswap = self.noswap.clone();
        self.lane.run(move || {
            Ok(SwapFacts { on: swap::is_on(), noswap: *noswap.get_or_init(swap::noswap_is_there) })
        })
    }

    fn mount_tmpfs(&self, target: &Path, options: TmpfsOptions) -> Done<()> {
        let noswap = self.noswap.clone();
        self.run(target, move |target| {
            mount_tmpfs(target, options, *noswap.get_or_init(swap::noswap_is_there))
        })
    }

    fn mount_huge_pages(&self, target: &Path, page_bytes: u64) -> Done<()> {
        self.run(target, move |target| {
            let data = format!("pagesize={page_bytes}");
            mount_memory("mount huge pages at", target, ("nodev", "hugetlbfs"), data)
        })
    }

    fn bind(&self, source: &Path, target: &Path, read_only: bool) -> Done<()> {
        let source = source.to_path_buf();
        self.touch(target, move |target| {
            check_path(&source)?;
            bind(&source, target, read_only)
        })
    }

    fn unmount(&self, target: &Path) -> Done<()> {
        self.unmounting.unmount(target)
    }

    fn mount_by_helper(&self, target: &Path, mount: HelperMount) -> Done<()> {
        helper::mount(&self.lane, target, mount)
    }

    fn format_and_mount(&self, target: &Path, mount: HelperMount) -> Done<()> {
        format::format_and_mount(&self.lane, target, mount)
    }

    fn grow_file_system(&self, target: &Path, disk: &Path) -> Done<()> {
        grow::grow(&self.lane, target, disk)
    }

    fn make_empty_dir(&self, path: &Path) -> Done<()> {
        self.run(path, make_empty_dir)
    }

    fn make_mount_point(&self, path: &Path) -> Done<()> {
        self.run(path, make_mount_point)
    }

    fn set_group(&self, path: &Path, group: VolumeGroup) -> Done<()> {
        let changes = self.changes.clone();
        self.touch(path, move |path| changes.set_group(path, group))
    }

    fn group_progress(&self, path: &Path) -> Done<Option<GroupProgress>> {
        Box::pin(std::future::ready(Ok(self.changes.progress(path))))
    }

    fn group_of(&self, path: &Path) -> Done<u32> {
        self.touch(path, |path| Ok(fs::metadata(path).map_err(failed("look at", path))?.gid()))
    }

    fn is_ready(&self, path: &Path, marker: &Path) -> Done<bool> {
        let marker = marker.to_path_buf();
        self.run(path, move |path| {
            let marked = fs::symlink_metadata(marker.join(READY)).is_ok_and(|found| found.is_file());
            // A mount is there by the kernel's table: to look at it would be to wait for its server, which may never answer.
            let is_there = || {
                let mounted = mounted_at(path)?.is_some();
                Ok(mounted || fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()))
            };
            if marked { is_there() } else { Ok(false) }
        })
    }

    fn set_ready(&self, marker: &Path) -> Done<()> {
        self.run(marker, set_ready)
    }

    fn project(&self, path: &Path, projection: Arc<Projection>) -> Done<bool> {
        self.run(path, move |path| {
            atomic::make_nested(path, &projection.nested)?;
            atomic::project(path, &projection)
        })
    }

    fn is_projected(&self, path: &Path) -> Done<bool> {
        self.run(path, |path| Ok(fs::read_link(path.join(atomic::DATA)).is_ok()))
    }

    fn make_subpath(&self, volume: &Path, sub_path: &Path) -> Done<()> {
        let sub_path = sub_path.to_path_buf();
        self.touch(volume, move |volume| subpath::make_subpath(volume, &sub_path))
    }

    fn bind_subpath(&self, volume: &Path, sub_path: &Path, target: &Path) -> Done<()> {
        let (volume, sub_path) = (volume.to_path_buf(), sub_path.to_path_buf());
        self.touch(target, move |target| {
            check_path(&volume)?;
            subpath::bind_subpath(&volume, &sub_path, target)
        })
    }

    fn remove_tree(&self, path: &Path) -> Done<()> {
        let path = path.to_path_buf();
        self.lane.remove(path.display().to_string(), move || {
            check_path(&path)?;
            Ok(remove_tree::remove_tree(&path)?)
        })
    }

    fn read_note(&self, note: &Path) -> Done<Option<String>> {
        self.run(note, notes::read)
    }

    fn write_note(&self, note: &Path, text: &str) -> Done<()> {
        let text = text.to_owned();
        self.run(note, move |note| notes::write(note, &text))
    }

    fn forget(&self, target: &Path, note: &Path) -> Done<()> {
        let note = note.to_path_buf();
        self.run(target, move |target| {
            check_path(&note)?;
            notes::forget(target, &note)
        })
    }

    fn link_device(&self, device: &Path, link: &Path) -> Done<()> {
        let device = device.to_path_buf();
        self.run(link, move |link| devices::link(&device, link))
    }

    fn unlink_device(&self, link: &Path) -> Done<()> {
        self.run(link, devices::unlink)
    }

    fn map_device(&self, device: &Path, map: &Path, link: &Path) -> Done<()> {
        devices::map(&self.lane, device, map, link)
    }

    fn is_device_mapped(&self, map: &Path, link: &Path) -> Done<bool> {
        let link = link.to_path_buf();
        self.run(map, move |map| devices::is_mapped(map, &link))
    }

    fn unmap_device(&self, map: &Path) -> Done<()> {
        devices::unmap(&self.lane, map)
    }

    fn device_bytes(&self, device: &Path) -> Done<u64> {
        self.run(device, devices::bytes)
    }

    fn check_host_path(&self, path: &Path, kind: HostPathType) -> Done<()> {
        self.touch(path, move |path| check_host_path(path, kind))
    }

    fn measure(&self, path: &Path, how: Measure) -> Done<VolumeFigures> {
        self.looks.measure(path, how)
    }
}

pub(super) fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> MountError {
    let path = path.to_path_buf();
    move |error| MountError::Io { operation, path, reason: error.to_string() }
}

fn read_mounts(path: &Path) -> Result<Arc<mountinfo::MountTable>, MountError> {
    mountinfo::read().map_err(failed("list the mounts below", path))
}

fn list_below(path: &Path) -> Result<Vec<MountPoint>, MountError> {
    // The kernel lists real paths; the caller gets paths that begin as its own.
    let real = fs::canonicalize(path).unwrap_or_else(|_| remove_tree::real_path(path));
    let mut found: Vec<_> = read_mounts(path)?.at_or_below(&real).collect();
    for mount in &mut found {
        if let Ok(below) = mount.path.strip_prefix(&real) {
            // Joining an empty path would add a slash.
            mount.path = if below.as_os_str().is_empty() { path.to_path_buf() } else { path.join(below) };
        }
    }
    Ok(found)
}

/// The visible mount at `path`: the last one that was made there.
pub(super) fn mounted_at(path: &Path) -> Result<Option<MountPoint>, MountError> {
    let real = remove_tree::real_path(path);
    Ok(read_mounts(path)?.at(&real))
}

pub(super) fn already_mounted(mount: &MountPoint) -> MountError {
    MountError::AlreadyMounted {
        target: mount.path.clone(),
        by: format!("{} ({})", mount.source, mount.fs_type),
    }
}

/// Refuses a link at the target, through which the mount would end up elsewhere.
pub(super) fn refuse_symlink(operation: &'static str, target: &Path) -> Result<(), MountError> {
    if fs::symlink_metadata(target).map_err(failed(operation, target))?.file_type().is_symlink() {
        return Err(MountError::InvalidPath {
            path: target.to_path_buf(),
            reason: "the mount point is a symbolic link",
        });
    }
    Ok(())
}

fn mount_tmpfs(target: &Path, options: TmpfsOptions, noswap: bool) -> Result<(), MountError> {
    let mut data = format!("mode={:o}", options.mode & 0o7777);
    if let Some(bytes) = options.size_bytes {
        data.push_str(&format!(",size={bytes}"));
    }
    if noswap {
        data.push(',');
        data.push_str(swap::NOSWAP);
    }
    mount_memory("mount a tmpfs at", target, ("tmpfs", "tmpfs"), data)
}

/// Mounts a file system that needs no disk, with this source and type.
fn mount_memory(
    operation: &'static str,
    target: &Path,
    (source, fs_type): (&str, &str),
    data: String,
) -> Result<(), MountError> {
    match mounted_at(target)? {
        Some(mount) if mount.fs_type == fs_type => return Ok(()),
        Some(mount) => return Err(already_mounted(&mount)),
        None => {}
    }
    refuse_symlink(operation, target)?;
    let data = std::ffi::CString::new(data).expect("digits and letters hold no NUL");
    rustix::mount::mount(source, target, fs_type, MountFlags::empty(), data.as_c_str())
        .map_err(|errno| failed(operation, target)(errno.into()))
}

fn bind(source: &Path, target: &Path, read_only: bool) -> Result<(), MountError> {
    const OPERATION: &str = "bind at";
    let wanted = fs::metadata(source).map_err(failed("bind", source))?;
    refuse_symlink(OPERATION, target)?;
    let mut mount = mounted_at(target)?;
    if let Some(there) = &mount {
        let seen = fs::metadata(target).map_err(failed(OPERATION, target))?;
        if (seen.dev(), seen.ino()) != (wanted.dev(), wanted.ino()) {
            return Err(already_mounted(there));
        }
    } else {
        rustix::mount::mount_bind(source, target).map_err(|errno| failed(OPERATION, target)(errno.into()))?;
        mount = mounted_at(target)?;
    }
    if !read_only || mount.as_ref().is_some_and(MountPoint::read_only) {
        return Ok(());
    }
    // A bind mount ignores options at first: only a remount makes it read-only, and that would drop the restrictions of
    // the source's mount unless they are repeated.
    let kept = mount.map(|mount| kept_flags(&mount.options)).unwrap_or(MountFlags::empty());
    let flags = MountFlags::BIND | MountFlags::RDONLY | kept;
    rustix::mount::mount_remount(target, flags, c"").map_err(|errno| {
        // A mount that should be read-only must not stay writable.
        let _ = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
        failed("make read-only", target)(errno.into())
    })
}

fn kept_flags(options: &[String]) -> MountFlags {
    options.iter().fold(MountFlags::empty(), |flags, option| {
        flags
            | match option.as_str() {
                "nosuid" => MountFlags::NOSUID,
                "nodev" => MountFlags::NODEV,
                "noexec" => MountFlags::NOEXEC,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            }
    })
}

pub(super) fn unmount(target: &Path) -> Result<(), MountError> {
    for _ in 0..STACKED_MOUNTS_MAX {
        if mounted_at(target)?.is_none() {
            return Ok(());
        }
        match rustix::mount::unmount(target, UnmountFlags::NOFOLLOW) {
            // Another process has unmounted it; the next check decides.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(failed("unmount", target)(errno.into())),
        }
    }
    if mounted_at(target)?.is_none() {
        return Ok(());
    }
    Err(failed("unmount", target)(io::Error::other("too many mounts are stacked there")))
}

fn make_empty_dir(path: &Path) -> Result<(), MountError> {
    const OPERATION: &str = "make the emptyDir";
    if let Some(above) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o750).create(above).map_err(failed(OPERATION, path))?;
    }
    match fs::DirBuilder::new().mode(0o777).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed(OPERATION, path)(error));
        }
        _ => {}
    }
    // The umask has removed bits: set them through a descriptor, which cannot be a link.
    let directory = fs::OpenOptions::new()
        .read(true)
        .custom_flags((OFlags::DIRECTORY | OFlags::NOFOLLOW).bits() as i32)
        .open(path)
        .map_err(failed(OPERATION, path))?;
    directory.set_permissions(fs::Permissions::from_mode(0o777)).map_err(failed(OPERATION, path))
}

fn make_mount_point(path: &Path) -> Result<(), MountError> {
    const OPERATION: &str = "make the mount point";
    // What is mounted there already may not answer.
    if mounted_at(path)?.is_some() {
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(failed(OPERATION, path))
}

fn set_ready(marker: &Path) -> Result<(), MountError> {
    const OPERATION: &str = "mark a volume ready in";
    fs::DirBuilder::new().recursive(true).mode(0o750).create(marker).map_err(failed(OPERATION, marker))?;
    tenant_files::write(&marker.join(READY), 0o644).map(drop).map_err(failed(OPERATION, marker))
}

fn check_host_path(path: &Path, kind: HostPathType) -> Result<(), MountError> {
    if kind == HostPathType::Unset {
        return Ok(());
    }
    let found = fs::metadata(path).ok().and_then(|metadata| kind_of(metadata.file_type()));
    match kind.judge(found) {
        PathVerdict::Fine => Ok(()),
        PathVerdict::MakeDirectory => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(path)
            .map_err(failed("make the directory", path)),
        PathVerdict::MakeFile => {
            tenant_files::make_followed(path, 0o644).map_err(failed("make the file", path))
        }
        PathVerdict::Wrong(expected) => Err(MountError::HostPathType { path: PathBuf::from(path), expected }),
    }
}

fn kind_of(file_type: fs::FileType) -> Option<FileKind> {
    Some(match file_type {
        t if t.is_dir() => FileKind::Directory,
        t if t.is_file() => FileKind::File,
        t if t.is_socket() => FileKind::Socket,
        t if t.is_char_device() => FileKind::CharDevice,
        t if t.is_block_device() => FileKind::BlockDevice,
        t if t.is_fifo() => FileKind::Fifo,
        t if t.is_symlink() => FileKind::Symlink,
        _ => return None,
    })
}
