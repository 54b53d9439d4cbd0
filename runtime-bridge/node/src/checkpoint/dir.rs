use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::OFlags;
use serde_json::Value;
use tokio::runtime::Handle;

use super::serial_executor::{Refused, SerialExecutor};
use super::{CheckpointError, CheckpointStore, check_name, encode, file};

const SUFFIX: &str = ".ckpt";
const CORRUPT_SUFFIX: &str = ".corrupt";
/// The number of corrupt files that are kept for inspection; more could fill the disk.
const CORRUPT_KEPT_MAX: usize = 3;

/// Checkpoints as files of mode 0600 below a directory of mode 0700. The segments of a checkpoint's name are
/// directories, the last segment is a file.
#[derive(Clone)]
pub struct DirCheckpoints {
    root: Arc<PathBuf>,
    serial_executor: SerialExecutor,
}

impl std::fmt::Debug for DirCheckpoints {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirCheckpoints").field("root", &self.root).finish_non_exhaustive()
    }
}

impl DirCheckpoints {
    /// A store below `root`, which the first save creates. The disk is accessed only on the blocking threads of `io`.
    pub fn new(root: impl Into<PathBuf>, io: Handle) -> Self {
        Self { root: Arc::new(root.into()), serial_executor: SerialExecutor::new(io) }
    }

    fn run<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce(&Path, &str) -> Result<T, CheckpointError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, CheckpointError>> {
        let (root, owned) = (Arc::clone(&self.root), name.to_owned());
        let done = self.serial_executor.run(move || work(&root, &owned));
        let name = name.to_owned();
        async move {
            match done.await {
                Ok(result) => result,
                Err(Refused::Full) => Err(CheckpointError::Busy { name }),
                Err(Refused::Gone) => Err(CheckpointError::RuntimeGone { name }),
            }
        }
        .boxed()
    }
}

impl CheckpointStore for DirCheckpoints {
    fn for_owner(&self, _: &'static str) -> Arc<dyn CheckpointStore> {
        Arc::new(Self { root: Arc::clone(&self.root), serial_executor: self.serial_executor.another() })
    }

    fn save(&self, name: &str, content: &Value) -> BoxFuture<'static, Result<(), CheckpointError>> {
        match check_name(name).and_then(|()| encode(name, content)) {
            Ok(json) => self.run(name, move |root, name| save(root, name, &json)),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn load(&self, name: &str) -> BoxFuture<'static, Result<Option<Value>, CheckpointError>> {
        match check_name(name) {
            Ok(()) => self.run(name, load),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn list(&self, prefix: &str) -> BoxFuture<'static, Result<Vec<String>, CheckpointError>> {
        self.run(prefix, list)
    }

    fn remove(&self, name: &str) -> BoxFuture<'static, Result<(), CheckpointError>> {
        match check_name(name) {
            Ok(()) => self.run(name, remove),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }
}

fn failed(name: &str, operation: &'static str) -> impl FnOnce(io::Error) -> CheckpointError {
    let name = name.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            CheckpointError::DiskFull { name, operation }
        }
        _ => CheckpointError::Io { name, operation, reason: error.to_string() },
    }
}

/// The checkpoint's file, and the directory that holds it.
fn place(root: &Path, name: &str) -> (PathBuf, PathBuf) {
    let path = root.join(format!("{name}{SUFFIX}"));
    let parent = path.parent().map_or_else(|| root.to_path_buf(), Path::to_path_buf);
    (path, parent)
}

fn beside(path: &Path, parent: &Path, suffix: &str) -> PathBuf {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    // The name begins with a dot, which no checkpoint's name may, so it is never taken for a checkpoint.
    parent.join(format!(".{file}{suffix}"))
}

