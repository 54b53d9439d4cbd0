//! Pairs on disk: each in a file of its own, and a link to the current one. At every moment there is a complete pair.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{CertificateError, KeyPem, Pair};
use bridge_io::Io;
use bridge_io::Lane;

/// The largest file of a pair, bytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The number of pairs that are kept; older ones are removed when another is written.
const PAIRS_KEPT: usize = 10;

/// Keeps the current pair.
pub trait CertificateStore: Send + Sync + Debug {
    /// The current pair, which may have expired; `None` if there never was one.
    ///
    /// # Errors
    /// A pair exists, and it cannot be read.
    fn load(&self, now: Timestamp) -> BoxFuture<'static, Result<Option<Arc<Pair>>, CertificateError>>;

    /// Makes another pair the current one. Ends only when it is safe on disk.
    ///
    /// # Errors
    /// The bytes are no pair, or cannot be written. The earlier pair stays the current one then.
    fn save(
        &self,
        certificate: &[u8],
        key: &KeyPem,
        now: Timestamp,
    ) -> BoxFuture<'static, Result<Arc<Pair>, CertificateError>>;
}

/// Pairs in the directory `--cert-dir`: `PREFIX-<YYYY-MM-DD-hh-mm-ss>.pem`, and the link `PREFIX-current.pem` to the
/// current one.
#[derive(Clone, Debug)]
pub struct DirCertificates {
    lane: Lane,
    place: Place,
}

#[derive(Clone, Debug)]
struct Place {
    directory: PathBuf,
    prefix: &'static str,
    /// A certificate and its key that are used until the directory has a pair.
    first: Option<(PathBuf, PathBuf)>,
}

impl DirCertificates {
    /// A store that reads and writes nothing yet. `first` are a certificate and its key that are used until the
    /// directory has a pair.
    pub fn new(io: Io, directory: &Path, prefix: &'static str, first: Option<(PathBuf, PathBuf)>) -> Self {
        // An absolute path, so that the links hold wherever they are read from.
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        Self {
            lane: io.for_owner("CertificateManager").lane().clone(),
            place: Place { directory, prefix, first },
        }
    }

    /// The path of the link to the current pair.
    pub fn current_path(&self) -> PathBuf {
        self.place.current()
    }

    fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, CertificateError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, CertificateError>> {
        let place = self.place.clone();
        // Once begun, the work runs to its end even if its caller goes away, and the next work waits for it.
        self.lane.run_alone(place.prefix, move || work(&place))
    }
}

