use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::{COMPRESSED, Compressed, ContainerLogs, Done, LogError, LogPlace, UNFINISHED};
use crate::tenant_files;
use bridge_io::{Lane, at_low_priority};

/// The most rotated files of one log that are listed. LogManager keeps only a few; more are made by others.
const ROTATED_MAX: usize = 10_000;
/// The most logs that are compressed at the same time, over all callers.
const COMPRESSING_MAX: usize = 32;

/// Logs on this machine's disk.
#[derive(Debug, Clone)]
pub struct DiskContainerLogs {
    lane: Lane,
    compressing: Compressing,
}

impl DiskContainerLogs {
    /// Files are accessed on the blocking threads of `io`; compressing has threads of its own.
    pub fn new(io: Handle) -> Self {
        Self { lane: Lane::new("LogManager", io), compressing: Compressing::default() }
    }
}

impl ContainerLogs for DiskContainerLogs {
    fn sizes(&self, places: Vec<LogPlace>) -> Done<Vec<Result<Option<u64>, LogError>>> {
        self.lane.run(move || Ok(places.iter().map(size).collect()))
    }

    fn rotated(&self, place: &LogPlace) -> Done<Vec<String>> {
        let place = place.clone();
        self.lane.run(move || rotated(&place))
    }

    fn remove(&self, place: &LogPlace, names: Vec<String>) -> Done<()> {
        let (place, compressing) = (place.clone(), self.compressing.clone());
        self.lane.run(move || {
            let Some(dir) = directory(&place)? else { return Ok(()) };
            for name in &names {
                // Locked during the removal: compressing begins after the removal, or is seen here.
                let compressing = compressing.locked();
                let written = name.strip_suffix(UNFINISHED).map(|of| beside(&place, of));
                if written.is_none_or(|of| !compressing.contains(&of)) {
                    removed(&dir, &place, name)?;
                }
            }
            Ok(())
        })
    }

    fn rename(&self, place: &LogPlace, from: &str, to: &str) -> Done<()> {
        let (place, from, to) = (place.clone(), from.to_owned(), to.to_owned());
        self.lane.run(move || {
            let from_path = beside(&place, &from);
            let dir = directory(&place)?.ok_or_else(|| failed("rename", &from_path)(Errno::NOENT))?;
            look(&dir, &place, &from)?.ok_or_else(|| failed("rename", &from_path)(Errno::NOENT))?;
            segment(&place, &to)?;
            rustix::fs::renameat_with(&dir, &from, &dir, &to, RenameFlags::NOREPLACE)
                .map_err(failed("rename", &from_path))
        })
    }

    fn compress(&self, place: &LogPlace, name: &str) -> Done<Compressed> {
        let (place, name, compressing) = (place.clone(), name.to_owned(), self.compressing.clone());
        at_low_priority("compress-log", move || {
            let Some(_under_way) = compressing.begin(beside(&place, &name))? else {
                return Ok(Compressed::Nothing);
            };
            compress(&place, &name)
        })
    }
}

/// The files that are being compressed, over all callers.
#[derive(Debug, Clone, Default)]
struct Compressing(Arc<Mutex<BTreeSet<PathBuf>>>);

/// A file that is being compressed, until this is dropped.
struct UnderWay {
    all: Compressing,
    file: PathBuf,
}

impl Compressing {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a file as being compressed; `None` if it is already.
    fn begin(&self, file: PathBuf) -> Result<Option<UnderWay>, LogError> {
        let mut files = self.locked();
        if files.len() >= COMPRESSING_MAX {
            return Err(LogError::Busy);
        }
        let begun = files.insert(file.clone());
        Ok(begun.then(|| UnderWay { all: self.clone(), file }))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.locked().remove(&self.file);
    }
}

fn beside(place: &LogPlace, name: &str) -> PathBuf {
    place.root.join(&place.pod).join(&place.container).join(name)
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(Errno) -> LogError {
    let path = path.to_path_buf();
    move |errno| LogError::Io { operation, path, reason: io::Error::from(errno).to_string() }
}

fn failed_io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let path = path.to_path_buf();
    move |error| LogError::Io { operation, path, reason: error.to_string() }
}

/// A name that stays within its directory.
fn segment<'a>(place: &LogPlace, name: &'a str) -> Result<&'a str, LogError> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    if plain { Ok(name) } else { Err(LogError::NotALog { path: beside(place, name) }) }
}

