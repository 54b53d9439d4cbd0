use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{FLEX_CALL_WITHIN, FlexAnswer, FlexCall, FlexDrivers, FlexError, FlexVersion, program};

type Answer = Arc<dyn Fn(&FlexCall) -> FlexAnswer + Send + Sync>;

#[derive(Default)]
struct State {
    drivers: BTreeMap<String, (FlexVersion, Answer)>,
    calls: Vec<FlexCall>,
    /// The commands whose calls hang until they are killed.
    hangs: BTreeSet<String>,
    installed: u64,
}

/// Drivers that answer at once by a closure.
#[derive(Clone, Default)]
pub struct FakeFlexDrivers(Arc<Mutex<State>>);

impl fmt::Debug for FakeFlexDrivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeFlexDrivers")
    }
}

impl FakeFlexDrivers {
    /// Installs a driver, or replaces it by a program of another version.
    pub fn install(&self, driver: &str, answer: impl Fn(&FlexCall) -> FlexAnswer + Send + Sync + 'static) {
        let mut state = self.state();
        state.installed += 1;
        let version = FlexVersion { inode: state.installed, bytes: 1, changed_s: 0, changed_ns: 0 };
        state.drivers.insert(driver.to_owned(), (version, Arc::new(answer)));
    }

    /// Removes a driver.
    pub fn remove(&self, driver: &str) {
        self.state().drivers.remove(driver);
    }

    /// From now on calls of this command hang until they are killed at their deadline; nothing is done by them.
    pub fn hang(&self, command: &str) {
        self.state().hangs.insert(command.to_owned());
    }

    /// No later call hangs.
    pub fn go_on(&self) {
        self.state().hangs.clear();
    }

    /// The calls that have begun, oldest first.
    pub fn calls(&self) -> Vec<FlexCall> {
        self.state().calls.clone()
    }

    /// The commands of the calls that have begun, oldest first.
    pub fn commands(&self) -> Vec<String> {
        self.state().calls.iter().filter_map(|call| call.args.first().cloned()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FlexDrivers for FakeFlexDrivers {
    fn dir(&self) -> &Path {
        Path::new("/volume-plugins")
    }

    fn find(&self, driver: &str) -> BoxFuture<'static, Result<Option<FlexVersion>, FlexError>> {
        let found = program(self.dir(), driver);
        let found = found.map(|_| self.state().drivers.get(driver).map(|(version, _)| *version));
        std::future::ready(found).boxed()
    }

    fn call(&self, call: FlexCall) -> BoxFuture<'static, Result<FlexAnswer, FlexError>> {
        let this = self.clone();
        async move {
            let program = program(this.dir(), &call.driver)?;
            let (answer, hangs) = {
                let mut state = this.state();
                state.calls.push(call.clone());
                let hangs = call.args.first().is_some_and(|command| state.hangs.contains(command));
                (state.drivers.get(&*call.driver).map(|(_, answer)| answer.clone()), hangs)
            };
            let Some(answer) = answer else {
                let why = format!("exec: {program:?}: executable file not found in $PATH");
                return Err(FlexError::NotEnded { why });
            };
            if hangs {
                tokio::time::sleep(FLEX_CALL_WITHIN).await;
                let why = format!("it has not ended within {} s", FLEX_CALL_WITHIN.as_secs());
                return Err(FlexError::NotEnded { why });
            }
            Ok(answer(&call))
        }
        .boxed()
    }
}
