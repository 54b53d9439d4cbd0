use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};

use super::watch::COALESCE;
use super::{
    FilesChanged, MANIFEST_BYTES_MAX, MANIFESTS_BYTES_MAX, MANIFESTS_MAX, ManifestFile, ReadError,
    StaticFiles, StaticFilesError,
};
use crate::host::FakeDisk;
use crate::mounts::FileKind;

/// Static pods' files on a [`FakeDisk`]; a watch reports every change. [`FakeDisk::fail`] on `read` fails a file, or
/// the whole path when it is given exactly.
#[derive(Debug, Clone)]
pub struct FakeStaticFiles {
    disk: FakeDisk,
}

impl FakeStaticFiles {
    /// Files on `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk }
    }

    fn read_now(&self, path: &Path) -> Result<Vec<ManifestFile>, StaticFilesError> {
        if let Some(reason) = self.disk.scripted_failure("read", path) {
            return Err(StaticFilesError::Io { path: path.to_path_buf(), operation: "look at it", reason });
        }
        let mut left = MANIFESTS_BYTES_MAX;
        match self.disk.kind_followed(path) {
            None => Ok(Vec::new()),
            Some(FileKind::File) => Ok(self.read_file(path.to_path_buf(), &mut left).into_iter().collect()),
            Some(FileKind::Directory) => {
                let mut paths = self.disk.children(path);
                paths.retain(|path| {
                    path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
                });
                if paths.len() > MANIFESTS_MAX {
                    return Err(StaticFilesError::TooMany { path: path.to_path_buf() });
                }
                Ok(paths.into_iter().filter_map(|path| self.read_file(path, &mut left)).collect())
            }
            Some(_) => Err(StaticFilesError::NotFileOrDirectory { path: path.to_path_buf() }),
        }
    }

    fn read_file(&self, path: PathBuf, left: &mut u64) -> Option<ManifestFile> {
        let content = match self.disk.kind_followed(&path)? {
            FileKind::Directory => return None,
            FileKind::File => match self.disk.scripted_failure("read", &path) {
                Some(reason) => Err(ReadError::Io(reason)),
                None => self.disk.read(&path).ok_or(ReadError::NotRegular),
            },
            _ => Err(ReadError::NotRegular),
        };
        let content = content.and_then(|bytes| match bytes.len() as u64 {
            length if length >= MANIFEST_BYTES_MAX => Err(ReadError::TooLarge),
            length if length > *left => Err(ReadError::TotalTooLarge),
            length => {
                *left -= length;
                Ok(bytes)
            }
        });
        Some(ManifestFile { path, content })
    }
}

impl StaticFiles for FakeStaticFiles {
    fn read(&self, path: &Path) -> BoxFuture<'static, Result<Vec<ManifestFile>, StaticFilesError>> {
        std::future::ready(self.read_now(path)).boxed()
    }

    fn watch(&self, path: &Path) -> BoxStream<'static, FilesChanged> {
        let mut changes = self.disk.changes();
        changes.mark_changed();
        let removals = self.disk.removals(path);
        let watching = (self.clone(), path.to_path_buf(), changes, None, removals);
        stream::unfold(watching, |(files, path, mut changes, mut before, removals)| async move {
            loop {
                // The disk outlives the watch, since `files` holds it.
                changes.changed().await.ok()?;
                let first = before.is_none();
                if !first {
                    tokio::time::sleep(COALESCE).await;
                }
                changes.mark_unchanged();
                // Only changes at the path and directly below it count.
                let now = files.fingerprint(&path);
                let times = files.disk.removals(&path);
                let shown = |path: &PathBuf| {
                    path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
                };
                let fresh = times.iter().filter(|(path, times)| removals.get(*path) != Some(*times));
                let removed: BTreeSet<_> = fresh.map(|(path, _)| path.clone()).filter(shown).collect();
                if before.as_ref() != Some(&now) || !removed.is_empty() {
                    before = Some(now);
                    return Some((FilesChanged { removed }, (files, path, changes, before, times)));
                }
            }
        })
        .boxed()
    }
}

/// The state that a watch compares: the relevant files with their content.
type Fingerprint = Vec<(PathBuf, Option<FileKind>, Option<Vec<u8>>)>;

impl FakeStaticFiles {
    fn fingerprint(&self, path: &Path) -> Fingerprint {
        std::iter::once(path.to_path_buf())
            .chain(self.disk.children(path))
            .filter(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b".")))
            .map(|path| {
                let (kind, content) = (self.disk.kind_followed(&path), self.disk.read(&path));
                (path, kind, content)
            })
            .collect()
    }
}
