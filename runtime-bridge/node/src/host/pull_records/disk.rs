use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
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
    fn list(&self, kind: RecordKind) -> BoxStream<'static, Result<RecordFile, PullRecordsError>> {
        let found = self.run(directory_of(&self.root, kind), records_in);
        let this = self.clone();
        stream::once(found).map_ok(move |paths| this.clone().files(paths)).try_flatten().boxed()
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
            let mut count = 0;
            each_record(parent(path), |_| count += 1)?;
            Ok(count)
        })
    }
}

impl DiskPullRecords {
    /// These records, each read when its turn comes.
    fn files(
        self,
        paths: BTreeSet<PathBuf>,
    ) -> impl Stream<Item = Result<RecordFile, PullRecordsError>> + Send {
        stream::iter(paths).filter_map(move |path| {
            let content = self.run(path.clone(), read);
            async move {
                let content = content.await.map_err(|error| error.reason).transpose()?;
                Some(Ok(RecordFile { path, content }))
            }
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

/// The paths of the records of a directory: where there are too many, of those that come first by their names.
fn records_in(directory: &Path) -> Result<BTreeSet<PathBuf>, PullRecordsError> {
    let mut paths = BTreeSet::new();
    each_record(directory, |path| {
        paths.insert(path);
        if paths.len() > RECORDS_MAX {
            paths.pop_last();
        }
    })?;
    Ok(paths)
}

fn each_record(directory: &Path, mut each: impl FnMut(PathBuf)) -> Result<(), PullRecordsError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed(directory))?,
    };
    for entry in entries {
        let path = entry.map_err(failed(directory))?.path();
        if is_record(&path) {
            each(path);
        }
    }
    Ok(())
}
