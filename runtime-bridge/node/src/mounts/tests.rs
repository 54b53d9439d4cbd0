use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::*;
use crate::host::FakeDisk;

/// A tmpfs that is unmounted with the guard; `None`, with the reason printed, where this process may not mount.
pub(crate) fn small_tmpfs(target: &Path, size_bytes: u64) -> Option<MountGuard> {
    let data = std::ffi::CString::new(format!("size={size_bytes}")).unwrap();
    match rustix::mount::mount("tmpfs", target, "tmpfs", rustix::mount::MountFlags::empty(), data.as_c_str())
    {
        Ok(()) => Some(MountGuard(target.to_path_buf())),
        Err(errno) => {
            eprintln!("skipped: this process may not mount: {errno}");
            None
        }
    }
}

/// Unmounts when dropped.
pub(crate) struct MountGuard(PathBuf);

impl Drop for MountGuard {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A mount whose server never answers, until what is returned is dropped; `None` where there can be none.
pub(crate) fn silent_mount(target: &Path) -> Option<(MountGuard, fs::File)> {
    use std::os::fd::AsRawFd;
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", fuse.as_raw_fd());
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("silent", target, "fuse", flags, options.as_c_str()).ok()?;
    Some((MountGuard(target.to_path_buf()), fuse))
}

#[tokio::test]
async fn a_mount_that_does_not_answer_is_not_touched_to_see_that_it_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (target, marker) = (root.join("v"), root.join("marker"));
    fs::create_dir(&target).unwrap();
    let Some((_guard, fuse)) = silent_mount(&target) else { return };
    let mounts = SystemMounts::new(Handle::current());
    mounts.set_ready(&marker).await.unwrap();
    let patience = std::time::Duration::from_secs(30);
    let ready = tokio::time::timeout(patience, mounts.is_ready(&target, &marker)).await;
    let made = tokio::time::timeout(patience, mounts.make_mount_point(&target)).await;
    // What hangs is let go.
    drop(fuse);
    assert_eq!((ready, made), (Ok(Ok(true)), Ok(Ok(()))));
}

/// The disk below the mounts, as a test prepares and inspects it.
pub(crate) trait Disk {
    fn root(&self) -> PathBuf;
    fn mkdir(&self, path: &Path);
    fn write(&self, path: &Path, content: &[u8]);
    fn symlink(&self, path: &Path, target: &Path);
    fn special(&self, path: &Path, kind: FileKind);
    fn remove(&self, path: &Path);
    fn kind(&self, path: &Path) -> Option<FileKind>;
    fn mode(&self, path: &Path) -> Option<u32>;
    fn read(&self, path: &Path) -> Option<Vec<u8>>;
}

pub(crate) struct TempDisk(pub tempfile::TempDir);

