use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

use super::{
    Decide, PullRecords, PullRecordsError, RECORDS_MAX, RecordChange, RecordFile, RecordKind, TEMPORARY,
    directory_of, is_record, path_of,
};
use crate::checkpoint::{Refused, SerialExecutor, read_bounded, write_synced};

/// Records as files of mode 0600 in directories of mode 0700 below the kubelet's root directory.
#[derive(Clone)]
pub struct DiskPullRecords {
    root: Arc<Path>,
    serial_executor: SerialExecutor,
}

impl std::fmt::Debug for DiskPullRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskPullRecords").field("root", &self.root).finish_non_exhaustive()
    }
}

impl DiskPullRecords {
    /// The records below `root`. The disk is accessed only on the blocking threads of `io`.
    pub fn new(root: &Path, io: Handle) -> Self {
        Self { root: Arc::from(root), serial_executor: SerialExecutor::new(io) }
    }

    fn run<T: Send + 'static>(
        &self,
        path: PathBuf,
        work: impl FnOnce(&Path) -> Result<T, PullRecordsError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, PullRecordsError>> {
        let at = path.clone();
        let done = self.serial_executor.run(move || work(&at));
        async move {
            let refused = |why: &str| PullRecordsError { path, reason: why.to_owned() };
            match done.await {
                Ok(result) => result,
                Err(Refused::Full) => Err(refused("too many operations wait for the disk")),
                Err(Refused::Gone) => Err(refused("the I/O runtime has shut down")),
            }
        }
        .boxed()
    }
}

impl PullRecords for DiskPullRecords {
    fn list(&self, kind: RecordKind) -> BoxFuture<'static, Result<Vec<RecordFile>, PullRecordsError>> {
        self.run(directory_of(&self.root, kind), |directory| {
            let mut paths = records_in(directory)?;
            paths.truncate(RECORDS_MAX);
            let file = |path: PathBuf| {
                let content = read_bounded(&path).map_err(|error| error.to_string()).and_then(|read| read);
                RecordFile { path, content }
            };
            Ok(paths.into_iter().map(file).collect())
        })
    }

    fn read(
        &self,
        kind: RecordKind,
        of: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, PullRecordsError>> {
        self.run(path_of(&self.root, kind, of), read)
    }

    fn change(
        &self,
        kind: RecordKind,
        of: &str,
        decide: Decide,
    ) -> BoxFuture<'static, Result<usize, PullRecordsError>> {
        self.run(path_of(&self.root, kind, of), move |path| {
            let before = read(path).unwrap_or_default();
            match decide(before.as_deref()) {
                RecordChange::Keep => {}
                RecordChange::Write(content) => write(path, &content).map_err(failed(path))?,
                RecordChange::Remove => match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(path)(error)),
                    _ => {}
                },
            }
            records_in(parent(path)).map(|records| records.len())
        })
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> PullRecordsError {
    move |error| PullRecordsError { path: path.to_owned(), reason: error.to_string() }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, PullRecordsError> {
    match read_bounded(path) {
        Ok(Ok(content)) => Ok(Some(content)),
        Ok(Err(reason)) => Err(PullRecordsError { path: path.to_owned(), reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = parent(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    let written = write_synced(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // On a full disk this frees the space.
        let _ = fs::remove_file(&temporary);
    }
    written.and_then(|()| File::open(directory)?.sync_all())
}

fn records_in(directory: &Path) -> Result<Vec<PathBuf>, PullRecordsError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed(directory))?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(directory))?.path();
        if is_record(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
