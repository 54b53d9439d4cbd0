use std::path::{Path, PathBuf};

use futures::future::{BoxFuture, ready};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use super::{
    Decide, PullRecords, PullRecordsError, RecordChange, RecordFile, RecordKind, directory_of, is_record,
    path_of,
};
use crate::host::FakeDisk;

const ROOT: &str = "/var/lib/kubelet";

/// Records on a [`FakeDisk`], of a kubelet whose root directory is `/var/lib/kubelet`. [`FakeDisk::fail`] takes
/// `read_pull_record` and `write_pull_record`.
#[derive(Debug, Clone)]
pub struct FakePullRecords {
    disk: FakeDisk,
}

impl FakePullRecords {
    /// The records of `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk }
    }

    fn records(&self, kind: RecordKind) -> Vec<PathBuf> {
        let children = self.disk.children(directory_of(Path::new(ROOT), kind));
        children.into_iter().filter(|path| is_record(path)).collect()
    }

    fn content(&self, path: &Path) -> Result<Option<Vec<u8>>, PullRecordsError> {
        match self.disk.scripted_failure("read_pull_record", path) {
            Some(reason) => Err(PullRecordsError { path: path.to_owned(), reason }),
            None => Ok(self.disk.read(path)),
        }
    }

    fn change_now(&self, kind: RecordKind, of: &str, decide: Decide) -> Result<usize, PullRecordsError> {
        let path = path_of(Path::new(ROOT), kind, of);
        let before = self.content(&path).unwrap_or_default();
        let change = decide(before.as_deref());
        if change != RecordChange::Keep
            && let Some(reason) = self.disk.scripted_failure("write_pull_record", &path)
        {
            return Err(PullRecordsError { path, reason });
        }
        match change {
            RecordChange::Keep => {}
            RecordChange::Write(content) => {
                self.disk.mkdir(directory_of(Path::new(ROOT), kind), 0o700);
                self.disk.write(&path, content, 0o600);
            }
            RecordChange::Remove => {
                self.disk.remove(&path);
            }
        }
        Ok(self.records(kind).len())
    }
}

impl PullRecords for FakePullRecords {
    fn list(&self, kind: RecordKind) -> BoxStream<'static, Result<RecordFile, PullRecordsError>> {
        let this = self.clone();
        let file = move |path: PathBuf| {
            let content = this.content(&path).map_err(|error| error.reason).transpose();
            ready(content.map(|content| Ok(RecordFile { path, content })))
        };
        stream::iter(self.records(kind)).filter_map(file).boxed()
    }

    fn read(
        &self,
        kind: RecordKind,
        of: &str,
    ) -> BoxFuture<'static, Result<Option<Vec<u8>>, PullRecordsError>> {
        let content = self.content(&path_of(Path::new(ROOT), kind, of));
        async move { content }.boxed()
    }

    fn change(
        &self,
        kind: RecordKind,
        of: &str,
        decide: Decide,
    ) -> BoxFuture<'static, Result<usize, PullRecordsError>> {
        let changed = self.change_now(kind, of, decide);
        async move { changed }.boxed()
    }
}
