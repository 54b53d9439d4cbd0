//! Serves HTTP: bounded listeners for an actor's routes, and a proxy between callers and the runtime's streaming
//! server.
//!
//! [`Listeners`] and [`StreamProxy`] are the traits; [`System`] implements both with sockets, and behind the feature
//! `fake` the types `FakeListeners` and `FakeStreams` implement them without.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod channels;
mod connection;
#[cfg(feature = "fake")]
mod fake;
mod http2;
mod moving;
mod places;
mod proxy;
mod requests;
mod server;
pub mod spdy;
pub mod websocket;
mod wrapping;

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use bridge_io::Io;
use bridge_pace::panics;
use bridge_tls::serving::ServingTls;
use futures::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;

pub use bridge_net::peer::Peer;
pub use bridge_net::roots::Places as Authorities;
pub use channels::Channels;
pub use connection::{Bounds, Connection, Place};
#[cfg(feature = "fake")]
pub use fake::{FakeListeners, FakeStreams};
pub use moving::StallTimeout;
pub use places::PeerUser;
pub use proxy::{Lasting, Target, Way};
pub use server::serve_on;

/// Opens ports.
pub trait Listeners: Send + Sync + 'static {
    /// Serves `routes` at `address`, over TLS if `tls` is given. Every request has a [`Connection`] among its
    /// extensions.
    ///
    /// Lasts until the listener cannot be opened or has broken, and returns that error; dropping the future closes the
    /// listener and all its connections.
    fn serve(
        &self,
        address: SocketAddr,
        routes: Router,
        tls: Option<ServingTls>,
        bounds: Bounds,
    ) -> BoxFuture<'static, io::Error>;
}

/// Connects callers to the runtime's streaming server.
pub trait StreamProxy: Send + Sync + 'static {
    /// Answers a request with the answer of the server at `target`, and joins both connections when that server
    /// switches protocols. What is said then passes both ways until neither side sends for too long, or the connection
    /// ends.
    fn proxied(
        &self,
        connection: Connection,
        request: Request,
        target: Target,
        way: Way,
    ) -> BoxFuture<'static, Response>;
}

/// Both traits on the machine's sockets, which live on the I/O runtime.
#[derive(Clone, Debug)]
pub struct System {
    io: Io,
    authorities: Authorities,
}

impl System {
    /// Listeners and proxies with their sockets on `io`.
    #[must_use]
    pub fn new(io: Io) -> Self {
        Self { io, authorities: Authorities::of_this_machine() }
    }

    /// Trusts these authorities, in place of the machine's, to have signed the certificate of the runtime's server.
    #[must_use]
    pub fn trusting(self, authorities: Authorities) -> Self {
        Self { authorities, ..self }
    }
}

impl Listeners for System {
    fn serve(
        &self,
        address: SocketAddr,
        routes: Router,
        tls: Option<ServingTls>,
        bounds: Bounds,
    ) -> BoxFuture<'static, io::Error> {
        let serving = panics::caught(server::serve(address, routes, tls, bounds));
        let server = AbortOnDropHandle::new(self.io.spawn(serving));
        Box::pin(async move { server.await.map_or_else(io::Error::other, panics::resumed) })
    }
}

impl StreamProxy for System {
    fn proxied(
        &self,
        connection: Connection,
        request: Request,
        target: Target,
        way: Way,
    ) -> BoxFuture<'static, Response> {
        let (io, authorities) = (self.io.clone(), self.authorities.clone());
        Box::pin(async move { proxy::proxied(&io, &authorities, connection, request, target, way).await })
    }
}
