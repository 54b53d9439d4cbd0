use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use rustix::mount::MountPropagationFlags;
use tokio::runtime::Handle;

use super::layout::{self, CONTAINERS, DATA_DIRS};
use super::others::{self, Look};
use super::termination::{self, TerminationLog};
use super::{Done, Layout, NODE_HOSTS, OtherVolume, PodDirReads, PodDirs, PodDirsError, PodLogDir};
use crate::host::container_facts::is_selinux_on;
use crate::host::{remove_tree, selinux};
use crate::mounts::{mountinfo, read_within};
use crate::tenant_files;
use bridge_io::Lane;

/// The largest hosts file of the node that is read, bytes: a part of it would be wrong in pods.
const NODE_HOSTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The directories on this machine's disk.
#[derive(Debug, Clone)]
pub struct DiskPodDirs {
    layout: Arc<Layout>,
    lane: Lane,
}

impl DiskPodDirs {
    /// Directories as `layout` has them. The disk is accessed only on the blocking threads of `io`.
    pub fn new(layout: Layout, io: Handle) -> Self {
        Self { layout: Arc::new(layout), lane: Lane::new("PodWorker", io) }
    }

    /// The same for work of one namespace's pods.
    fn of_namespace(&self, namespace: &str) -> Self {
        Self { layout: Arc::clone(&self.layout), lane: self.lane.of_tenant(namespace) }
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Layout) -> Result<T, PodDirsError> + Send + 'static,
    ) -> Done<T> {
        let layout = Arc::clone(&self.layout);
        self.lane.run(move || work(&layout))
    }

    /// Runs work on a pod or file `of`, one piece at a time.
    fn at<P: Send + 'static, T: Send + 'static>(
        &self,
        of: &str,
        path: Result<P, PodDirsError>,
        work: impl FnOnce(P) -> Result<T, PodDirsError> + Send + 'static,
    ) -> Done<T> {
        match path {
            Ok(path) => self.lane.run_alone(of, move || work(path)),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    /// The same as [`Self::at`], for a removal that may take long.
    fn remove(
        &self,
        of: &str,
        path: Result<PathBuf, PodDirsError>,
        work: impl FnOnce(PathBuf) -> Result<(), PodDirsError> + Send + 'static,
    ) -> Done<()> {
        match path {
            Ok(path) => self.lane.remove(of, move || work(path)),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }
}

impl PodDirReads for DiskPodDirs {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read_tail(&self, namespace: &str, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>> {
        let own = self.layout.pods_own(file);
        self.of_namespace(namespace)
            .at(&file.display().to_string(), own, move |file| read_tail(&file, bytes_max))
    }
}

impl PodDirs for DiskPodDirs {
    fn for_owner(&self, owner: &'static str) -> Arc<dyn PodDirs> {
        Arc::new(Self { layout: Arc::clone(&self.layout), lane: self.lane.beside(owner) })
    }

    fn for_namespace(&self, namespace: &str) -> Arc<dyn PodDirs> {
        Arc::new(self.of_namespace(namespace))
    }

    fn ensure_data_dirs(&self) -> Done<Vec<String>> {
        self.run(ensure_data_dirs)
    }

    fn ensure_pod_dirs(&self, uid: &str) -> Done<PathBuf> {
        self.at(uid, self.layout.pod(uid), |pod| {
            make_dir(&pod, 0o750)?;
            for below in ["volumes", "plugins", "containers"] {
                make_dir(&pod.join(below), 0o750)?;
            }
            Ok(pod)
        })
    }

    fn ensure_container_dir(&self, uid: &str, container: &str) -> Done<PathBuf> {
        self.at(uid, self.layout.pod_container(uid, container), |dir| {
            make_dir(&dir, 0o750)?;
            Ok(dir)
        })
    }

    fn create_termination_log(&self, uid: &str, container: &str, suffix: &str) -> Done<PathBuf> {
        let file = self.layout.termination_log(uid, container, suffix);
        self.at(uid, file, |file| {
            if let Some(dir) = file.parent() {
                make_dir(dir, 0o750)?;
                // What stays is looked at again with the next instance.
                if let Err(error) = remove_old_termination_logs(dir, &file) {
                    tracing::warn!(%error, "Termination messages of earlier instances may stay");
                }
            }
            let opened = tenant_files::write(&file, 0o666);
            let opened = opened.map_err(failed("make the termination log", &file))?;
            // Set explicitly, independent of the umask.
            let mode = fs::Permissions::from_mode(0o666);
            opened.set_permissions(mode).map_err(failed("set the mode of", &file))?;
            Ok(file)
        })
    }

    fn ensure_log_dirs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<PathBuf> {
        let pod = self.layout.pod_log_dir(namespace, name, uid);
        self.at(uid, self.layout.container_log_dir(namespace, name, uid, container), |dir| {
            make_dir(&dir, 0o755)?;
            pod
        })
    }

    fn write_etc_hosts(&self, uid: &str, content: &[u8]) -> Done<PathBuf> {
        let content = content.to_vec();
        self.at(uid, self.layout.pod_etc_hosts(uid), move |path| {
            tenant_files::write(&path, 0o644)
                .and_then(|mut file| {
                    file.set_len(0)?;
                    file.write_all(&content)?;
                    // Set explicitly: the umask or a container may have changed it.
                    file.set_permissions(fs::Permissions::from_mode(0o644))
                })
                .map_err(failed("write", &path))?;
            Ok(path)
        })
    }

    fn read_node_hosts(&self) -> Done<Vec<u8>> {
        self.run(|_| {
            let path = Path::new(NODE_HOSTS);
            // The node's file may be a link, and a pod that mounts /etc may replace it.
            let file = tenant_files::read_followed(path).map_err(failed("open", path))?;
            let content = tenant_files::content(file, NODE_HOSTS_BYTES_MAX).map_err(failed("read", path))?;
            content.ok_or_else(|| failed("read", path)(io::Error::other("it is too large")))
        })
    }

    fn read_volume_file(&self, volume: &Path, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>> {
        let (volume, file) = (volume.to_path_buf(), file.to_path_buf());
        self.run(move |_| {
            read_within(&volume, &file, bytes_max)
                .map_err(|error| PodDirsError::VolumeFile(error.to_string()))
        })
    }

    fn list_pod_uids(&self) -> Done<Vec<String>> {
        self.run(|layout| Ok(entries(&layout.pods(), |kind| kind.is_dir())?.into_iter().collect()))
    }

    fn other_volumes(&self, uid: Option<&str>, own: &'static [&'static str]) -> Done<Vec<OtherVolume>> {
        let uid = uid.map(str::to_owned);
        self.run(move |layout| others::all(&Disk, layout, uid.as_deref(), own))
    }

    fn list_pod_log_dirs(&self) -> Done<Vec<PodLogDir>> {
        self.run(|layout| {
            let dirs = entries(layout.pod_logs(), |kind| kind.is_dir())?;
            Ok(dirs.iter().filter_map(|dir| pod_log_dir(layout, dir)).collect())
        })
    }

    fn remove_pod_dir(&self, uid: &str) -> Done<()> {
        self.remove(uid, self.layout.pod(uid), |dir| Ok(remove_tree::remove_tree(&dir)?))
    }

    fn empty_pod_dir(&self, uid: &str) -> Done<()> {
        self.remove(uid, self.layout.pod(uid), |dir| {
            for name in entries(&dir, |_| true)?.iter().filter(|name| *name != CONTAINERS) {
                remove_tree::remove_tree(&dir.join(name))?;
            }
            Ok(())
        })
    }

    fn remove_pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> Done<()> {
        let dir = self.layout.pod_log_dir(namespace, name, uid);
        self.remove(uid, dir, |dir| Ok(remove_tree::remove_tree(&dir)?))
    }

    fn restart_count_from_logs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<u32> {
        self.at(uid, self.layout.container_log_dir(namespace, name, uid, container), |dir| {
            let logs = entries(&dir, |kind| !kind.is_dir())?;
            Ok(layout::next_restart_count(logs.iter().map(String::as_str)))
        })
    }

    fn remove_container_logs(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        container: &str,
        restart_count: u32,
    ) -> Done<()> {
        self.at(uid, self.layout.container_log_dir(namespace, name, uid, container), move |dir| {
            for file in entries(&dir, |kind| !kind.is_dir())? {
                if layout::is_log_of(&file, restart_count) {
                    remove_file("remove the log", &dir.join(file))?;
                }
            }
            Ok(())
        })
    }

    fn create_legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
        log: &Path,
    ) -> Done<bool> {
        let log = log.to_path_buf();
        self.at(
            container_id,
            self.layout.legacy_link(namespace, name, container, container_id),
            move |link| link.map_or(Ok(false), |link| create_link(&link, &log)),
        )
    }

    fn remove_legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
    ) -> Done<()> {
        let link = self.layout.legacy_link(namespace, name, container, container_id);
        self.at(container_id, link, |link| link.map_or(Ok(()), |link| remove_link(&link)))
    }

    fn prune_legacy_links(&self, running: BTreeSet<String>) -> Done<usize> {
        self.run(move |layout| layout.container_logs().map_or(Ok(0), |dir| prune_links(dir, &running)))
    }
}

struct Disk;

impl Look for Disk {
    fn names(&self, dir: &Path) -> Result<Vec<String>, PodDirsError> {
        // A file or a socket in the walk has no entries.
        if fs::read_dir(dir).is_err_and(|error| error.kind() == io::ErrorKind::NotADirectory) {
            return Ok(Vec::new());
        }
        Ok(entries(dir, |_| true)?.into_iter().collect())
    }

    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        read_tail(file, others::DATA_BYTES_MAX).ok().flatten()
    }
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PodDirsError {
    let path = path.to_path_buf();
    move |error| PodDirsError::Io { operation, path, reason: error.to_string() }
}

fn read_tail(file: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, PodDirsError> {
    let mut opened = match tenant_files::read(file) {
        Ok(opened) => opened,
        // Also where a file is in the place of a pod's directory.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) if tenant_files::is_no_regular_file(&error) => {
            return Err(PodDirsError::NotOurs { path: file.to_path_buf() });
        }
        Err(error) => return Err(failed("open", file)(error)),
    };
    let meta = opened.metadata().map_err(failed("look at", file))?;
    let start = meta.len().saturating_sub(bytes_max);
    opened.seek(SeekFrom::Start(start)).map_err(failed("read", file))?;
    let mut tail = Vec::new();
    opened.take(bytes_max).read_to_end(&mut tail).map_err(failed("read", file))?;
    Ok(Some(tail))
}

fn make_dir(path: &Path, mode: u32) -> Result<(), PodDirsError> {
    fs::DirBuilder::new().recursive(true).mode(mode).create(path).map_err(failed("make the directory", path))
}

fn ensure_data_dirs(layout: &Layout) -> Result<Vec<String>, PodDirsError> {
    make_dir(layout.root(), 0o750)?;
    make_dir(layout.pod_logs(), 0o750)?;
    if let Some(links) = layout.container_logs() {
        make_dir(links, 0o755)?;
    }
    let mut warnings = Vec::new();
    if let Err(reason) = make_shared(layout.root()) {
        let root = layout.root().display();
        warnings
            .push(format!("mounts of containers do not reach other pods: {root} is not shared: {reason}"));
    }
    for (name, mode) in DATA_DIRS {
        make_dir(&layout.data_dir(name), mode)?;
    }
    if is_selinux_on(Path::new("/")) {
        let plugins = [layout.data_dir("plugins_registry"), layout.data_dir("plugins")];
        warnings.extend(selinux::label_plugin_dirs(&plugins, selinux::set_label));
    }
    Ok(warnings)
}

/// Makes the root a shared mount, so that mounts of a container in a volume with bidirectional propagation are visible
/// outside. A directory on a shared mount is one already; another is first bind-mounted onto itself.
fn make_shared(root: &Path) -> io::Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let root = &fs::canonicalize(root)?;
    let parsed = mountinfo::parse(mounts.as_bytes()).map_err(io::Error::other)?;
    // The last of the longest mount points: the one that is visible at the root.
    let covering = parsed
        .iter()
        .zip(mounts.lines())
        .filter(|(mount, _)| root.starts_with(&mount.path))
        .max_by_key(|(mount, _)| mount.path.components().count());
    let shared = covering
        .is_some_and(|(_, line)| line.split(" - ").next().is_some_and(|fields| fields.contains(" shared:")));
    if shared {
        return Ok(());
    }
    if covering.is_none_or(|(mount, _)| mount.path != *root) {
        rustix::mount::mount_bind(root, root)?;
    }
    rustix::mount::mount_change(root, MountPropagationFlags::SHARED | MountPropagationFlags::REC)?;
    Ok(())
}

