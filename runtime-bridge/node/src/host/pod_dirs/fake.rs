use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;

use super::disk::pod_log_dir;
use super::layout::{self, CONTAINERS, DATA_DIRS};
use super::others::{self, Look};
use super::termination::{self, TerminationLog};
use super::{Done, Layout, NODE_HOSTS, OtherVolume, PodDirReads, PodDirs, PodDirsError, PodLogDir};
use crate::host::FakeDisk;
use crate::mounts::{FileKind, fake_remove_tree};

/// Pod directories on a [`FakeDisk`]. [`FakeDisk::fail`] takes the names of the trait's methods.
#[derive(Debug, Clone)]
pub struct FakePodDirs {
    layout: Layout,
    disk: FakeDisk,
}

impl FakePodDirs {
    /// Directories as `layout` has them, on `disk`.
    pub fn new(layout: Layout, disk: FakeDisk) -> Self {
        Self { layout, disk }
    }

    fn at<T: Send + 'static>(
        &self,
        method: &'static str,
        path: Result<PathBuf, PodDirsError>,
        work: impl FnOnce(&FakeDisk, &Path) -> Result<T, PodDirsError>,
    ) -> Done<T> {
        let path = match path {
            Ok(path) => path,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        let done = match self.disk.scripted_failure(method, &path) {
            Some(reason) => Err(PodDirsError::Io { operation: method, path: path.clone(), reason }),
            None => work(&self.disk, &path),
        };
        self.disk.answer(method, &path, done)
    }
}

impl Look for FakeDisk {
    fn names(&self, dir: &Path) -> Result<Vec<String>, PodDirsError> {
        let names =
            self.children(dir).into_iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        Ok(names.collect())
    }

    fn read(&self, file: &Path) -> Option<Vec<u8>> {
        Self::read(self, file)
    }
}

impl PodDirReads for FakePodDirs {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read_tail(&self, _: &str, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>> {
        self.at("read_tail", self.layout.pods_own(file), |disk, file| {
            if disk.kind(file).is_some_and(|kind| kind != FileKind::File) {
                return Err(PodDirsError::NotOurs { path: file.to_path_buf() });
            }
            let keep = usize::try_from(bytes_max).unwrap_or(usize::MAX);
            Ok(disk.read(file).map(|content| content[content.len().saturating_sub(keep)..].to_vec()))
        })
    }
}

impl PodDirs for FakePodDirs {
    fn for_owner(&self, _: &'static str) -> Arc<dyn PodDirs> {
        Arc::new(self.clone())
    }

    fn for_namespace(&self, _: &str) -> Arc<dyn PodDirs> {
        Arc::new(self.clone())
    }

    fn ensure_data_dirs(&self) -> Done<Vec<String>> {
        self.at("ensure_data_dirs", Ok(self.layout.root().to_path_buf()), |disk, root| {
            make_dir(disk, root, 0o750)?;
            make_dir(disk, self.layout.pod_logs(), 0o750)?;
            if let Some(links) = self.layout.container_logs() {
                make_dir(disk, links, 0o755)?;
            }
            for (name, mode) in DATA_DIRS {
                make_dir(disk, &self.layout.data_dir(name), mode)?;
            }
            Ok(Vec::new())
        })
    }

    fn ensure_pod_dirs(&self, uid: &str) -> Done<PathBuf> {
        self.at("ensure_pod_dirs", self.layout.pod(uid), |disk, pod| {
            make_dir(disk, pod, 0o750)?;
            for below in ["volumes", "plugins", "containers"] {
                make_dir(disk, &pod.join(below), 0o750)?;
            }
            Ok(pod.to_path_buf())
        })
    }

    fn ensure_container_dir(&self, uid: &str, container: &str) -> Done<PathBuf> {
        self.at("ensure_container_dir", self.layout.pod_container(uid, container), |disk, dir| {
            make_dir(disk, dir, 0o750)?;
            Ok(dir.to_path_buf())
        })
    }

