use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bridge_io::{Lane, NotRun, SharedPlaces, SharedTask};
use bridge_pace::panics;
use futures::future::BoxFuture;
use tokio::process::Command;
use tokio::runtime::Handle;

use super::{
    CredentialPlugins, PLUGIN_OUTPUT_BYTES_MAX, PLUGIN_WITHIN, PLUGINS_MAX, PluginError, PluginOutput,
    PluginRun, RunKey,
};
use crate::host::SecretContent;
use crate::mounts::program::{Input, Left, run_whole, told};

type Output = Result<PluginOutput, PluginError>;
/// The runs under way.
type Runs = Arc<Mutex<BTreeMap<RunKey, SharedTask<Output>>>>;

/// Runs programs, each in a process group of its own.
#[derive(Clone)]
pub struct ExecCredentialPlugins {
    lane: Lane,
    places: SharedPlaces,
    runs: Runs,
    within: Duration,
}

impl std::fmt::Debug for ExecCredentialPlugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExecCredentialPlugins")
    }
}

impl ExecCredentialPlugins {
    /// Programs that run on this runtime.
    pub fn new(io: Handle) -> Self {
        Self::bounded(io, PLUGINS_MAX, PLUGIN_WITHIN)
    }

    /// The same, with so many places and this deadline.
    pub(super) fn bounded(io: Handle, places: usize, within: Duration) -> Self {
        let lane = Lane::new("credential provider plugins", io);
        Self { lane, places: SharedPlaces::new(places), runs: Runs::default(), within }
    }

    async fn output(&self, run: PluginRun) -> Output {
        let place = run.turn(&self.places).await?;
        let mut command = Command::new(&run.program);
        command.args(run.args.iter()).envs(run.env.iter().map(|(name, value)| (name, value)));
        let program = run.program.to_string_lossy();
        let bytes = Some(run.input.expose().to_vec());
        let input = Input { command, program: &program, bytes, left: Left::Killed };
        // One byte more tells that there is more.
        let ended = run_whole(PLUGIN_OUTPUT_BYTES_MAX + 1, &self.lane, input, self.within, place).await;
        let (place, ended) = ended.map_err(|failed| PluginError::NotEnded { why: failed.why })?;
        if !ended.status.success() {
            return Err(PluginError::Failed { status: told(ended.status), said: ended.err.len() });
        }
        if ended.out.len() > PLUGIN_OUTPUT_BYTES_MAX {
            return Err(PluginError::TooMuch);
        }
        Ok(PluginOutput { content: SecretContent::new(ended.out), _place: Arc::new(place) })
    }
}

impl CredentialPlugins for ExecCredentialPlugins {
    fn run(&self, run: PluginRun) -> BoxFuture<'static, Output> {
        // Begins a run, or joins the one under way.
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let key = run.key();
        if let Some(task) = runs.get(&key) {
            return task.outcome();
        }
        let (this, of_run) = (self.clone(), key.clone());
        let work = async move {
            let outcome = panics::caught(this.output(run)).await;
            this.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&of_run);
            panics::resumed(outcome)
        };
        let gone = || Err(PluginError::NotRun(NotRun::RuntimeGone));
        let task = SharedTask::spawn(self.lane.io(), work, gone);
        let outcome = task.outcome();
        runs.insert(key, task);
        outcome
    }

    fn is_under_way(&self, run: &PluginRun) -> bool {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&run.key())
    }
}
