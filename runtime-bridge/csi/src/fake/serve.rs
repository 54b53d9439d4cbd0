//! A driver and a registration behind Unix sockets, for a kubelet in another process.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};

use crate::client::MESSAGE_BYTES_MAX;
use crate::driver::Driver;
use crate::plugins::PluginFacts;
use crate::rpc::for_each_rpc;
use crate::wire::identity_server::{Identity, IdentityServer};
use crate::wire::node_server::{Node, NodeServer};
use crate::wire::registration::registration_server::{Registration, RegistrationServer};
use crate::wire::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use crate::wire::*;

/// How long the end of a served socket waits for what a driver still does.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// A socket that is served on a thread of its own, as if it were another process. Dropping it breaks every connection and
/// removes the socket; the driver keeps what it holds, as one does that is killed and started again.
#[derive(Debug)]
pub struct Serving {
    path: PathBuf,
    // `None` only while it is being dropped.
    tokio: Option<Runtime>,
}

impl Serving {
    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn begin(path: &Path, router: impl FnOnce() -> Router) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let tokio =
            Builder::new_multi_thread().worker_threads(1).thread_name("fake-plugin").enable_all().build()?;
        let (listener, router) = {
            let _inside = tokio.enter();
            (UnixListener::bind(path)?, router())
        };
        tokio.spawn(async move {
            if let Err(error) = router.serve_with_incoming(UnixListenerStream::new(listener)).await {
                tracing::error!(%error, "a fake plugin's server ended");
            }
        });
        Ok(Self { path: path.to_owned(), tokio: Some(tokio) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(tokio) = self.tokio.take() {
            // Every connection is broken before the next server begins. A runtime's end may be awaited on other threads alone.
            let ended = std::thread::spawn(move || tokio.shutdown_timeout(SHUTDOWN_WITHIN)).join();
            if ended.is_err() {
                tracing::error!("a fake plugin's threads did not end");
            }
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "the fake plugin's socket was gone already");
        }
    }
}

/// Serves a driver on a Unix socket; a socket left behind at `path` is replaced.
///
/// # Errors
/// The operating system's error when `path` cannot be listened on.
pub fn serve_driver(path: &Path, driver: Arc<dyn Driver>) -> io::Result<Serving> {
    let served = Served { driver };
    let identity = IdentityServer::new(served.clone())
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    let node = NodeServer::new(served)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    Serving::begin(path, || tonic::transport::Server::builder().add_service(identity).add_service(node))
}

#[derive(Clone)]
struct Served {
    driver: Arc<dyn Driver>,
}

macro_rules! served_calls {
    (
        identity { $($ikind:ident $imethod:ident($irequest:ident) -> $iresponse:ident = $iname:ident;)* }
        node { $($nkind:ident $nmethod:ident($nrequest:ident) -> $nresponse:ident = $nname:ident;)* }
    ) => {
        #[tonic::async_trait]
        impl Identity for Served {
            $(
                async fn $imethod(&self, request: Request<$irequest>) -> Result<Response<$iresponse>, Status> {
                    let answer = self.driver.$imethod(request.into_inner()).await;
                    answer.map(Response::new).map_err(|error| error.to_status())
                }
            )*
        }

        #[tonic::async_trait]
        impl Node for Served {
            $(
                async fn $nmethod(&self, request: Request<$nrequest>) -> Result<Response<$nresponse>, Status> {
                    let answer = self.driver.$nmethod(request.into_inner()).await;
                    answer.map(Response::new).map_err(|error| error.to_status())
                }
            )*
        }
    };
}
for_each_rpc!(served_calls);

/// A registration that is served on a Unix socket.
#[derive(Debug)]
pub struct ServingRegistration {
    serving: Serving,
    statuses: Arc<Mutex<Vec<Result<(), String>>>>,
}

impl ServingRegistration {
    /// The path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.serving.path()
    }

    /// What the plugin has been told, in order.
    #[must_use]
    pub fn statuses(&self) -> Vec<Result<(), String>> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves the registration of a plugin that says this of itself; a socket left behind at `path` is replaced.
///
/// # Errors
/// The operating system's error when `path` cannot be listened on.
pub fn serve_registration(path: &Path, facts: PluginFacts) -> io::Result<ServingRegistration> {
    let statuses = Arc::default();
    let registering = Registering { facts, statuses: Arc::clone(&statuses) };
    let server = RegistrationServer::new(registering);
    let serving = Serving::begin(path, || tonic::transport::Server::builder().add_service(server))?;
    Ok(ServingRegistration { serving, statuses })
}

struct Registering {
    facts: PluginFacts,
    statuses: Arc<Mutex<Vec<Result<(), String>>>>,
}

#[tonic::async_trait]
impl Registration for Registering {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let facts = self.facts.clone();
        Ok(Response::new(PluginInfo {
            r#type: facts.kind,
            name: facts.name,
            endpoint: facts.endpoint,
            supported_versions: facts.versions,
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let told = request.into_inner();
        let status = if told.plugin_registered { Ok(()) } else { Err(told.error) };
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).push(status);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
