use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bridge_io::SharedPlaces;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::{CredentialPlugins, PLUGIN_WITHIN, PLUGINS_MAX, PluginError, PluginOutput, PluginRun, RunKey};
use crate::host::SecretContent;

type Answer = Arc<dyn Fn(&PluginRun) -> Result<Vec<u8>, PluginError> + Send + Sync>;
type Output = Result<PluginOutput, PluginError>;
type Outcome = Shared<BoxFuture<'static, Output>>;

#[derive(Default)]
struct State {
    plugins: BTreeMap<PathBuf, (Duration, Answer)>,
    runs: Vec<PluginRun>,
    under_way: BTreeMap<RunKey, Outcome>,
}

/// Plugins that answer by a closure after a while. Namespaces share as many places as those of real ones.
#[derive(Clone)]
pub struct FakeCredentialPlugins {
    state: Arc<Mutex<State>>,
    places: SharedPlaces,
}

impl Default for FakeCredentialPlugins {
    fn default() -> Self {
        Self { state: Arc::default(), places: SharedPlaces::new(PLUGINS_MAX) }
    }
}

impl fmt::Debug for FakeCredentialPlugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeCredentialPlugins")
    }
}

impl FakeCredentialPlugins {
    /// Installs a plugin, or replaces it: each run takes so long. One that takes longer than [`PLUGIN_WITHIN`] is killed.
    pub fn install(
        &self,
        program: impl Into<PathBuf>,
        takes: Duration,
        answer: impl Fn(&PluginRun) -> Result<Vec<u8>, PluginError> + Send + Sync + 'static,
    ) {
        self.state().plugins.insert(program.into(), (takes, Arc::new(answer)));
    }

    /// The runs that have begun, oldest first.
    pub fn runs(&self) -> Vec<PluginRun> {
        self.state().runs.clone()
    }

    async fn output(&self, run: PluginRun) -> Output {
        let place = run.turn(&self.places).await?;
        let plugin = {
            let mut state = self.state();
            state.runs.push(run.clone());
            state.plugins.get(&run.program).cloned()
        };
        let Some((takes, answer)) = plugin else {
            let why = format!("exec: {:?}: executable file not found in $PATH", run.program);
            return Err(PluginError::NotEnded { why });
        };
        tokio::time::sleep(takes.min(PLUGIN_WITHIN)).await;
        if takes > PLUGIN_WITHIN {
            let why = format!("it has not ended within {} s", PLUGIN_WITHIN.as_secs());
            return Err(PluginError::NotEnded { why });
        }
        let content = SecretContent::new(answer(&run)?);
        Ok(PluginOutput { content, _place: Arc::new(place) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialPlugins for FakeCredentialPlugins {
    fn run(&self, run: PluginRun) -> BoxFuture<'static, Output> {
        let mut state = self.state();
        let key = run.key();
        if let Some(outcome) = state.under_way.get(&key) {
            return outcome.clone().boxed();
        }
        let (this, of_run) = (self.clone(), key.clone());
        let outcome = async move {
            let output = this.output(run).await;
            this.state().under_way.remove(&of_run);
            output
        };
        let outcome = outcome.boxed().shared();
        state.under_way.insert(key, outcome.clone());
        outcome.boxed()
    }

    fn is_under_way(&self, run: &PluginRun) -> bool {
        self.state().under_way.contains_key(&run.key())
    }
}
