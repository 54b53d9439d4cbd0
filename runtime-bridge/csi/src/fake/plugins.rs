//! The registry of sockets in memory, and the plugins and drivers behind them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};

use super::driver::FakeDriver;
use crate::driver::{Connect, Driver, Reply};
use crate::error::{CsiError, CsiErrorKind};
use crate::plugins::{Identity, PluginFacts, PluginKind, PluginSockets, Registrar, Sockets};
use crate::rpc::{Rpc, for_each_rpc};
use crate::wire::*;
use bridge_io::watch;

/// Sockets of plugins, what the plugins say of themselves, and the drivers behind their endpoints. Cheap to clone; clones are
/// the same.
#[derive(Clone)]
pub struct FakePlugins {
    sockets: Arc<watch::Sender<Sockets>>,
    behind: Arc<Mutex<Behind>>,
}

#[derive(Default)]
struct Behind {
    made: u64,
    plugins: BTreeMap<String, Plugin>,
    drivers: BTreeMap<String, FakeDriver>,
}

#[derive(Default)]
struct Plugin {
    facts: PluginFacts,
    statuses: Vec<Result<(), String>>,
    silent: usize,
    deaf: VecDeque<String>,
}

impl Default for FakePlugins {
    fn default() -> Self {
        Self { sockets: Arc::new(watch::Sender::new(Sockets::default())), behind: Arc::default() }
    }
}

impl FakePlugins {
    fn lock(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a socket, or makes it anew, of a plugin that says this of itself.
    pub fn show(&self, socket: &str, facts: PluginFacts) {
        let inode = {
            let mut behind = self.lock();
            behind.plugins.entry(socket.to_owned()).or_default().facts = facts;
            behind.made += 1;
            behind.made
        };
        self.sockets.send_modify(|sockets| {
            sockets.insert(socket.to_owned(), Identity { device: 1, inode, made_ns: 0 });
        });
    }

    /// Shows a CSI driver, with its registration at `/registry/<name>.sock` and itself at `/plugins/<name>.sock`.
    pub fn show_driver(&self, driver: &FakeDriver) {
        let name = driver.name();
        let endpoint = format!("/plugins/{name}.sock");
        self.lock().drivers.insert(endpoint.clone(), driver.clone());
        let kind = PluginKind::Csi.word().to_owned();
        let facts = PluginFacts { kind, name: name.clone(), endpoint, versions: vec!["1.0.0".to_owned()] };
        self.show(&Self::socket(&name), facts);
    }

    /// Takes a driver's registration away; the driver itself still answers.
    pub fn hide_driver(&self, name: &str) {
        self.hide(&Self::socket(name));
    }

    /// The socket by which a driver of this name registers.
    #[must_use]
    pub fn socket(name: &str) -> String {
        format!("/registry/{name}.sock")
    }

    /// Takes a socket away.
    pub fn hide(&self, socket: &str) {
        self.sockets.send_if_modified(|sockets| sockets.remove(socket).is_some());
    }

    /// What a plugin has been told of its registration, in order.
    #[must_use]
    pub fn statuses(&self, socket: &str) -> Vec<Result<(), String>> {
        self.lock().plugins.get(socket).map(|plugin| plugin.statuses.clone()).unwrap_or_default()
    }

    /// The next `times` questions to a plugin fail.
    pub fn silence(&self, socket: &str, times: usize) {
        self.lock().plugins.entry(socket.to_owned()).or_default().silent = times;
    }

    /// The next notice to a plugin fails so.
    pub fn deafen(&self, socket: &str, error: &str) {
        self.lock().plugins.entry(socket.to_owned()).or_default().deaf.push_back(error.to_owned());
    }
}

impl PluginSockets for FakePlugins {
    fn watch(&self) -> BoxStream<'static, Sockets> {
        let changes = self.sockets.subscribe();
        futures::stream::unfold((changes, true), |(mut changes, is_first)| async move {
            if !is_first {
                changes.changed().await.ok()?;
            }
            let sockets = changes.borrow_and_update().clone();
            Some((sockets, (changes, false)))
        })
        .boxed()
    }
}

impl Registrar for FakePlugins {
    fn info(&self, socket: &str) -> BoxFuture<'static, Result<PluginFacts, String>> {
        let told = match self.lock().plugins.get_mut(socket) {
            Some(plugin) if plugin.silent > 0 => {
                plugin.silent -= 1;
                Err("the plugin is silent".to_owned())
            }
            Some(plugin) => Ok(plugin.facts.clone()),
            None => Err(format!("dial unix {socket}: connect: no such file or directory")),
        };
        std::future::ready(told).boxed()
    }

    fn notify(&self, socket: &str, status: Result<(), String>) -> BoxFuture<'static, Result<(), String>> {
        let outcome = match self.lock().plugins.get_mut(socket) {
            Some(plugin) => match plugin.deaf.pop_front() {
                Some(error) => Err(error),
                None => {
                    plugin.statuses.push(status);
                    Ok(())
                }
            },
            None => Err(format!("dial unix {socket}: connect: no such file or directory")),
        };
        std::future::ready(outcome).boxed()
    }
}

/// What is behind an endpoint at the time of a call.
struct Endpoint {
    plugins: FakePlugins,
    driver: String,
    endpoint: String,
}

impl Endpoint {
    fn now(&self, rpc: Rpc) -> Result<FakeDriver, CsiError> {
        let behind = self.plugins.lock().drivers.get(&self.endpoint).cloned();
        behind.ok_or_else(|| {
            let message = format!("dial unix {}: connect: no such file or directory", self.endpoint);
            CsiError::new(&self.driver, rpc, CsiErrorKind::Unavailable, message)
        })
    }
}

macro_rules! endpoint_calls {
    ($($service:ident { $($kind:ident $method:ident($request:ident) -> $response:ident = $name:ident;)* })*) => {
        impl Driver for Endpoint {
            $($(
                fn $method(&self, request: $request) -> Reply<$response> {
                    match self.now(Rpc::$name) {
                        Ok(driver) => driver.$method(request),
                        Err(error) => std::future::ready(Err(error)).boxed(),
                    }
                }
            )*)*
        }
    };
}
for_each_rpc!(endpoint_calls);

impl Connect for FakePlugins {
    fn connect(&self, driver: &str, endpoint: &str) -> Arc<dyn Driver> {
        let (driver, endpoint) = (driver.to_owned(), endpoint.to_owned());
        Arc::new(Endpoint { plugins: self.clone(), driver, endpoint })
    }
}
