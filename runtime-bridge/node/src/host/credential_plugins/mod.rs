//! Credential provider plugins: programs of the node that give credentials for registries (row 6.6). This module runs
//! them; ImageManager decides which, and interprets what they give.

mod exec;
#[cfg(any(test, feature = "fake"))]
mod fake;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sha2::{Digest, Sha256};

pub use exec::ExecCredentialPlugins;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeCredentialPlugins;

use super::SecretContent;
use bridge_io::{NotRun, SharedPlace, SharedPlaces};

/// The longest run of a plugin, as upstream.
pub const PLUGIN_WITHIN: Duration = Duration::from_secs(60);
/// The longest wait for a turn.
pub const PLUGIN_TURN_WITHIN: Duration = Duration::from_secs(180);
/// At most so many plugins run at once on the node.
const PLUGINS_MAX: usize = 8;
/// The most bytes of a plugin's answer.
pub const PLUGIN_OUTPUT_BYTES_MAX: usize = 1 << 20;

/// A run of a plugin. Its `Debug` form shows neither environment nor input, which may hold secrets.
#[derive(Clone)]
pub struct PluginRun {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Arc<[String]>,
    /// What is added to the kubelet's environment, names and values.
    pub env: Arc<[(String, String)]>,
    /// What the program reads from its standard input.
    pub input: SecretContent,
    /// The namespace on whose behalf it runs: namespaces share the places of plugins.
    pub tenant: Arc<str>,
    /// Whether it is still needed: asked when it has its turn, before the program is started.
    pub needed: Needed,
}

/// The namespace, the program and the hash of the input of a run.
type RunKey = (Arc<str>, PathBuf, [u8; 32]);

/// Whether a run is still needed: while it waited for its turn, another one may have given what it would give.
#[derive(Clone)]
pub struct Needed(Arc<dyn Fn() -> bool + Send + Sync>);

impl Needed {
    /// Needed if this says so. It is asked on a thread that must not be blocked.
    pub fn when(needed: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(needed))
    }

    /// Needed in any case.
    pub fn always() -> Self {
        Self::when(|| true)
    }

    fn is_so(&self) -> bool {
        (self.0)()
    }
}

/// What a plugin wrote on its standard output. The run keeps its place while a clone of this lives: what is done with the output
/// before that is known to the run whose turn comes next.
#[derive(Clone, Debug)]
pub struct PluginOutput {
    content: SecretContent,
    _place: Arc<SharedPlace>,
}

impl PluginOutput {
    /// The output.
    pub fn content(&self) -> &SecretContent {
        &self.content
    }
}

impl fmt::Debug for PluginRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PluginRun").field("program", &self.program).finish_non_exhaustive()
    }
}

impl PluginRun {
    /// Waits for the turn of its tenant, at which it begins if it is needed still.
    async fn turn(&self, places: &SharedPlaces) -> Result<SharedPlace, PluginError> {
        let place = tokio::time::timeout(PLUGIN_TURN_WITHIN, places.place(&self.tenant)).await;
        let Ok(Some(place)) = place else { return Err(PluginError::NoTurn) };
        if self.needed.is_so() { Ok(place) } else { Err(PluginError::NotNeeded) }
    }

    /// Two runs with the same key would give the same, at the turn of the same namespace: one that another namespace has put behind
    /// many others is none to wait for.
    fn key(&self) -> RunKey {
        (self.tenant.clone(), self.program.clone(), Sha256::digest(self.input.expose()).into())
    }
}

/// Why a plugin has given nothing. No text shows what the program wrote, which may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// It could not be run, had to be killed at its deadline, or has left behind what does not die.
    #[error("{why}")]
    NotEnded {
        /// The reason, for people.
        why: String,
    },
    /// It has failed.
    #[error("{status}; the {said} bytes on its standard error are not shown: they may be secrets")]
    Failed {
        /// How it has ended.
        status: String,
        /// How many bytes of its standard error were read, at most one more than [`PLUGIN_OUTPUT_BYTES_MAX`].
        said: usize,
    },
    /// It wrote too much.
    #[error("it wrote more than {} bytes on its standard output", PLUGIN_OUTPUT_BYTES_MAX)]
    TooMuch,
    /// When it had its turn it was not needed any more.
    #[error("it is not needed any more")]
    NotNeeded,
    /// Others have kept all places.
    #[error("no turn within {} s: too many plugins run", PLUGIN_TURN_WITHIN.as_secs())]
    NoTurn,
    /// The I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// Runs credential provider plugins.
pub trait CredentialPlugins: Send + Sync + fmt::Debug {
    /// Runs a plugin and returns what it wrote on its standard output. The run begins with the call, or is joined if the same
    /// program with the same input runs or waits already for the same namespace, and goes on to its end if the future is dropped.
    ///
    /// # Errors
    /// Why there is no output.
    fn run(&self, run: PluginRun) -> BoxFuture<'static, Result<PluginOutput, PluginError>>;

    /// Whether the same program with the same input runs already for the same namespace, or waits for its turn.
    fn is_under_way(&self, run: &PluginRun) -> bool;
}

/// A file that can be run as a plugin.
///
/// # Errors
/// Why it cannot.
pub fn check_plugin(program: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let meta = std::fs::metadata(program).map_err(|error| error.to_string())?;
    if meta.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if meta.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable".to_owned());
    }
    Ok(())
}
