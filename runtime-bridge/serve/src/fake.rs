//! Listeners without sockets, and a proxy that only records its targets.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge_tls::serving::ServingTls;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Bounds, Connection, Listeners, StreamProxy, Target, Way};

/// A port that is served, and the sender that ends it.
struct Open {
    routes: Router,
    fail: oneshot::Sender<io::Error>,
}

/// Ports in memory: a test can ask for their routes as long as they are served.
#[derive(Clone, Default)]
pub struct FakeListeners(Arc<Mutex<BTreeMap<SocketAddr, Open>>>);

impl FakeListeners {
    fn open(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The routes that are served at an address; `None` if there are none.
    #[must_use]
    pub fn routes(&self, address: SocketAddr) -> Option<Router> {
        self.open().get(&address).map(|open| open.routes.clone())
    }

    /// Breaks the listener at an address; returns whether there was one.
    pub fn fail(&self, address: SocketAddr) -> bool {
        let open = self.open().remove(&address);
        open.is_some_and(|open| open.fail.send(io::ErrorKind::ConnectionAborted.into()).is_ok())
    }
}

impl Listeners for FakeListeners {
    fn serve(
        &self,
        address: SocketAddr,
        routes: Router,
        _: Option<ServingTls>,
        _: Bounds,
    ) -> BoxFuture<'static, io::Error> {
        let listeners = self.clone();
        Box::pin(async move {
            let (fail, failed) = oneshot::channel();
            if listeners.open().contains_key(&address) {
                return io::ErrorKind::AddrInUse.into();
            }
            listeners.open().insert(address, Open { routes, fail });
            let _closing = Closing(listeners, address);
            failed.await.unwrap_or_else(|_| io::ErrorKind::BrokenPipe.into())
        })
    }
}

/// Closes the port when it is dropped.
struct Closing(FakeListeners, SocketAddr);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.open().remove(&self.1);
    }
}

/// Answers every request with "bad gateway", and keeps the targets.
#[derive(Clone, Default)]
pub struct FakeStreams(Arc<Mutex<Vec<Target>>>);

impl FakeStreams {
    /// The targets of all requests, in their order.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl StreamProxy for FakeStreams {
    fn proxied(&self, _: Connection, _: Request, target: Target, _: Way) -> BoxFuture<'static, Response> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(target);
        Box::pin(std::future::ready(StatusCode::BAD_GATEWAY.into_response()))
    }
}