impl TempDisk {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Disk for TempDisk {
    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }
    fn mkdir(&self, path: &Path) {
        fs::create_dir_all(path).unwrap();
    }
    fn write(&self, path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fn symlink(&self, path: &Path, target: &Path) {
        symlink(target, path).unwrap();
    }
    fn special(&self, path: &Path, kind: FileKind) {
        match kind {
            FileKind::Socket => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
            FileKind::Fifo => {
                let mode = rustix::fs::Mode::RUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            // Making a device needs root; a link to one that always exists serves as well.
            FileKind::CharDevice => symlink("/dev/null", path).unwrap(),
            other => panic!("a test cannot make a {other:?}"),
        }
    }
    fn remove(&self, path: &Path) {
        match fs::symlink_metadata(path).unwrap().is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    fn kind(&self, path: &Path) -> Option<FileKind> {
        let kind = fs::symlink_metadata(path).ok()?.file_type();
        Some(match kind {
            kind if kind.is_dir() => FileKind::Directory,
            kind if kind.is_file() => FileKind::File,
            kind if kind.is_symlink() => FileKind::Symlink,
            kind if kind.is_socket() => FileKind::Socket,
            kind => panic!("{kind:?}"),
        })
    }
    fn mode(&self, path: &Path) -> Option<u32> {
        Some(fs::symlink_metadata(path).ok()?.permissions().mode() & 0o7777)
    }
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        fs::read(path).ok()
    }
}

impl Disk for FakeDisk {
    fn root(&self) -> PathBuf {
        PathBuf::from("/fake")
    }
    fn mkdir(&self, path: &Path) {
        FakeDisk::mkdir(self, path, 0o755);
    }
    fn write(&self, path: &Path, content: &[u8]) {
        FakeDisk::write(self, path, content, 0o644);
    }
    fn symlink(&self, path: &Path, target: &Path) {
        FakeDisk::symlink(self, path, target);
    }
    fn special(&self, path: &Path, kind: FileKind) {
        FakeDisk::special(self, path, kind);
    }
    fn remove(&self, path: &Path) {
        assert!(FakeDisk::remove(self, path));
    }
    fn kind(&self, path: &Path) -> Option<FileKind> {
        FakeDisk::kind(self, path)
    }
    fn mode(&self, path: &Path) -> Option<u32> {
        FakeDisk::mode(self, path)
    }
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        FakeDisk::read(self, path)
    }
}

/// The part of the contract that needs no right to mount.
async fn directories_contract(mounts: Arc<dyn Mounts>, disk: &dyn Disk) {
    let root = disk.root();
    for bad in ["relative", "/a/../b"] {
        let error = mounts.unmount(Path::new(bad)).await.unwrap_err();
        assert!(matches!(error, MountError::InvalidPath { .. }), "{bad}: {error}");
    }

    let empty_dir = root.join("pods/u/volumes/kubernetes.io~empty-dir/v");
    mounts.make_empty_dir(&empty_dir).await.unwrap();
    assert_eq!(disk.mode(&empty_dir), Some(0o777));
    assert_eq!(disk.mode(empty_dir.parent().unwrap()), Some(0o750));
    disk.write(&empty_dir.join("kept"), b"1");
    mounts.make_empty_dir(&empty_dir).await.unwrap();
    assert_eq!(disk.read(&empty_dir.join("kept")).as_deref(), Some(&b"1"[..]));
    disk.write(&root.join("file"), b"");
    assert!(matches!(mounts.make_empty_dir(&root.join("file")).await, Err(MountError::Io { .. })));

    assert_eq!(mounts.is_mount_point(&empty_dir).await, Ok(false));
    assert_eq!(mounts.is_mount_point(&root.join("missing")).await, Ok(false));
    assert_eq!(mounts.list_below(&root).await, Ok(vec![]));
    mounts.unmount(&empty_dir).await.unwrap();
    mounts.unmount(&root.join("missing")).await.unwrap();

    let marker = root.join("pods/u/plugins/kubernetes.io~empty-dir/v");
    assert_eq!(mounts.is_ready(&empty_dir, &marker).await, Ok(false));
    mounts.set_ready(&marker).await.unwrap();
    mounts.set_ready(&marker).await.unwrap();
    assert_eq!(disk.kind(&marker.join("ready")), Some(FileKind::File));
    assert_eq!(mounts.is_ready(&empty_dir, &marker).await, Ok(true));
    assert_eq!(mounts.is_ready(&root.join("missing"), &marker).await, Ok(false));
    subpaths(&*mounts, disk, &empty_dir).await;

    disk.symlink(&empty_dir.join("link"), &root.join("file"));
    mounts.remove_tree(&empty_dir).await.unwrap();
    mounts.remove_tree(&empty_dir).await.unwrap();
    assert_eq!(disk.kind(&empty_dir), None);
    assert_eq!(disk.kind(&root.join("file")), Some(FileKind::File));
}

/// Parts of volumes (row 10.20), without mounts.
async fn subpaths(mounts: &dyn Mounts, disk: &dyn Disk, volume: &Path) {
    let root = disk.root();
    mounts.make_subpath(volume, Path::new("a/b")).await.unwrap();
    mounts.make_subpath(volume, Path::new("a/b")).await.unwrap();
    assert_eq!((disk.mode(&volume.join("a")), disk.mode(&volume.join("a/b"))), (Some(0o777), Some(0o777)));
    mounts.make_subpath(volume, Path::new("kept")).await.unwrap();
    assert_eq!(disk.kind(&volume.join("kept")), Some(FileKind::File));
    disk.symlink(&volume.join("out"), &root);
    let _binding_it_fails = mounts.make_subpath(volume, Path::new("out/x")).await;
    for bad in ["../x", "/x"] {
        assert!(mounts.make_subpath(volume, Path::new(bad)).await.is_err(), "{bad}");
    }
    for bad in ["../x", "/x", "out", "out/x", "missing"] {
        let bound = mounts.bind_subpath(volume, Path::new(bad), &root.join("subpaths/v/c/0")).await;
        assert!(bound.is_err(), "{bad}");
    }
    assert!(mounts.make_subpath(&root.join("missing"), Path::new("a")).await.is_err());
    assert_eq!(disk.kind(&root.join("x")), None);
    disk.remove(&volume.join("out"));
}

/// Types of hostPath volumes (row 10.5).
async fn host_path_contract(mounts: Arc<dyn Mounts>, disk: &dyn Disk) {
    use HostPathType as T;
    let root = disk.root();
    let at = |name: &str| root.join(name);
    disk.mkdir(&at("dir"));
    disk.write(&at("file"), b"1");
    disk.special(&at("socket"), FileKind::Socket);
    disk.special(&at("char"), FileKind::CharDevice);
    disk.symlink(&at("link"), &at("dir"));
    disk.symlink(&at("dangling"), &at("nothing"));

    for (name, kind) in [
        ("dir", T::Directory),
        ("dir", T::DirectoryOrCreate),
        ("link", T::Directory),
        ("file", T::File),
        ("file", T::FileOrCreate),
        ("socket", T::Socket),
        ("char", T::CharDevice),
        ("missing", T::Unset),
    ] {
        assert_eq!(mounts.check_host_path(&at(name), kind).await, Ok(()), "{name} {kind:?}");
    }
    for (name, kind, words) in [
        ("file", T::Directory, "directory"),
        ("file", T::DirectoryOrCreate, "directory"),
        ("missing", T::Directory, "directory"),
        ("dangling", T::Directory, "directory"),
        ("dir", T::File, "file"),
        ("dir", T::FileOrCreate, "file"),
        ("missing", T::File, "file"),
        ("file", T::Socket, "socket file"),
        ("missing", T::Socket, "socket file"),
        ("socket", T::CharDevice, "character device"),
        ("char", T::BlockDevice, "block device"),
    ] {
        let error = mounts.check_host_path(&at(name), kind).await.unwrap_err();
        let expected = format!("hostPath type check failed: {} is not a {words}", at(name).display());
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(disk.read(&at("file")).as_deref(), Some(&b"1"[..]));

    mounts.check_host_path(&at("new/dir"), T::DirectoryOrCreate).await.unwrap();
    assert_eq!(
        (disk.kind(&at("new/dir")), disk.mode(&at("new/dir"))),
        (Some(FileKind::Directory), Some(0o755))
    );
    mounts.check_host_path(&at("new/file"), T::FileOrCreate).await.unwrap();
    assert_eq!((disk.kind(&at("new/file")), disk.mode(&at("new/file"))), (Some(FileKind::File), Some(0o644)));
    assert!(matches!(
        mounts.check_host_path(&at("no/such/file"), T::FileOrCreate).await,
        Err(MountError::Io { .. })
    ));
}

/// The part of the contract that needs the right to mount.
async fn mounting_contract(mounts: Arc<dyn Mounts>, disk: &dyn Disk) {
    let root = disk.root();
    let (memory, source, target) = (root.join("vol mem"), root.join("source"), root.join("target"));
    disk.mkdir(&memory);
    disk.mkdir(&target);
    disk.write(&source.join("f"), b"1");
    let options = TmpfsOptions { size_bytes: Some(1 << 20), mode: 0o777 };

    assert!(matches!(mounts.mount_tmpfs(&root.join("no"), options).await, Err(MountError::Io { .. })));
    mounts.mount_tmpfs(&memory, options).await.unwrap();
    mounts.mount_tmpfs(&memory, options).await.unwrap();
    assert_eq!(disk.mode(&memory), Some(0o777));
    assert_eq!(mounts.is_mount_point(&memory).await, Ok(true));

    mounts.bind(&source, &target, false).await.unwrap();
    mounts.bind(&source, &target, false).await.unwrap();
    let listed = mounts.list_below(&root).await.unwrap();
    assert_eq!(listed.iter().map(|mount| &mount.path).collect::<Vec<_>>(), [&memory, &target]);
    assert_eq!(listed[0].fs_type, "tmpfs");
    let kept = listed[0].fs_options.iter().any(|option| option == "noswap");
    assert_eq!(Ok(kept), mounts.swap().await.map(|swap| swap.noswap));
    assert!(!listed[1].read_only());
    mounts.bind(&source, &target, true).await.unwrap();
    let listed = mounts.list_below(&target).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(listed[0].read_only());
    assert!(matches!(mounts.bind(&root, &target, false).await, Err(MountError::AlreadyMounted { .. })));
    assert!(matches!(mounts.mount_tmpfs(&target, options).await, Err(MountError::AlreadyMounted { .. })));
    assert!(matches!(mounts.bind(&root.join("no"), &target, false).await, Err(MountError::Io { .. })));

    let parts = root.join("volume-subpaths/v/c");
    disk.mkdir(&source.join("d"));
    for (index, part) in ["f", "d"].into_iter().enumerate() {
        let target = parts.join(index.to_string());
        mounts.bind_subpath(&source, Path::new(part), &target).await.unwrap();
        mounts.bind_subpath(&source, Path::new(part), &target).await.unwrap();
        assert_eq!(mounts.list_below(&target).await.map(|found| found.len()), Ok(1), "{part}");
    }
    // Another part at the same place replaces the first one.
    mounts.bind_subpath(&source, Path::new("d"), &parts.join("0")).await.unwrap();
    assert_eq!(mounts.list_below(&parts).await.map(|found| found.len()), Ok(2));
    for index in ["0", "1"] {
        mounts.unmount(&parts.join(index)).await.unwrap();
    }

    disk.symlink(&root.join("link"), &source);
    let through_link = mounts.bind(&memory, &root.join("link"), false).await;
    assert!(matches!(through_link, Err(MountError::InvalidPath { .. })), "{through_link:?}");

    match mounts.remove_tree(&root).await {
        Err(MountError::RemoveTree(RemoveTreeError::MountInside { path, mount })) => {
            assert_eq!((path, mount), (root.clone(), memory.clone()));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        mounts.mount_huge_pages(&memory, 2 << 20).await,
        Err(MountError::AlreadyMounted { .. })
    ));
    mounts.unmount(&memory).await.unwrap();
    mounts.unmount(&target).await.unwrap();
    mounts.unmount(&target).await.unwrap();
    assert_eq!(mounts.list_below(&root).await, Ok(vec![]));
    assert_eq!(disk.read(&source.join("f")).as_deref(), Some(&b"1"[..]));
    mounts.remove_tree(&source).await.unwrap();
    assert_eq!(disk.kind(&source), None);
}

#[tokio::test]
async fn fake_mounts_keep_the_contract() {
    let fake = || {
        let disk = FakeDisk::new();
        Disk::mkdir(&disk, &disk.root());
        (Arc::new(FakeMounts::new(disk.clone())), disk)
    };
    let (mounts, disk) = fake();
    directories_contract(mounts, &disk).await;
    let (mounts, disk) = fake();
    host_path_contract(mounts, &disk).await;
    let (mounts, disk) = fake();
    mounting_contract(mounts, &disk).await;
}

#[tokio::test]
async fn real_directories_keep_the_contract() {
    let mounts = Arc::new(SystemMounts::new(Handle::current()));
    directories_contract(mounts.clone(), &TempDisk::new()).await;
    host_path_contract(mounts, &TempDisk::new()).await;
}

#[tokio::test]
async fn real_mounts_keep_the_contract() {
    let disk = TempDisk::new();
    if small_tmpfs(&disk.root(), 4096).is_none() {
        return;
    }
    mounting_contract(Arc::new(SystemMounts::new(Handle::current())), &disk).await;
}

#[tokio::test]
async fn huge_pages_are_mounted_where_the_kernel_has_them() {
    let disk = TempDisk::new();
    let pages = disk.root().join("pages");
    disk.mkdir(&pages);
    let Some(guard) = small_tmpfs(&pages, 4096) else { return };
    drop(guard);
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists() {
        eprintln!("skipped: this kernel has no huge pages of 2 MiB");
        return;
    }
    let mounts = SystemMounts::new(Handle::current());
    mounts.mount_huge_pages(&pages, 2 << 20).await.unwrap();
    mounts.mount_huge_pages(&pages, 2 << 20).await.unwrap();
    let listed = mounts.list_below(&pages).await.unwrap();
    assert_eq!(listed.iter().map(|mount| mount.fs_type.as_str()).collect::<Vec<_>>(), ["hugetlbfs"]);
    mounts.unmount(&pages).await.unwrap();
    assert_eq!(mounts.list_below(&pages).await, Ok(vec![]));
}

#[tokio::test]
async fn a_real_mount_is_seen_through_a_link_stacked_and_busy() {
    let disk = TempDisk::new();
    let (real, link) = (disk.root().join("real"), disk.root().join("link"));
    disk.mkdir(&real.join("m"));
    disk.symlink(&link, &real);
    let Some(_guard) = small_tmpfs(&real.join("m"), 65536) else { return };
    let Some(_guard) = small_tmpfs(&real.join("m"), 65536) else { return };
    let mounts = SystemMounts::new(Handle::current());
    assert_eq!(mounts.is_mount_point(&link.join("m")).await, Ok(true));
    let listed = mounts.list_below(&link).await.unwrap();
    assert_eq!(listed.iter().map(|mount| &mount.path).collect::<Vec<_>>(), [&link.join("m"); 2]);

    let open = fs::File::create(real.join("m/open")).unwrap();
    let busy = mounts.unmount(&link.join("m")).await.unwrap_err();
    assert!(busy.to_string().contains("busy"), "{busy}");
    drop(open);
    mounts.unmount(&link.join("m")).await.unwrap();
    assert_eq!(mounts.is_mount_point(&real.join("m")).await, Ok(false));
}

#[tokio::test]
async fn a_read_only_bind_cannot_be_written_through() {
    let disk = TempDisk::new();
    let (source, target) = (disk.root().join("s"), disk.root().join("t"));
    disk.mkdir(&source);
    disk.mkdir(&target);
    let Some(_guard) = small_tmpfs(&source, 65536) else { return };
    let mounts = SystemMounts::new(Handle::current());
    mounts.bind(&source, &target, true).await.unwrap();
    let refused = fs::write(target.join("f"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    fs::write(source.join("f"), b"1").unwrap();
    assert_eq!(fs::read(target.join("f")).unwrap(), b"1");
    mounts.unmount(&target).await.unwrap();
}

#[tokio::test]
async fn scripted_failures_happen_as_often_as_asked() {
    let disk = FakeDisk::new();
    let mounts = FakeMounts::new(disk.clone());
    disk.fail("unmount", "/fake/a", 2, "Device or resource busy");
    for _ in 0..2 {
        let error = mounts.unmount(Path::new("/fake/a/b")).await.unwrap_err();
        assert_eq!(error.to_string(), "cannot unmount /fake/a/b: Device or resource busy");
    }
    mounts.unmount(Path::new("/fake/a/b")).await.unwrap();
}

#[test]
fn reads_the_words_of_the_api() {
    for (word, kind) in [("", HostPathType::Unset), ("FileOrCreate", HostPathType::FileOrCreate)] {
        assert_eq!(word.parse(), Ok(kind));
    }
    assert_eq!(
        "directory".parse::<HostPathType>().unwrap_err().to_string(),
        "directory is an invalid volume type"
    );
}
