//! The node's own credentials for registries: the files that `docker login` and similar tools write (row 6.5). This
//! module reads them; ImageManager interprets them.

mod disk;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

pub use disk::DiskDockerConfigs;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeDockerConfigs;

use bridge_io::NotRun;

/// The largest file that is read, bytes.
pub const DOCKER_CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The layout of a credential file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerConfigFormat {
    /// `config.json`: the registries are below `auths`.
    ConfigJson,
    /// `.dockercfg`: the registries are the top level.
    Dockercfg,
}

/// The content of a file with secrets; its `Debug` form shows only the length.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretContent(Arc<[u8]>);

impl SecretContent {
    /// Wraps the bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, which must not be logged or shown.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

/// An existing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerConfigFile {
    /// The file's path.
    pub path: PathBuf,
    /// The file's layout.
    pub format: DockerConfigFormat,
    /// The content, or why it could not be read.
    pub content: Result<SecretContent, String>,
}

/// The node's credential files.
pub trait DockerConfigs: Send + Sync + fmt::Debug {
    /// Every existing file, in the order of the search; the first valid file counts. An unchanged file is not read
    /// again.
    ///
    /// # Errors
    /// Only [`NotRun`], when the I/O runtime has shut down; an unreadable file has its error in its place.
    fn read(&self) -> BoxFuture<'static, Result<Vec<DockerConfigFile>, NotRun>>;
}

/// The paths to search: first every `config.json`, then every `.dockercfg`; in the kubelet's root directory, in its
/// working directory, and in the home and root directories, where `config.json` is below `.docker`.
fn candidates(
    root: &Path,
    working: Option<&Path>,
    home: Option<&Path>,
) -> Vec<(PathBuf, DockerConfigFormat)> {
    let slash = Path::new("/");
    let near = [Some(root), working].into_iter().flatten();
    let far = [home, Some(slash)].into_iter().flatten();
    let json = near.clone().map(|dir| dir.join("config.json"));
    let json = json.chain(far.clone().map(|dir| dir.join(".docker/config.json")));
    let old = near.chain(far).map(|dir| dir.join(".dockercfg"));
    let mut all: Vec<(PathBuf, DockerConfigFormat)> = Vec::new();
    let tagged = json
        .map(|path| (path, DockerConfigFormat::ConfigJson))
        .chain(old.map(|path| (path, DockerConfigFormat::Dockercfg)));
    for candidate in tagged {
        if !all.contains(&candidate) {
            all.push(candidate);
        }
    }
    all
}