fn remove_old_termination_logs(dir: &Path, newest: &Path) -> Result<(), PodDirsError> {
    let mut all = Vec::new();
    for name in entries(dir, fs::FileType::is_file)?.into_iter().filter(|name| termination::is_name(name)) {
        let file = dir.join(&name);
        if file == newest {
            continue;
        }
        let meta = fs::symlink_metadata(&file).map_err(failed("look at", &file))?;
        let changed = (meta.ctime(), meta.ctime_nsec());
        all.push(TerminationLog { changed, name, is_empty: meta.len() == 0 });
    }
    let remove = |name: String| remove_file("remove the termination log", &dir.join(name));
    termination::superfluous(all).into_iter().try_for_each(remove)
}

/// The sorted names in a directory that are of the wanted kind; empty when the directory is missing. Names that are not
/// UTF-8 are left out.
fn entries(dir: &Path, wanted: fn(&fs::FileType) -> bool) -> Result<BTreeSet<String>, PodDirsError> {
    let list = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        list => list.map_err(failed("list", dir))?,
    };
    let mut names = BTreeSet::new();
    for entry in list {
        let entry = entry.map_err(failed("list", dir))?;
        let kind = match entry.file_type() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            kind => kind.map_err(failed("look at", &entry.path()))?,
        };
        if wanted(&kind) {
            names.extend(entry.file_name().into_string().ok());
        }
    }
    Ok(names)
}

