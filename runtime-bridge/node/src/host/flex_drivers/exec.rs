use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge_io::{Lane, SharedPlaces};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::process::Command;
use tokio::runtime::Handle;

use super::{
    FLEX_CALL_WITHIN, FLEX_OUTPUT_BYTES_MAX, FLEX_PLACE_WITHIN, FlexAnswer, FlexCall, FlexDrivers, FlexError,
    FlexVersion, program,
};
use crate::mounts::program::{Input, Left, run_whole, told};

/// At most so many drivers run at once on the node.
const DRIVERS_MAX: usize = 8;

/// Runs programs in a directory, each in a process group of its own.
#[derive(Clone)]
pub struct ExecFlexDrivers {
    dir: Arc<Path>,
    lane: Lane,
    places: SharedPlaces,
    within: Duration,
}

impl std::fmt::Debug for ExecFlexDrivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecFlexDrivers").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl ExecFlexDrivers {
    /// The drivers in `dir`, on this runtime.
    pub fn new(dir: impl Into<PathBuf>, io: Handle) -> Self {
        Self::bounded(dir, io, DRIVERS_MAX, FLEX_CALL_WITHIN)
    }

    /// The same, with so many places and this deadline.
    pub(super) fn bounded(dir: impl Into<PathBuf>, io: Handle, places: usize, within: Duration) -> Self {
        let (dir, lane): (PathBuf, Lane) = (dir.into(), Lane::new("FlexVolume drivers", io));
        Self { dir: Arc::from(dir), lane, places: SharedPlaces::new(places), within }
    }

    async fn answer(self, call: FlexCall) -> Result<FlexAnswer, FlexError> {
        let program = program(&self.dir, &call.driver)?;
        let turn = self.lane.turn(call.turn.as_str()).await?;
        let place = tokio::time::timeout(FLEX_PLACE_WITHIN, self.places.place(&call.tenant)).await;
        let Ok(Some(place)) = place else { return Err(FlexError::NoPlace) };
        let mut command = Command::new(&program);
        command.args(call.args.iter());
        let name = program.to_string_lossy();
        let input = Input { command, program: &name, bytes: None, left: Left::Alone };
        // One byte more tells that there is more.
        let ended = run_whole(FLEX_OUTPUT_BYTES_MAX + 1, &self.lane, input, self.within, (turn, place)).await;
        let (_held, ended) = ended.map_err(|failed| FlexError::NotEnded { why: failed.why })?;
        if ended.out.len().max(ended.err.len()) > FLEX_OUTPUT_BYTES_MAX {
            return Err(FlexError::TooMuch);
        }
        let failed = (!ended.status.success()).then(|| told(ended.status));
        Ok(FlexAnswer { failed, out: ended.out, err: ended.err })
    }
}

/// The version of a program that can be run.
fn version(program: &Path) -> Result<Option<FlexVersion>, FlexError> {
    match fs::metadata(program) {
        Ok(meta) if meta.is_file() && meta.mode() & 0o111 != 0 => Ok(Some(FlexVersion {
            inode: meta.ino(),
            bytes: meta.size(),
            changed_s: meta.ctime(),
            changed_ns: meta.ctime_nsec(),
        })),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(FlexError::Unreadable { path: program.to_path_buf(), reason: error.to_string() }),
    }
}

impl FlexDrivers for ExecFlexDrivers {
    fn dir(&self) -> &Path {
        &self.dir
    }

    fn find(&self, driver: &str) -> BoxFuture<'static, Result<Option<FlexVersion>, FlexError>> {
        match program(&self.dir, driver) {
            Ok(program) => self.lane.run(move || version(&program)),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn call(&self, call: FlexCall) -> BoxFuture<'static, Result<FlexAnswer, FlexError>> {
        self.lane.run_steps(self.clone().answer(call))
    }
}