/// The container's directory; `None` if it does not exist.
fn directory(place: &LogPlace) -> Result<Option<OwnedFd>, LogError> {
    let below = Path::new(segment(place, &place.pod)?).join(segment(place, &place.container)?);
    let path = place.root.join(&below);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, &place.root, flags, Mode::empty()).and_then(|root| {
        let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&root, &below, flags | OFlags::NOFOLLOW, Mode::empty(), within)
    });
    match opened {
        Ok(dir) => Ok(Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("open", &path)(errno)),
    }
}

/// The metadata of a regular file in the directory; `None` if there is no such file.
fn look(dir: &OwnedFd, place: &LogPlace, name: &str) -> Result<Option<Stat>, LogError> {
    match rustix::fs::statat(dir, segment(place, name)?, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode).is_file() => Ok(Some(stat)),
        Ok(_) => Err(LogError::NotALog { path: beside(place, name) }),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("look at", &beside(place, name))(errno)),
    }
}

fn size(place: &LogPlace) -> Result<Option<u64>, LogError> {
    let Some(dir) = directory(place)? else { return Ok(None) };
    let stat = look(&dir, place, &place.file)?;
    Ok(stat.map(|stat| u64::try_from(stat.st_size).unwrap_or(0)))
}

fn rotated(place: &LogPlace) -> Result<Vec<String>, LogError> {
    let Some(dir) = directory(place)? else { return Ok(Vec::new()) };
    let path = beside(place, "");
    let entries = Dir::read_from(&dir).map_err(failed("list", &path))?;
    let mut names = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", &path))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let rest = name.strip_prefix(place.file.as_str());
        if rest.is_some_and(|rest| rest.starts_with('.')) && matches!(look(&dir, place, name), Ok(Some(_))) {
            names.insert(name.to_owned());
        }
        if names.len() >= ROTATED_MAX {
            break;
        }
    }
    Ok(names.into_iter().collect())
}

fn removed(dir: &OwnedFd, place: &LogPlace, name: &str) -> Result<(), LogError> {
    match rustix::fs::unlinkat(dir, segment(place, name)?, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed("remove", &beside(place, name))(errno)),
    }
}

fn compress(place: &LogPlace, name: &str) -> Result<Compressed, LogError> {
    let path = beside(place, name);
    let Some(dir) = directory(place)? else { return Ok(Compressed::Nothing) };
    let source = match tenant_files::read_at(&dir, segment(place, name)?) {
        Ok(source) => source,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Compressed::Nothing),
        Err(error) if tenant_files::is_no_regular_file(&error) => return Err(LogError::NotALog { path }),
        Err(error) => return Err(failed_io("open", &path)(error)),
    };
    let stat = rustix::fs::fstat(&source).map_err(failed("look at", &path))?;
    let unfinished = format!("{name}{UNFINISHED}");
    let outcome = squeeze(&dir, place, name, source, &stat);
    if !matches!(outcome, Ok(Compressed::Done)) {
        removed(&dir, place, &unfinished)?;
    }
    outcome
}

fn squeeze(
    dir: &OwnedFd,
    place: &LogPlace,
    name: &str,
    source: File,
    stat: &Stat,
) -> Result<Compressed, LogError> {
    let (path, unfinished) = (beside(place, name), format!("{name}{UNFINISHED}"));
    let written = beside(place, &unfinished);
    // A file that a killed kubelet left behind.
    removed(dir, place, &unfinished)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    let target = tenant_files::make_at(dir, unfinished.as_str(), mode.bits());
    let target = target.map_err(failed_io("make", &written))?;
    // Set explicitly, independent of the umask.
    rustix::fs::fchmod(&target, mode).map_err(failed("set the mode of", &written))?;
    // Only as many bytes as there were at the beginning: a growing file has no end.
    let mut bounded = io::Read::take(source, u64::try_from(stat.st_size).unwrap_or(0));
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut bounded, &mut encoder).map_err(failed_io("compress", &path))?;
    encoder.finish().map_err(failed_io("write", &written))?;
    match look(dir, place, name)? {
        None => return Ok(Compressed::Nothing),
        Some(now) if now.st_ino != stat.st_ino => return Ok(Compressed::Nothing),
        Some(now) if now.st_size != stat.st_size => return Ok(Compressed::Growing),
        Some(_) => {}
    }
    let compressed = format!("{name}{COMPRESSED}");
    rustix::fs::renameat(dir, unfinished.as_str(), dir, compressed.as_str())
        .map_err(failed("rename", &written))?;
    removed(dir, place, name)?;
    Ok(Compressed::Done)
}