impl CertificateStore for DirCertificates {
    fn load(&self, now: Timestamp) -> BoxFuture<'static, Result<Option<Arc<Pair>>, CertificateError>> {
        self.work(move |place| place.load(now).map(|pair| pair.map(Arc::new)))
    }

    fn save(
        &self,
        certificate: &[u8],
        key: &KeyPem,
        now: Timestamp,
    ) -> BoxFuture<'static, Result<Arc<Pair>, CertificateError>> {
        let (certificate, key) = (certificate.to_vec(), key.clone());
        self.work(move |place| place.save(&certificate, &key, now).map(Arc::new))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |error: std::io::Error| CertificateError::io("read", path, &error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn read_pair(path: &Path) -> Result<Pair, CertificateError> {
    let bytes = read(path)?;
    Pair::read(&bytes, &bytes, path)
}

/// Whether `path` is a link; another kind of file there is an error.
fn is_link(path: &Path) -> Result<bool, CertificateError> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => Ok(true),
        Ok(_) => Err(CertificateError::NoLink { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(CertificateError::io("look at", path, &error)),
    }
}

impl Place {
    fn file(&self, qualifier: &str) -> PathBuf {
        self.directory.join(format!("{}-{qualifier}.pem", self.prefix))
    }

    fn current(&self) -> PathBuf {
        self.file("current")
    }

    /// The new link before it replaces the current one.
    fn updated(&self) -> PathBuf {
        self.file("updated")
    }

    /// The dated pairs, newest first.
    fn dated(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| {
                let date = name.strip_prefix(self.prefix).and_then(|rest| rest.strip_prefix('-'));
                let date = date.and_then(|rest| rest.strip_suffix(".pem")).unwrap_or_default();
                date.len() == "2006-01-02-15-04-05".len()
                    && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
            })
            .collect();
        names.sort_unstable_by(|one, other| other.cmp(one));
        names.into_iter().map(|name| self.directory.join(name)).collect()
    }

    fn load(&self, now: Timestamp) -> Result<Option<Pair>, CertificateError> {
        self.clean();
        let (current, updated) = (self.current(), self.updated());
        if fs::symlink_metadata(&current).is_err() && is_link(&updated)? {
            // Another kubelet was killed after it removed the current link and before it renamed the new one.
            fs::rename(&updated, &current)
                .map_err(|error| CertificateError::io("rename", &updated, &error))?;
        }
        if fs::symlink_metadata(&current).is_ok() {
            return match read_pair(&current) {
                Ok(pair) => Ok(Some(pair)),
                Err(error) => self.newest_whole(now, error).map(Some),
            };
        }
        if let Some((certificate, key)) = &self.first
            && certificate.exists()
            && key.exists()
        {
            return Pair::read(&read(certificate)?, &read(key)?, certificate).map(Some);
        }
        let plain = |ending: &str| self.directory.join(format!("{}.{ending}", self.prefix));
        let (certificate, key) = (plain("crt"), plain("key"));
        if certificate.exists() && key.exists() {
            return Pair::read(&read(&certificate)?, &read(&key)?, &certificate).map(Some);
        }
        Ok(None)
    }

    /// Used when the current pair is damaged: an older pair that is complete and still valid is better than none.
    fn newest_whole(&self, now: Timestamp, error: CertificateError) -> Result<Pair, CertificateError> {
        for path in self.dated() {
            let Ok(pair) = read_pair(&path) else { continue };
            if pair.is_expired(now) {
                continue;
            }
            tracing::error!(%error, instead = %path.display(), "The current certificate is damaged; an older one is used");
            if fs::symlink_metadata(self.current()).is_ok_and(|meta| meta.file_type().is_symlink()) {
                self.link(&path)?;
            }
            return Ok(pair);
        }
        Err(error)
    }

    /// Removes the temporary files of a kubelet that was killed while it wrote.
    fn clean(&self) {
        let begin = format!(".{}-", self.prefix);
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&begin) && name.ends_with(".tmp") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn save(&self, certificate: &[u8], key: &KeyPem, now: Timestamp) -> Result<Pair, CertificateError> {
        let pair = Pair::read(certificate, key.text().as_bytes(), Path::new("the signed certificate"))?;
        fs::create_dir_all(&self.directory)
            .map_err(|error| CertificateError::io("create", &self.directory, &error))?;
        is_link(&self.current())?;
        let date = now.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S").to_string();
        let path = self.file(&date);
        let mut text = certificate.trim_ascii().to_vec();
        text.push(b'\n');
        text.extend_from_slice(key.text().as_bytes());
        write_private(&path, &text)?;
        self.link(&path)?;
        for old in self.dated().into_iter().skip(PAIRS_KEPT) {
            if old != path {
                let _ = fs::remove_file(old);
            }
        }
        Ok(pair)
    }

    /// Makes the current link lead to this file. The new link replaces the old one in one step.
    fn link(&self, file: &Path) -> Result<(), CertificateError> {
        let (current, updated) = (self.current(), self.updated());
        if is_link(&updated)? {
            fs::remove_file(&updated).map_err(|error| CertificateError::io("remove", &updated, &error))?;
        }
        symlink(file, &updated).map_err(|error| CertificateError::io("link", &updated, &error))?;
        fs::rename(&updated, &current).map_err(|error| CertificateError::io("rename", &updated, &error))?;
        sync_directory(&self.directory)
    }
}

fn sync_directory(directory: &Path) -> Result<(), CertificateError> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| CertificateError::io("write", directory, &error))
}

/// Writes a file completely or not at all; only root may read it.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), CertificateError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    let failed = |error: std::io::Error| CertificateError::io("write", path, &error);
    let _ = fs::remove_file(&temporary);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed)
}
