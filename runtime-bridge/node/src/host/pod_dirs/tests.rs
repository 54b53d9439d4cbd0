use std::sync::Arc;

use tokio::runtime::Handle;

use super::*;
use crate::host::FakeDisk;
use crate::mounts::tests::{Disk, TempDisk, small_tmpfs};
use crate::mounts::{FileKind, MountPoint};
use crate::tenant_files::tests::Lease;

fn layout(root: &Path) -> Layout {
    Layout::new(root.join("kubelet"), root.join("log/pods"), root.join("log/containers")).unwrap()
}

async fn contract(dirs: Arc<dyn PodDirs>, disk: &dyn Disk) {
    let layout = dirs.layout().clone();
    assert_eq!(dirs.list_pod_uids().await, Ok(vec![]));
    assert_eq!(dirs.list_pod_log_dirs().await, Ok(vec![]));
    dirs.ensure_data_dirs().await.unwrap();
    dirs.ensure_data_dirs().await.unwrap();
    for (path, mode) in [
        (layout.root().to_path_buf(), 0o750),
        (layout.pods(), 0o750),
        (layout.data_dir("plugins_registry"), 0o750),
        (layout.data_dir("checkpoints"), 0o700),
        (layout.pod_logs().to_path_buf(), 0o750),
        (layout.container_logs().unwrap().to_path_buf(), 0o755),
    ] {
        assert_eq!((disk.kind(&path), disk.mode(&path)), (Some(FileKind::Directory), Some(mode)), "{path:?}");
    }
    pods(&*dirs, disk, &layout).await;
    logs(&*dirs, disk, &layout).await;
    links(&*dirs, disk, &layout).await;
    termination_logs(&*dirs, disk, &layout).await;
    old_termination_logs(&*dirs, disk, &layout).await;
    volumes_of_others(&*dirs, disk, &layout).await;

    for bad in ["", "..", "a/b"] {
        assert!(matches!(dirs.ensure_pod_dirs(bad).await, Err(PodDirsError::BadName { .. })), "{bad:?}");
        assert!(matches!(dirs.remove_pod_dir(bad).await, Err(PodDirsError::BadName { .. })), "{bad:?}");
    }
    // A file in the place of a directory is an error, and is not overwritten.
    disk.write(&layout.pods().join("file"), b"1");
    assert!(matches!(dirs.ensure_pod_dirs("file").await, Err(PodDirsError::Io { .. })));
    assert_eq!(disk.read(&layout.pods().join("file")).as_deref(), Some(&b"1"[..]));
}

