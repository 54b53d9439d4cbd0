use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bridge_io::watch;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::mounts::{FileKind, MountPoint, SwapFacts};

/// A small file system in memory, on which the fakes of static files, pod directories and mounts work together.
/// Clones share their content.
///
/// Of symbolic links only the last segment of a path is ever followed.
#[derive(Debug, Clone)]
pub struct FakeDisk {
    state: Arc<Mutex<State>>,
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<PathBuf, Node>,
    /// How many times a file was written.
    writes: u64,
    /// How many times each path was removed.
    removals: BTreeMap<PathBuf, u64>,
    mounts: Vec<MountPoint>,
    failures: Vec<Failure>,
    hangs: Option<String>,
    hung: BTreeSet<PathBuf>,
    slow: Option<std::time::Duration>,
    swap: SwapFacts,
}

#[derive(Debug, Clone)]
struct Node {
    kind: FileKind,
    mode: u32,
    content: Vec<u8>,
    target: PathBuf,
    /// The number of the write that it is from.
    changed: u64,
}

#[derive(Debug)]
struct Failure {
    operation: String,
    path: PathBuf,
    times: u32,
    reason: String,
}

impl Default for FakeDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self { state: Arc::default(), changes: Arc::new(watch::Sender::new(0)) }
    }

    /// Makes the next `times` calls of the trait method `operation` (for instance `unmount`) on `path` or below it fail
    /// with `reason`.
    pub fn fail(&self, operation: &str, path: impl Into<PathBuf>, times: u32, reason: &str) {
        self.locked().failures.push(Failure {
            operation: operation.to_owned(),
            path: path.into(),
            times,
            reason: reason.to_owned(),
        });
    }

    /// From now on the answer of every operation takes so long; `None` for at once. What is done is done before.
    pub fn set_slow(&self, slow: Option<std::time::Duration>) {
        self.locked().slow = slow;
    }

    /// Makes the next call of the trait method `operation` hang: its change is made, and its answer does not come. All
    /// later calls on the same path wait for it, as in a lane.
    pub fn hang(&self, operation: &str) {
        self.locked().hangs = Some(operation.to_owned());
    }

    /// Makes all calls on exactly this path hang from now on.
    pub fn hang_at(&self, path: impl Into<PathBuf>) {
        self.locked().hung.insert(path.into());
    }

    /// The paths with a hanging call.
    pub fn hung(&self) -> Vec<PathBuf> {
        self.locked().hung.iter().cloned().collect()
    }

    /// Lets hanging calls return.
    pub fn go_on(&self) {
        self.change(|state| state.hung.clear());
    }

    /// Makes a directory and those above it, all with `mode`; existing ones keep theirs.
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) {
        let path = path.as_ref();
        self.change(|state| {
            for dir in path.ancestors().filter(|dir| dir.parent().is_some()) {
                state.nodes.entry(dir.to_path_buf()).or_insert_with(|| Node::new(FileKind::Directory, mode));
            }
        });
    }

    /// Writes a regular file, and makes the directories above it.
    pub fn write(&self, path: impl AsRef<Path>, content: impl Into<Vec<u8>>, mode: u32) {
        let node = Node { content: content.into(), ..Node::new(FileKind::File, mode) };
        self.put(path.as_ref(), node);
    }

    /// Makes a symbolic link, and the directories above it.
    pub fn symlink(&self, path: impl AsRef<Path>, target: impl Into<PathBuf>) {
        self.put(path.as_ref(), Node { target: target.into(), ..Node::new(FileKind::Symlink, 0o777) });
    }

    /// Makes a socket, device or FIFO, and the directories above it.
    pub fn special(&self, path: impl AsRef<Path>, kind: FileKind) {
        self.put(path.as_ref(), Node::new(kind, 0o600));
    }

    /// Sets the mode of the file at `path`, if there is one.
    pub fn set_mode(&self, path: impl AsRef<Path>, mode: u32) {
        self.change(|state| {
            if let Some(node) = state.nodes.get_mut(path.as_ref()) {
                node.mode = mode;
            }
        });
    }

    /// Removes `path` and everything below it; returns whether it existed.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        self.change(|state| {
            let gone: Vec<PathBuf> =
                state.nodes.keys().filter(|node| node.starts_with(path)).cloned().collect();
            for node in &gone {
                state.nodes.remove(node);
                *state.removals.entry(node.clone()).or_default() += 1;
            }
            !gone.is_empty()
        })
    }

    /// The kind of file at `path`, without following links.
    pub fn kind(&self, path: impl AsRef<Path>) -> Option<FileKind> {
        self.locked().nodes.get(path.as_ref()).map(|node| node.kind)
    }

    /// The kind of file at `path` after following links; `None` for a dangling link.
    pub fn kind_followed(&self, path: impl AsRef<Path>) -> Option<FileKind> {
        self.follow(path.as_ref()).and_then(|path| self.kind(path))
    }

    /// The permission bits of the file at `path`.
    pub fn mode(&self, path: impl AsRef<Path>) -> Option<u32> {
        self.locked().nodes.get(path.as_ref()).map(|node| node.mode)
    }

    /// The content of a regular file, links followed.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let path = self.follow(path.as_ref())?;
        self.locked()
            .nodes
            .get(&path)
            .filter(|node| node.kind == FileKind::File)
            .map(|node| node.content.clone())
    }

    /// The number of the last write of the file at `path`: the higher, the later.
    pub(crate) fn changed(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.locked().nodes.get(path.as_ref()).map(|node| node.changed)
    }

    /// The target of a symbolic link.
    pub fn link_target(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let state = self.locked();
        state
            .nodes
            .get(path.as_ref())
            .filter(|node| node.kind == FileKind::Symlink)
            .map(|node| node.target.clone())
    }

    /// The paths directly below a directory, sorted.
    pub fn children(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let path = path.as_ref();
        self.locked().nodes.keys().filter(|node| node.parent() == Some(path)).cloned().collect()
    }

    /// The regular files below a directory, by their path relative to it.
    pub fn files_below(&self, path: impl AsRef<Path>) -> BTreeMap<PathBuf, Vec<u8>> {
        let state = self.locked();
        let files = state.nodes.iter().filter(|(_, node)| node.kind == FileKind::File);
        let below =
            files.filter_map(|(at, node)| Some((at.strip_prefix(path.as_ref()).ok()?, &node.content)));
        below.map(|(at, content)| (at.to_path_buf(), content.clone())).collect()
    }

    /// Every path below a directory, sorted.
    pub fn paths_below(&self, path: impl AsRef<Path>) -> Vec<PathBuf> {
        let path = path.as_ref();
        let state = self.locked();
        let from = state.nodes.range(path.to_path_buf()..);
        from.map(|(at, _)| at)
            .take_while(|at| at.starts_with(path))
            .filter(|at| *at != path)
            .cloned()
            .collect()
    }

    /// The mounts, in the order in which they were made.
    pub fn mounts(&self) -> Vec<MountPoint> {
        self.locked().mounts.clone()
    }

    /// Whether memory may be swapped out.
    pub fn swap(&self) -> SwapFacts {
        self.locked().swap
    }

    /// Sets whether memory may be swapped out.
    pub fn set_swap(&self, swap: SwapFacts) {
        self.change(|state| state.swap = swap);
    }

    /// Adds a mount, as another process on the machine might.
    pub fn add_mount(&self, mount: MountPoint) {
        self.change(|state| state.mounts.push(mount));
    }

    /// Removes the mounts at `path`; returns whether there was one.
    pub fn remove_mounts_at(&self, path: impl AsRef<Path>) -> bool {
        self.change(|state| {
            let before = state.mounts.len();
            state.mounts.retain(|mount| mount.path != path.as_ref());
            state.mounts.len() != before
        })
    }

    /// Takes one scripted failure of `operation` at `path`; returns its reason.
    pub(crate) fn scripted_failure(&self, operation: &str, path: &Path) -> Option<String> {
        let mut state = self.locked();
        let failure = state.failures.iter_mut().find(|failure| {
            failure.times > 0 && failure.operation == operation && path.starts_with(&failure.path)
        })?;
        failure.times -= 1;
        Some(failure.reason.clone())
    }

    /// The answer of an operation on `path`: at once, unless the disk is slow or a call on that path hangs.
    pub(crate) fn answer<T: Send + 'static>(
        &self,
        operation: &str,
        path: &Path,
        done: T,
    ) -> BoxFuture<'static, T> {
        let (hangs, slow) = {
            let mut state = self.locked();
            if state.hangs.take_if(|hangs| hangs == operation).is_some() {
                state.hung.insert(path.to_path_buf());
            }
            (state.hung.contains(path), state.slow)
        };
        if !hangs && slow.is_none() {
            return std::future::ready(done).boxed();
        }
        let (disk, path) = (self.clone(), path.to_path_buf());
        async move {
            tokio::time::sleep(slow.unwrap_or_default()).await;
            let mut changes = disk.changes();
            while disk.locked().hung.contains(&path) && changes.changed().await.is_ok() {}
            done
        }
        .boxed()
    }

    /// A receiver that counts every change of the disk.
    /// How many times `path`, and each path directly below it, was removed.
    pub(crate) fn removals(&self, path: &Path) -> BTreeMap<PathBuf, u64> {
        let state = self.locked();
        let near = state.removals.iter().filter(|(one, _)| *one == path || one.parent() == Some(path));
        near.map(|(one, times)| (one.clone(), *times)).collect()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn follow(&self, path: &Path) -> Option<PathBuf> {
        let state = self.locked();
        let mut path = path.to_path_buf();
        for _ in 0..8 {
            match state.nodes.get(&path) {
                Some(node) if node.kind == FileKind::Symlink => {
                    path =
                        path.parent().map_or_else(|| node.target.clone(), |parent| parent.join(&node.target));
                }
                Some(_) => return Some(path),
                None => return None,
            }
        }
        None
    }

    fn put(&self, path: &Path, node: Node) {
        if let Some(parent) = path.parent() {
            self.mkdir(parent, 0o755);
        }
        self.change(|state| {
            state.writes += 1;
            state.nodes.insert(path.to_path_buf(), Node { changed: state.writes, ..node });
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.locked());
        self.changes.send_modify(|count| *count += 1);
        done
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds this lock")
    }
}

impl Node {
    fn new(kind: FileKind, mode: u32) -> Self {
        Self { kind, mode, content: Vec::new(), target: PathBuf::new(), changed: 0 }
    }
}