fn save(root: &Path, name: &str, json: &[u8]) -> Result<(), CheckpointError> {
    let (path, parent) = place(root, name);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&parent)
        .map_err(failed(name, "create its directory"))?;

    let temporary = beside(&path, &parent, ".tmp");
    let written = write_synced(&temporary, &file::wrap(json))
        .map_err(failed(name, "write"))
        .and_then(|()| fs::rename(&temporary, &path).map_err(failed(name, "rename")));
    if let Err(error) = written {
        // On a full disk this frees the space; if it fails too, the next save replaces the file.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    sync_dirs(root, &parent).map_err(failed(name, "sync the directory of"))
}

pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A file left by a crash is removed first, so that the new file gets our mode and is no symlink.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Makes the directory entries durable: the file's in its directory, and each new directory's in the one above it.
fn sync_dirs(root: &Path, parent: &Path) -> io::Result<()> {
    for dir in parent.ancestors() {
        File::open(dir)?.sync_all()?;
        if dir == root {
            break;
        }
    }
    Ok(())
}

fn load(root: &Path, name: &str) -> Result<Option<Value>, CheckpointError> {
    let (path, parent) = place(root, name);
    let bytes = match read_bounded(&path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(name, "read")(error)),
    };
    let reason = match bytes {
        Ok(bytes) => match file::unwrap(&bytes) {
            Ok(content) => return Ok(Some(content)),
            Err(reason) => reason,
        },
        Err(reason) => reason,
    };
    let reason = match set_aside(&path, &parent) {
        Ok(()) => reason,
        Err(error) => format!("{reason}; it could not be set aside: {error}"),
    };
    Err(CheckpointError::Corrupt { name: name.to_owned(), reason })
}

/// The file's bytes, or why it cannot be a checkpoint. Symlinks are not followed, and a FIFO does not block.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Result<Vec<u8>, String>> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags as i32).open(path);
    let file = match opened {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(Err("it is a symbolic link".into()));
        }
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Ok(Err("it is not a regular file".into()));
    }
    let mut bytes = Vec::new();
    file.take(file::FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > file::FILE_BYTES_MAX {
        return Ok(Err(format!("it is larger than {} bytes", file::FILE_BYTES_MAX)));
    }
    Ok(Ok(bytes))
}

/// Renames a corrupt file, so that it can be inspected, and removes the oldest of too many.
fn set_aside(path: &Path, parent: &Path) -> io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(CORRUPT_SUFFIX) {
            kept.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let aside = beside(path, parent, CORRUPT_SUFFIX);
    kept.retain(|(_, other)| *other != aside);
    kept.sort();
    let drop_count = (kept.len() + 1).saturating_sub(CORRUPT_KEPT_MAX);
    for (_, oldest) in kept.iter().take(drop_count) {
        fs::remove_file(oldest)?;
    }
    fs::rename(path, &aside)
}

fn list(root: &Path, prefix: &str) -> Result<Vec<String>, CheckpointError> {
    let mut names = Vec::new();
    list_into(root, String::new(), prefix, super::SEGMENTS_MAX, &mut names)
        .map_err(failed(prefix, "list"))?;
    names.sort();
    Ok(names)
}

fn list_into(
    dir: &Path,
    above: String,
    prefix: &str,
    depth_left: usize,
    names: &mut Vec<String>,
) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        let kind = entry.file_type()?;
        if kind.is_dir() && depth_left > 1 {
            let below = format!("{above}{file_name}/");
            // Only directories that can hold names with the prefix are listed.
            if below.starts_with(prefix) || prefix.starts_with(&below) {
                list_into(&entry.path(), below, prefix, depth_left - 1, names)?;
            }
        } else if let Some(last) = file_name.strip_suffix(SUFFIX) {
            let name = format!("{above}{last}");
            if name.starts_with(prefix) && check_name(&name).is_ok() {
                names.push(name);
            }
        }
    }
    Ok(())
}

fn remove(root: &Path, name: &str) -> Result<(), CheckpointError> {
    let (path, parent) = place(root, name);
    match fs::remove_file(&path) {
        Ok(()) => {
            File::open(&parent).and_then(|dir| dir.sync_all()).map_err(failed(name, "sync the directory of"))
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        Err(error) => Err(failed(name, "remove")(error)),
    }
}