async fn volumes_of_others(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    let own = &["kubernetes.io/empty-dir"];
    assert_eq!(dirs.other_volumes(None, own).await, Ok(vec![]));
    let data = |handle: &str| format!(r#"{{"driverName":"d","volumeHandle":"{handle}"}}"#);
    let volumes = layout.pods().join("other/volumes");
    disk.write(&volumes.join("kubernetes.io~empty-dir/e/file"), b"");
    disk.write(&volumes.join("kubernetes.io~nfs/n/file"), b"");
    disk.write(&volumes.join("kubernetes.io~csi/pv-1/vol_data.json"), data("1").as_bytes());
    let staged = layout.root().join("plugins/kubernetes.io/csi");
    disk.write(&staged.join("d/hash/vol_data.json"), data("2").as_bytes());
    disk.write(&staged.join("volumeDevices/pv-3/data/vol_data.json"), data("3").as_bytes());
    disk.write(&staged.join("volumeDevices/publish/pv-3/uid"), b"");
    // The link may lead to nothing: its name tells which device it is.
    let devices = layout.pods().join("raw/volumeDevices/kubernetes.io~csi");
    disk.mkdir(&devices);
    disk.symlink(&devices.join("pv-3"), Path::new("/dev/gone"));
    let told = |found: Vec<OtherVolume>| {
        let mut told: Vec<_> = found.into_iter().map(|one| (one.pod, one.name, one.reported)).collect();
        told.sort_by(|a, b| a.1.cmp(&b.1));
        told
    };
    let named = |handle: &str| Reported::As(format!("kubernetes.io/csi/d^{handle}"));
    let pod = Some("other".to_owned());
    let of_pod =
        [(pod.clone(), "n".to_owned(), Reported::Unknown), (pod.clone(), "pv-1".to_owned(), named("1"))];
    assert_eq!(dirs.other_volumes(Some("other"), own).await.map(told), Ok(of_pod.to_vec()));
    assert_eq!(dirs.other_volumes(Some("nobody"), own).await, Ok(vec![]));
    let all = [
        (None, "hash".to_owned(), named("2")),
        of_pod[0].clone(),
        of_pod[1].clone(),
        (None, "pv-3".to_owned(), named("3")),
        (Some("raw".to_owned()), "pv-3".to_owned(), named("3")),
    ];
    assert_eq!(dirs.other_volumes(None, own).await.map(told), Ok(all.to_vec()));
}

async fn pods(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    let pod = dirs.ensure_pod_dirs("u2").await.unwrap();
    assert_eq!(Ok(pod.clone()), layout.pod("u2"));
    dirs.ensure_pod_dirs("u2").await.unwrap();
    dirs.ensure_pod_dirs("u1").await.unwrap();
    for below in ["", "volumes", "plugins", "containers"] {
        assert_eq!(disk.mode(&pod.join(below)), Some(0o750), "{below}");
    }
    let container = dirs.ensure_container_dir("u2", "c").await.unwrap();
    assert_eq!((container.clone(), disk.mode(&container)), (pod.join("containers/c"), Some(0o750)));
    for content in [&b"127.0.0.1 localhost, and more\n"[..], b"short\n"] {
        let hosts = dirs.write_etc_hosts("u2", content).await.unwrap();
        assert_eq!((disk.read(&hosts).as_deref(), disk.mode(&hosts)), (Some(content), Some(0o644)));
    }
    assert!(matches!(dirs.write_etc_hosts("nobody", b"").await, Err(PodDirsError::Io { .. })));

    let volume = layout.pod_volume("u2", "kubernetes.io/empty-dir", "env").unwrap();
    disk.write(&volume.join("d/vars"), b"A='1'");
    let read = |file: &'static str, bytes_max| dirs.read_volume_file(&volume, Path::new(file), bytes_max);
    assert_eq!(read("d/vars", 5).await, Ok(Some(b"A='1'".to_vec())));
    assert_eq!(read("d/none", 5).await, Ok(None));
    assert!(matches!(read("d/vars", 4).await, Err(PodDirsError::VolumeFile(_))), "too large");
    assert!(matches!(read("d", 4).await, Err(PodDirsError::VolumeFile(_))), "a directory");

    disk.write(&layout.pods().join("not-a-pod"), b"");
    assert_eq!(dirs.list_pod_uids().await.unwrap(), ["u1", "u2"]);
    disk.write(&layout.pod_volume("u2", "kubernetes.io/empty-dir", "v").unwrap().join("f"), b"1");
    let ending = dirs.create_termination_log("u2", "c", "0").await.unwrap();
    dirs.empty_pod_dir("u2").await.unwrap();
    assert!(disk.kind(&ending).is_some(), "why it ended");
    assert_eq!(disk.kind(&layout.pod("u2").unwrap().join("volumes")), None);
    dirs.remove_pod_dir("u2").await.unwrap();
    dirs.remove_pod_dir("u2").await.unwrap();
    dirs.empty_pod_dir("u2").await.unwrap();
    assert_eq!(dirs.list_pod_uids().await.unwrap(), ["u1"]);
    assert_eq!(disk.kind(&pod), None);
}

async fn logs(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    assert_eq!(dirs.restart_count_from_logs("ns", "p", "u", "c").await, Ok(0));
    let pod = dirs.ensure_log_dirs("ns", "p", "u", "c").await.unwrap();
    assert_eq!(pod, layout.pod_logs().join("ns_p_u"));
    assert_eq!((disk.mode(&pod), disk.mode(&pod.join("c"))), (Some(0o755), Some(0o755)));
    assert_eq!(dirs.restart_count_from_logs("ns", "p", "u", "c").await, Ok(0));
    disk.write(&pod.join("c/0.log"), b"");
    disk.write(&pod.join("c/3.log.20260501-120000"), b"");
    disk.mkdir(&pod.join("c/9.log"));
    assert_eq!(dirs.restart_count_from_logs("ns", "p", "u", "c").await, Ok(4));

    // One instance's logs are removed, rotated ones included; those of other instances stay.
    disk.write(&pod.join("c/30.log"), b"");
    disk.write(&pod.join("c/3.logs"), b"");
    dirs.remove_container_logs("ns", "p", "u", "c", 3).await.unwrap();
    dirs.remove_container_logs("ns", "p", "u", "c", 9).await.unwrap();
    dirs.remove_container_logs("ns", "p", "u", "nobody", 0).await.unwrap();
    assert_eq!(disk.kind(&pod.join("c/3.log.20260501-120000")), None);
    for kept in ["c/0.log", "c/30.log", "c/3.logs", "c/9.log"] {
        assert!(disk.kind(&pod.join(kept)).is_some(), "{kept}");
    }

    disk.mkdir(&layout.pod_logs().join("lost+found"));
    disk.write(&layout.pod_logs().join("a_b_c"), b"");
    let found = dirs.list_pod_log_dirs().await.unwrap();
    let expected = PodLogDir { namespace: "ns".into(), name: "p".into(), uid: "u".into(), path: pod.clone() };
    assert_eq!(found, [expected]);
    dirs.remove_pod_log_dir("ns", "p", "u").await.unwrap();
    assert_eq!(disk.kind(&pod), None);
}

async fn termination_logs(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    let file = dirs.create_termination_log("u9", "c", "0a1b2c3d").await.unwrap();
    assert_eq!(file, layout.pods().join("u9/containers/c/0a1b2c3d"));
    assert_eq!((disk.kind(&file), disk.mode(&file)), (Some(FileKind::File), Some(0o666)));
    assert_eq!(dirs.read_tail("ns", &file, 10).await, Ok(Some(Vec::new())));
    disk.write(&file, b"the reason");
    assert_eq!(
        dirs.create_termination_log("u9", "c", "0a1b2c3d").await,
        Ok(file.clone()),
        "what is there stays"
    );
    assert_eq!(dirs.read_tail("ns", &file, 6).await, Ok(Some(b"reason".to_vec())));
    assert_eq!(dirs.read_tail("ns", &file.with_extension("gone"), 6).await, Ok(None));
    for strange in
        [PathBuf::from("/etc/hostname"), layout.pods().join("../x"), layout.pods().join("u9/containers")]
    {
        let read = dirs.read_tail("ns", &strange, 6).await;
        assert!(matches!(read, Err(PodDirsError::NotOurs { .. })), "{strange:?}: {read:?}");
    }
    dirs.remove_pod_dir("u9").await.unwrap();
}

async fn old_termination_logs(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    let dir = layout.pods().join("u9/containers/c");
    disk.write(&dir.join("other"), b"");
    let name = |instance: u32| format!("{instance:08x}");
    // The first instances say something, the others nothing.
    for instance in 0..14 {
        let file = dirs.create_termination_log("u9", "c", &name(instance)).await.unwrap();
        if instance < 8 {
            disk.write(&file, b"the reason");
        }
    }
    let kept: Vec<u32> = (0..14).filter(|instance| disk.kind(&dir.join(name(*instance))).is_some()).collect();
    assert_eq!(kept, [4, 5, 6, 7, 9, 10, 11, 12, 13]);
    assert!(disk.kind(&dir.join("other")).is_some());
    dirs.remove_pod_dir("u9").await.unwrap();
}

async fn links(dirs: &dyn PodDirs, disk: &dyn Disk, layout: &Layout) {
    let pod = dirs.ensure_log_dirs("ns", "p", "u", "c").await.unwrap();
    let log = pod.join("c/0.log");
    let link = |id: &str| layout.legacy_link("ns", "p", "c", id).unwrap().unwrap();
    assert_eq!(dirs.create_legacy_link("ns", "p", "c", "id-gone", &log).await, Ok(false));
    assert_eq!(disk.kind(&link("id-gone")), None);
    disk.write(&log, b"line");
    for id in ["0123456", "0123457", "0123458"] {
        assert_eq!(dirs.create_legacy_link("ns", "p", "c", id, &log).await, Ok(true));
        assert_eq!(dirs.create_legacy_link("ns", "p", "c", id, &log).await, Ok(true));
        assert_eq!(disk.kind(&link(id)), Some(FileKind::Symlink));
        assert_eq!(disk.read(&link(id)).as_deref(), Some(&b"line"[..]));
    }
    dirs.remove_legacy_link("ns", "p", "c", "0123456").await.unwrap();
    dirs.remove_legacy_link("ns", "p", "c", "0123456").await.unwrap();
    assert_eq!(disk.kind(&link("0123456")), None);
    assert_eq!(disk.read(&log).as_deref(), Some(&b"line"[..]));

    let running = BTreeSet::from(["0123457".to_owned()]);
    assert_eq!(dirs.prune_legacy_links(running.clone()).await, Ok(0));
    disk.remove(&log);
    disk.write(&layout.container_logs().unwrap().join("foreign.log"), b"");
    assert_eq!(dirs.prune_legacy_links(running).await, Ok(1));
    assert_eq!(disk.kind(&link("0123457")), Some(FileKind::Symlink));
    assert_eq!(disk.kind(&link("0123458")), None);
    assert_eq!(dirs.prune_legacy_links(BTreeSet::new()).await, Ok(1));
    assert_eq!(disk.kind(&layout.container_logs().unwrap().join("foreign.log")), Some(FileKind::File));
}

#[tokio::test]
async fn fake_pod_dirs_keep_the_contract() {
    let disk = FakeDisk::new();
    let dirs = FakePodDirs::new(layout(&disk.root()), disk.clone());
    contract(Arc::new(dirs), &disk).await;
}

/// Unmounts the root, which may have become a shared mount of its own.
struct Unshared(PathBuf);

impl Drop for Unshared {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test]
async fn real_pod_dirs_keep_the_contract() {
    let disk = TempDisk::new();
    let layout = layout(&disk.root());
    let _unshared = Unshared(layout.root().to_path_buf());
    contract(Arc::new(DiskPodDirs::new(layout, Handle::current())), &disk).await;
}

#[tokio::test]
async fn the_root_is_made_shared_once() {
    let disk = TempDisk::new();
    let layout = layout(&disk.root());
    let root = layout.root().to_path_buf();
    let _unshared = Unshared(root.clone());
    let dirs = DiskPodDirs::new(layout, Handle::current());
    let warnings = dirs.ensure_data_dirs().await.unwrap();
    if !warnings.is_empty() {
        eprintln!("skipped: {warnings:?}");
        assert!(warnings[0].contains("is not shared"));
        return;
    }
    dirs.ensure_data_dirs().await.unwrap();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at_root: Vec<_> =
        mounts.lines().filter(|line| line.contains(&format!(" {} ", root.display()))).collect();
    assert!(at_root.len() <= 1, "{at_root:?}");
    assert!(at_root.iter().all(|line| line.contains(" shared:")), "{at_root:?}");
}

#[tokio::test]
async fn neither_a_lease_nor_a_fifo_in_a_files_place_holds_a_thread() {
    let disk = TempDisk::new();
    let dirs = DiskPodDirs::new(layout(&disk.root()), Handle::current());
    dirs.ensure_pod_dirs("u").await.unwrap();
    let hosts = dirs.write_etc_hosts("u", b"earlier and longer").await.unwrap();
    assert_eq!(dirs.write_etc_hosts("u", b"hosts").await, Ok(hosts.clone()));
    assert_eq!(disk.read(&hosts).as_deref(), Some(&b"hosts"[..]));
    let message = dirs.create_termination_log("u", "c", "0a1b2c3d").await.unwrap();
    let refused = async |reason: &str| {
        let errors = [
            dirs.write_etc_hosts("u", b"2").await.unwrap_err(),
            dirs.create_termination_log("u", "c", "0a1b2c3d").await.unwrap_err(),
            dirs.read_tail("ns", &message, 10).await.unwrap_err(),
        ];
        for error in errors {
            let strange = matches!(&error, PodDirsError::NotOurs { .. });
            assert!(error.to_string().ends_with(reason) || strange, "{error}, not {reason}");
        }
    };
    if let (Some(_hosts), Some(_message)) = (Lease::on(&hosts), Lease::on(&message)) {
        refused("a process holds a lease on it").await;
    }
    for file in [&hosts, &message] {
        disk.remove(file);
        rustix::fs::mkfifoat(rustix::fs::CWD, file, rustix::fs::Mode::RWXU).unwrap();
    }
    refused("it is no regular file").await;
}

#[tokio::test]
async fn a_pod_directory_with_a_mount_is_kept_and_the_mount_named() {
    let disk = TempDisk::new();
    let layout = layout(&disk.root());
    let volume = layout.pod_volume("u", "kubernetes.io/csi", "data").unwrap();
    disk.mkdir(&volume);
    let Some(mounted) = small_tmpfs(&volume, 65536) else { return };
    disk.write(&volume.join("precious"), b"1");
    let dirs = DiskPodDirs::new(layout, Handle::current());
    let error = dirs.remove_pod_dir("u").await.unwrap_err();
    assert!(error.to_string().contains(&format!("{} is a mount point", volume.display())), "{error}");
    assert_eq!(disk.read(&volume.join("precious")).as_deref(), Some(&b"1"[..]));
    drop(mounted);
    dirs.remove_pod_dir("u").await.unwrap();
}

#[tokio::test]
async fn a_fake_pod_directory_with_a_mount_is_kept_and_the_mount_named() {
    let disk = FakeDisk::new();
    let dirs = FakePodDirs::new(layout(&disk.root()), disk.clone());
    dirs.ensure_pod_dirs("u").await.unwrap();
    let volume = dirs.layout().pod_volume("u", "kubernetes.io/csi", "data").unwrap();
    disk.add_mount(MountPoint {
        path: volume.clone(),
        root: "/".into(),
        fs_type: "tmpfs".into(),
        source: "tmpfs".into(),
        options: vec![],
        device: (0, 1),
        fs_options: Vec::new(),
    });
    let error = dirs.remove_pod_dir("u").await.unwrap_err();
    assert!(error.to_string().contains(&format!("{} is a mount point", volume.display())), "{error}");
    disk.remove_mounts_at(&volume);
    dirs.remove_pod_dir("u").await.unwrap();
    disk.fail("ensure_pod_dirs", layout(&disk.root()).pods(), 1, "No space left on device");
    assert!(dirs.ensure_pod_dirs("u").await.unwrap_err().to_string().contains("No space left"));
    dirs.ensure_pod_dirs("u").await.unwrap();
}