pub(super) fn pod_log_dir(layout: &Layout, file: &str) -> Option<PodLogDir> {
    let (namespace, name, uid) = layout::parse_pod_log_dir(file)?;
    Some(PodLogDir {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        path: layout.pod_logs().join(file),
    })
}

fn create_link(link: &Path, log: &Path) -> Result<bool, PodDirsError> {
    match fs::symlink_metadata(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("look at", log)(error)),
        Ok(_) => {}
    }
    if fs::read_link(link).is_ok_and(|target| target == log) {
        return Ok(true);
    }
    // An older link whose name was cut to the same 255 bytes is replaced.
    remove_link(link)?;
    symlink(log, link).map_err(failed("make the link", link))?;
    Ok(true)
}

fn remove_link(link: &Path) -> Result<(), PodDirsError> {
    remove_file("remove the link", link)
}

fn remove_file(operation: &'static str, file: &Path) -> Result<(), PodDirsError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(operation, file)(error)),
        _ => Ok(()),
    }
}

fn prune_links(dir: &Path, running: &BTreeSet<String>) -> Result<usize, PodDirsError> {
    let mut pruned = 0;
    for file in entries(dir, |kind| kind.is_symlink())? {
        if !file.ends_with(".log")
            || layout::container_id_of_link(&file).is_some_and(|id| running.contains(id))
        {
            continue;
        }
        let link = dir.join(&file);
        // Only a link to a missing file is removed; another error proves nothing.
        if fs::metadata(&link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            remove_link(&link)?;
            pruned += 1;
        }
    }
    Ok(pruned)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use bridge_io::LANE_THREADS_MAX;

    use super::*;

    #[tokio::test]
    async fn work_of_one_namespace_that_hangs_leaves_places_to_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let layout = Layout::new(at("kubelet"), at("pods"), at("containers")).unwrap();
        let dirs = DiskPodDirs::new(layout, Handle::current());
        let (free, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let crowd = dirs.of_namespace("crowd");
        let hung = |_| {
            let gate = gate.clone();
            tokio::spawn(crowd.run(move |_| Ok(gate.lock().unwrap().recv().is_err())))
        };
        let hung: Vec<_> = (0..LANE_THREADS_MAX).map(hung).collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let others = dirs.for_namespace("others");
        let soon = Duration::from_secs(30);
        assert_eq!(
            tokio::time::timeout(soon, others.ensure_container_dir("u", "c")).await.unwrap(),
            Ok(at("kubelet/pods/u/containers/c"))
        );
        let none = tokio::time::timeout(soon, dirs.read_tail("others", &at("pods/none"), 10)).await;
        assert_eq!(none.unwrap(), Ok(None));
        drop(free);
        for one in hung {
            assert_eq!(one.await.unwrap(), Ok(true));
        }
    }
}
