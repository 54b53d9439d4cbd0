//! The node's own credentials for registries: the files in which `docker login` and its kind keep them (FEATURES 6.5).
//! Reading is here; what they mean is ImageManager's.

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

/// A larger file is refused.
pub const DOCKER_CONFIG_BYTES_MAX: u64 = 1 << 20;

/// How a file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DockerConfigFormat {
    /// `config.json`: registries are below `auths`.
    ConfigJson,
    /// `.dockercfg`: registries are the whole.
    Dockercfg,
}

/// The content of a file with secrets in it: its debugging form shows the length alone.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretContent(Arc<[u8]>);

impl SecretContent {
    /// Takes the bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, not to be shown to anybody.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DockerConfigFile {
    /// Where it lies.
    pub path: PathBuf,
    /// How it is laid out.
    pub format: DockerConfigFormat,
    /// What is in it, or why that could not be read.
    pub content: Result<SecretContent, String>,
}

/// The node's credential files.
pub trait DockerConfigs: Send + Sync + fmt::Debug {
    /// Every file that is there, in the order in which they are looked for, the first valid one being the one that
    /// counts. A file that has not changed since the last time is not read again.
    ///
    /// # Errors
    /// Only that the I/O runtime has shut down; what is wrong with a file is said in its place.
    fn read(&self) -> BoxFuture<'static, Result<Vec<DockerConfigFile>, NotRun>>;
}

/// Where files are looked for: all `config.json` first, then all `.dockercfg`; in the root directory of the kubelet,
/// in its working directory, and in the home and root directories, below which `config.json` lies in `.docker`.
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
