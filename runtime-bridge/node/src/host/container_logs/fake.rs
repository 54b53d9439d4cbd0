use std::path::PathBuf;

use futures::FutureExt;

use super::{COMPRESSED, Compressed, ContainerLogs, Done, LogError, LogPlace};
use crate::host::FakeDisk;
use crate::mounts::FileKind;

/// Logs on a [`FakeDisk`]. [`FakeDisk::fail`] takes the names of the trait's methods. A compressed log keeps its
/// content under its new name.
#[derive(Debug, Clone)]
pub struct FakeContainerLogs {
    disk: FakeDisk,
}

impl FakeContainerLogs {
    /// Logs on `disk`.
    pub fn new(disk: FakeDisk) -> Self {
        Self { disk }
    }

    fn scripted(&self, operation: &'static str, path: PathBuf) -> Result<PathBuf, LogError> {
        match self.disk.scripted_failure(operation, &path) {
            Some(reason) => Err(LogError::Io { operation, path, reason }),
            None => Ok(path),
        }
    }

    fn size(&self, place: &LogPlace) -> Result<Option<u64>, LogError> {
        let path = self.scripted("sizes", beside(place, &place.file))?;
        match self.disk.kind(&path) {
            None => Ok(None),
            Some(FileKind::File) => Ok(self.disk.read(&path).map(|content| content.len() as u64)),
            Some(_) => Err(LogError::NotALog { path }),
        }
    }

    fn moved(&self, operation: &'static str, from: PathBuf, to: PathBuf) -> Result<(), LogError> {
        let from = self.scripted(operation, from)?;
        let refused =
            |path: PathBuf, reason: &str| LogError::Io { operation, path, reason: reason.to_owned() };
        if self.disk.kind(&from) != Some(FileKind::File) {
            return Err(refused(from, "No such file or directory (os error 2)"));
        }
        if self.disk.kind(&to).is_some() {
            return Err(refused(from, "File exists (os error 17)"));
        }
        let mode = self.disk.mode(&from).unwrap_or(0o640);
        self.disk.write(&to, self.disk.read(&from).unwrap_or_default(), mode);
        self.disk.remove(&from);
        Ok(())
    }
}

fn beside(place: &LogPlace, name: &str) -> PathBuf {
    place.root.join(&place.pod).join(&place.container).join(name)
}

fn done<T: Send + 'static>(done: Result<T, LogError>) -> Done<T> {
    std::future::ready(done).boxed()
}

impl ContainerLogs for FakeContainerLogs {
    fn sizes(&self, places: Vec<LogPlace>) -> Done<Vec<Result<Option<u64>, LogError>>> {
        done(Ok(places.iter().map(|place| self.size(place)).collect()))
    }

    fn rotated(&self, place: &LogPlace) -> Done<Vec<String>> {
        let dir = match self.scripted("rotated", beside(place, "")) {
            Ok(dir) => dir,
            Err(error) => return done(Err(error)),
        };
        let files = self.disk.children(dir).into_iter();
        let files = files.filter(|path| self.disk.kind(path) == Some(FileKind::File));
        let names = files.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let prefix = format!("{}.", place.file);
        done(Ok(names.filter(|name| name.starts_with(&prefix)).collect()))
    }

    fn remove(&self, place: &LogPlace, names: Vec<String>) -> Done<()> {
        let each = names.iter().try_for_each(|name| {
            let path = self.scripted("remove", beside(place, name))?;
            self.disk.remove(path);
            Ok(())
        });
        done(each)
    }

    fn rename(&self, place: &LogPlace, from: &str, to: &str) -> Done<()> {
        done(self.moved("rename", beside(place, from), beside(place, to)))
    }

    fn compress(&self, place: &LogPlace, name: &str) -> Done<Compressed> {
        let (from, to) = (beside(place, name), beside(place, &format!("{name}{COMPRESSED}")));
        if self.disk.kind(&from).is_none() {
            return done(Ok(Compressed::Nothing));
        }
        done(self.moved("compress", from, to).map(|()| Compressed::Done))
    }
}