    fn create_termination_log(&self, uid: &str, container: &str, suffix: &str) -> Done<PathBuf> {
        let file = self.layout.termination_log(uid, container, suffix);
        self.at("create_termination_log", file, |disk, file| {
            if let Some(dir) = file.parent() {
                remove_old_termination_logs(disk, dir, file);
            }
            if disk.kind(file).is_none() {
                disk.write(file, Vec::new(), 0o666);
            }
            Ok(file.to_path_buf())
        })
    }

    fn ensure_log_dirs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<PathBuf> {
        let pod = self.layout.pod_log_dir(namespace, name, uid);
        let dir = self.layout.container_log_dir(namespace, name, uid, container);
        self.at("ensure_log_dirs", dir, |disk, dir| {
            make_dir(disk, dir, 0o755)?;
            pod
        })
    }

    fn write_etc_hosts(&self, uid: &str, content: &[u8]) -> Done<PathBuf> {
        self.at("write_etc_hosts", self.layout.pod_etc_hosts(uid), |disk, path| {
            if path.parent().and_then(|above| disk.kind(above)) != Some(FileKind::Directory) {
                return Err(failed("write", path, "No such file or directory"));
            }
            disk.write(path, content, 0o644);
            Ok(path.to_path_buf())
        })
    }

    fn read_node_hosts(&self) -> Done<Vec<u8>> {
        self.at("read_node_hosts", Ok(PathBuf::from(NODE_HOSTS)), |disk, path| {
            disk.read(path).ok_or_else(|| failed("open", path, "No such file or directory"))
        })
    }

    fn read_volume_file(&self, volume: &Path, file: &Path, bytes_max: u64) -> Done<Option<Vec<u8>>> {
        let path = volume.join(file);
        self.at("read_volume_file", Ok(path), |disk, path| match disk.kind(path) {
            None => Ok(None),
            Some(FileKind::File) => match disk.read(path) {
                Some(content) if content.len() as u64 > bytes_max => {
                    let reason = format!("{}: the file is too large", path.display());
                    Err(PodDirsError::VolumeFile(reason))
                }
                content => Ok(content),
            },
            Some(_) => {
                let reason = format!("{}: it is no regular file", path.display());
                Err(PodDirsError::VolumeFile(reason))
            }
        })
    }

    fn list_pod_uids(&self) -> Done<Vec<String>> {
        self.at("list_pod_uids", Ok(self.layout.pods()), |disk, pods| {
            Ok(entries(disk, pods, |kind| kind == FileKind::Directory))
        })
    }

    fn other_volumes(&self, uid: Option<&str>, own: &'static [&'static str]) -> Done<Vec<OtherVolume>> {
        self.at("other_volumes", Ok(self.layout.pods()), |disk, _| others::all(disk, &self.layout, uid, own))
    }

    fn list_pod_log_dirs(&self) -> Done<Vec<PodLogDir>> {
        self.at("list_pod_log_dirs", Ok(self.layout.pod_logs().to_path_buf()), |disk, logs| {
            let dirs = entries(disk, logs, |kind| kind == FileKind::Directory);
            Ok(dirs.iter().filter_map(|dir| pod_log_dir(&self.layout, dir)).collect())
        })
    }

    fn remove_pod_dir(&self, uid: &str) -> Done<()> {
        self.at("remove_pod_dir", self.layout.pod(uid), |disk, dir| Ok(fake_remove_tree(disk, dir)?))
    }

    fn empty_pod_dir(&self, uid: &str) -> Done<()> {
        self.at("empty_pod_dir", self.layout.pod(uid), |disk, dir| {
            for name in entries(disk, dir, |_| true).iter().filter(|name| *name != CONTAINERS) {
                fake_remove_tree(disk, &dir.join(name))?;
            }
            Ok(())
        })
    }

    fn remove_pod_log_dir(&self, namespace: &str, name: &str, uid: &str) -> Done<()> {
        let dir = self.layout.pod_log_dir(namespace, name, uid);
        self.at("remove_pod_log_dir", dir, |disk, dir| Ok(fake_remove_tree(disk, dir)?))
    }

