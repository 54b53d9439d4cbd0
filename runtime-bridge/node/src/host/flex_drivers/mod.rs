//! FlexVolume drivers (row 10.15): programs of the node that mount volumes. This module finds and runs them; VolumeManager
//! decides which, and interprets what they say.

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
use pod_rules::volume_plugins::is_flex_driver;

pub use exec::ExecFlexDrivers;
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeFlexDrivers;

use bridge_io::NotRun;

/// The longest call of a driver, after which it is killed. Upstream waits for ever.
pub const FLEX_CALL_WITHIN: Duration = Duration::from_secs(120);
/// The longest wait for a place among the drivers that run.
pub const FLEX_PLACE_WITHIN: Duration = Duration::from_secs(60);
/// The most bytes that a driver may write to either stream.
pub const FLEX_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// A call of a driver. Its `Debug` form shows only the first argument: the others may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct FlexCall {
    /// The driver: `<vendor>/<name>`, or a name alone.
    pub driver: Arc<str>,
    /// What is asked for, and its arguments.
    pub args: Vec<String>,
    /// Calls with the same word here run one after another.
    pub turn: String,
    /// The namespace on whose behalf it runs: namespaces share the places of drivers.
    pub tenant: Arc<str>,
}

impl fmt::Debug for FlexCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.args.first();
        f.debug_struct("FlexCall")
            .field("driver", &self.driver)
            .field("command", &command)
            .finish_non_exhaustive()
    }
}

/// What a driver said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlexAnswer {
    /// How it ended, such as `exit status 1`; `None` if well.
    pub failed: Option<String>,
    /// What it wrote to its standard output.
    pub out: Vec<u8>,
    /// What it wrote to its standard error.
    pub err: Vec<u8>,
}

/// Which program a driver is: one that replaces it has another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlexVersion {
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

/// Why a driver has not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlexError {
    /// No driver can have this name.
    #[error("{0:?} is not the name of a FlexVolume driver")]
    InvalidName(String),
    /// It could not be run, or had to be killed at its deadline.
    #[error("{why}")]
    NotEnded {
        /// The reason, for people.
        why: String,
    },
    /// It wrote too much.
    #[error("it wrote more than {} bytes", FLEX_OUTPUT_BYTES_MAX)]
    TooMuch,
    /// Others have kept all places.
    #[error("no turn within {} s: too many FlexVolume drivers run", FLEX_PLACE_WITHIN.as_secs())]
    NoPlace,
    /// It is not known whether it is there.
    #[error("cannot look at {path}: {reason}", path = path.display())]
    Unreadable {
        /// The program.
        path: PathBuf,
        /// The operating system's error.
        reason: String,
    },
    /// Too much work already waits, or the I/O runtime has shut down.
    #[error(transparent)]
    NotRun(#[from] NotRun),
}

/// Finds and runs FlexVolume drivers.
pub trait FlexDrivers: Send + Sync + fmt::Debug {
    /// The directory in which they lie: `volumePluginDir`.
    fn dir(&self) -> &Path;

    /// Which program the driver is; `None` if there is none that can be run.
    ///
    /// # Errors
    /// It cannot be told.
    fn find(&self, driver: &str) -> BoxFuture<'static, Result<Option<FlexVersion>, FlexError>>;

    /// Calls a driver. A call that has begun goes on to its end, or to its deadline, if the future is dropped; the next one with
    /// the same turn waits until the program has died.
    ///
    /// # Errors
    /// Why there is no answer.
    fn call(&self, call: FlexCall) -> BoxFuture<'static, Result<FlexAnswer, FlexError>>;
}

/// Where the program of a driver lies: in a directory with its name, whose slash is a tilde there.
fn program(dir: &Path, driver: &str) -> Result<PathBuf, FlexError> {
    if !is_flex_driver(driver) {
        return Err(FlexError::InvalidName(driver.to_owned()));
    }
    let name = driver.rsplit('/').next().unwrap_or(driver);
    Ok(dir.join(driver.replace('/', "~")).join(name))
}
