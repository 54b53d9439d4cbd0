use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use super::{CredentialPlugins, PLUGIN_WITHIN, PluginError, PluginRun};
use crate::host::SecretContent;

type Answer = Arc<dyn Fn(&PluginRun) -> Result<Vec<u8>, PluginError> + Send + Sync>;
type Outcome = Shared<BoxFuture<'static, Result<SecretContent, PluginError>>>;

#[derive(Default)]
struct State {
    plugins: BTreeMap<PathBuf, (Duration, Answer)>,
    runs: Vec<PluginRun>,
    under_way: BTreeMap<(PathBuf, [u8; 32]), Outcome>,
}

/// Plugins that answer by a closure after a while.
#[derive(Clone, Default)]
pub struct FakeCredentialPlugins(Arc<Mutex<State>>);

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

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialPlugins for FakeCredentialPlugins {
    fn run(&self, run: PluginRun) -> BoxFuture<'static, Result<SecretContent, PluginError>> {
        let mut state = self.state();
        let key = run.key();
        if let Some(outcome) = state.under_way.get(&key) {
            return outcome.clone().boxed();
        }
        state.runs.push(run.clone());
        let Some((takes, answer)) = state.plugins.get(&run.program).cloned() else {
            let why = format!("exec: {:?}: executable file not found in $PATH", run.program);
            return async move { Err(PluginError::NotEnded { why }) }.boxed();
        };
        let (this, of_run) = (self.clone(), key.clone());
        let outcome = async move {
            tokio::time::sleep(takes.min(PLUGIN_WITHIN)).await;
            this.state().under_way.remove(&of_run);
            if takes > PLUGIN_WITHIN {
                let why = format!("it has not ended within {} s", PLUGIN_WITHIN.as_secs());
                return Err(PluginError::NotEnded { why });
            }
            answer(&run).map(SecretContent::new)
        };
        let outcome = outcome.boxed().shared();
        state.under_way.insert(key, outcome.clone());
        outcome.boxed()
    }

    fn is_under_way(&self, run: &PluginRun) -> bool {
        self.state().under_way.contains_key(&run.key())
    }
}