    fn restart_count_from_logs(&self, namespace: &str, name: &str, uid: &str, container: &str) -> Done<u32> {
        let dir = self.layout.container_log_dir(namespace, name, uid, container);
        self.at("restart_count_from_logs", dir, |disk, dir| {
            let logs = entries(disk, dir, |kind| kind != FileKind::Directory);
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
        let dir = self.layout.container_log_dir(namespace, name, uid, container);
        self.at("remove_container_logs", dir, |disk, dir| {
            for file in entries(disk, dir, |kind| kind != FileKind::Directory) {
                if layout::is_log_of(&file, restart_count) {
                    disk.remove(dir.join(file));
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
        let link = self.layout.legacy_link(namespace, name, container, container_id);
        let link = match link {
            Ok(None) => return Box::pin(async { Ok(false) }),
            Ok(Some(link)) => Ok(link),
            Err(error) => Err(error),
        };
        self.at("create_legacy_link", link, |disk, link| {
            if disk.kind(log).is_none() {
                return Ok(false);
            }
            if link.parent().and_then(|above| disk.kind(above)) != Some(FileKind::Directory) {
                return Err(failed("make the link", link, "No such file or directory"));
            }
            disk.symlink(link, log);
            Ok(true)
        })
    }

    fn remove_legacy_link(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        container_id: &str,
    ) -> Done<()> {
        let link = self.layout.legacy_link(namespace, name, container, container_id);
        let link = match link {
            Ok(None) => return Box::pin(async { Ok(()) }),
            Ok(Some(link)) => Ok(link),
            Err(error) => Err(error),
        };
        self.at("remove_legacy_link", link, |disk, link| {
            disk.remove(link);
            Ok(())
        })
    }

    fn prune_legacy_links(&self, running: BTreeSet<String>) -> Done<usize> {
        let Some(dir) = self.layout.container_logs() else { return Box::pin(async { Ok(0) }) };
        let dir = Ok(dir.to_path_buf());
        self.at("prune_legacy_links", dir, |disk, dir| {
            let dangling = |file: &String| {
                file.ends_with(".log")
                    && layout::container_id_of_link(file).is_none_or(|id| !running.contains(id))
                    && disk.kind_followed(dir.join(file)).is_none()
            };
            let links = entries(disk, dir, |kind| kind == FileKind::Symlink);
            let pruned: Vec<_> = links.iter().filter(|file| dangling(file)).collect();
            for file in &pruned {
                disk.remove(dir.join(file));
            }
            Ok(pruned.len())
        })
    }
}

fn remove_old_termination_logs(disk: &FakeDisk, dir: &Path, newest: &Path) {
    let log = |path: &PathBuf| {
        let name = path.file_name()?.to_str().filter(|name| termination::is_name(name))?.to_owned();
        let changed = (i64::try_from(disk.changed(path)?).unwrap_or(i64::MAX), 0);
        let is_empty = disk.read(path)?.is_empty();
        Some(TerminationLog { changed, name, is_empty })
    };
    let others = disk.paths_below(dir).into_iter().filter(|path| path != newest);
    let all = others.filter_map(|path| log(&path)).collect();
    for name in termination::superfluous(all) {
        disk.remove(dir.join(name));
    }
}

fn failed(operation: &'static str, path: &Path, reason: &str) -> PodDirsError {
    PodDirsError::Io { operation, path: path.to_path_buf(), reason: reason.to_owned() }
}

fn make_dir(disk: &FakeDisk, path: &Path, mode: u32) -> Result<(), PodDirsError> {
    match path.ancestors().find_map(|above| disk.kind(above).map(|kind| (above, kind))) {
        Some((above, kind)) if kind != FileKind::Directory => {
            let reason = if above == path { "File exists" } else { "Not a directory" };
            Err(failed("make the directory", path, reason))
        }
        _ => {
            disk.mkdir(path, mode);
            Ok(())
        }
    }
}

fn entries(disk: &FakeDisk, dir: &Path, wanted: fn(FileKind) -> bool) -> Vec<String> {
    disk.children(dir)
        .iter()
        .filter(|path| disk.kind(path).is_some_and(wanted))
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .collect()
}
