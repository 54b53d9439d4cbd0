use std::collections::BTreeMap;
use std::fs::{Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use rustix::fs::OFlags;
use tokio::runtime::Handle;

use super::{
    DOCKER_CONFIG_BYTES_MAX, DockerConfigFile, DockerConfigFormat, DockerConfigs, SecretContent, candidates,
};
use bridge_io::{Lane, NotRun};

/// The metadata by which a changed file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

type ConfigCache = Arc<Mutex<BTreeMap<PathBuf, (Stamp, SecretContent)>>>;

/// The credential files of this machine.
#[derive(Debug, Clone)]
pub struct DiskDockerConfigs {
    candidates: Arc<[(PathBuf, DockerConfigFormat)]>,
    known: ConfigCache,
    lane: Lane,
}

impl DiskDockerConfigs {
    /// Files in and around the kubelet's `root` directory, its `working` directory and its user's `home`. The disk is
    /// accessed only on the blocking threads of `io`.
    pub fn new(root: &Path, working: Option<&Path>, home: Option<&Path>, io: Handle) -> Self {
        Self {
            candidates: candidates(root, working, home).into(),
            known: ConfigCache::default(),
            lane: Lane::new("ImageManager", io),
        }
    }
}

impl DockerConfigs for DiskDockerConfigs {
    fn read(&self) -> BoxFuture<'static, Result<Vec<DockerConfigFile>, NotRun>> {
        let (candidates, known) = (Arc::clone(&self.candidates), Arc::clone(&self.known));
        self.lane.run(move || {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            let found = candidates.iter().filter_map(|(path, format)| {
                let content = read(path, &mut known).transpose()?;
                Some(DockerConfigFile { path: path.clone(), format: *format, content })
            });
            Ok(found.collect())
        })
    }
}

/// Reads a file; `None` if it does not exist.
fn read(
    path: &Path,
    known: &mut BTreeMap<PathBuf, (Stamp, SecretContent)>,
) -> Result<Option<SecretContent>, String> {
    match read_new(path, known.get(path)) {
        Ok((stamp, content)) => {
            known.insert(path.to_owned(), (stamp, content.clone()));
            Ok(Some(content))
        }
        Err(error) => {
            known.remove(path);
            // A missing file is the usual case, and so is a missing directory above it.
            let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            if missing { Ok(None) } else { Err(error.to_string()) }
        }
    }
}

fn read_new(path: &Path, known: Option<&(Stamp, SecretContent)>) -> io::Result<(Stamp, SecretContent)> {
    // Opening a FIFO must not block.
    let opened =
        OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let meta = opened.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let stamp = Stamp::of(&meta);
    if let Some((_, content)) = known.filter(|(before, _)| *before == stamp) {
        return Ok((stamp, content.clone()));
    }
    let mut bytes = Vec::new();
    opened.take(DOCKER_CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > DOCKER_CONFIG_BYTES_MAX {
        return Err(io::Error::other(format!("larger than {DOCKER_CONFIG_BYTES_MAX} bytes")));
    }
    Ok((stamp, SecretContent::new(bytes)))
}
