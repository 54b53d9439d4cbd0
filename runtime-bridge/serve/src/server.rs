//! A bounded HTTP/1.1 listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bridge_tls::serving::{Chain, ServingTls, keep_alive};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::moving::{StallGuard, StallTimeout};
use super::places::{ConnectionTable, PeerUser};

/// The most bytes of a request's head, and of an answer that waits to be written: no shell command is longer.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// The longest time of a client's TLS handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The longest silence on a stream, and the longest time of a request (row 21.1).
const STREAM_DEADLINE: Duration = Duration::from_secs(4 * 60 * 60);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most connections at once, upgraded ones included; further ones wait in the kernel's backlog. A new
    /// connection replaces one on which no request was allowed yet, or one beyond the half of the places that a user or
    /// a peer may have.
    pub connections_max: usize,
    /// The time for a client to send the head of a request, counted from the start of the connection or the end of the
    /// last answer.
    pub head_deadline: Duration,
    /// The time for a client to take some bytes of its answer.
    pub write_deadline: Duration,
    /// The longest time of a request, and the longest silence on a stream.
    pub stream_deadline: Duration,
}

impl Bounds {
    /// The bounds of a listener for people and probes.
    pub const PLAIN: Self = Self {
        connections_max: 256,
        head_deadline: Duration::from_secs(10),
        write_deadline: Duration::from_secs(30),
        stream_deadline: STREAM_DEADLINE,
    };
    /// The bounds of the listener for the API server, whose connections may be idle for a while (row 21.1).
    pub const SECURED: Self =
        Self { connections_max: 1024, head_deadline: Duration::from_secs(90), ..Self::PLAIN };
}

/// A connection's place, held as long as bytes pass over the connection, also after it was upgraded.
#[derive(Debug)]
pub struct Place {
    /// The record of the connection's user.
    pub card: Arc<PeerUser>,
    _permit: OwnedSemaphorePermit,
}

/// A connection, as each of its requests sees it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's certificates.
    pub chain: Chain,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The connection's place among those of the listener.
    pub place: Arc<Place>,
    /// How long the server waits for the client to read.
    pub patience: StallTimeout,
    /// Cancelled when the connection's place went to another connection, or the listener has ended: every stream over
    /// the connection ends with it.
    pub ended: CancellationToken,
}

/// Serves until it is dropped, or until the listener cannot be opened.
pub async fn serve(
    address: SocketAddr,
    routes: Router,
    tls: Option<ServingTls>,
    bounds: Bounds,
) -> std::io::Error {
    match TcpListener::bind(address).await {
        Ok(listener) => serve_on(listener, routes, tls, bounds).await,
        Err(error) => error,
    }
}

/// Does what [`serve`] does, on an open listener.
pub async fn serve_on(
    listener: TcpListener,
    routes: Router,
    tls: Option<ServingTls>,
    bounds: Bounds,
) -> std::io::Error {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let mut seats: ConnectionTable<CancellationToken> = ConnectionTable::new(bounds.connections_max);
    let ended = CancellationToken::new();
    // Dropping this guard ends the connections, and what they were upgraded to, with the listener.
    let _ending = ended.clone().drop_guard();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "Accept failed");
                // No file descriptors are left: accepting again at once would spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if places.available_permits() == 0 {
            seats.send_away().inspect(CancellationToken::cancel);
        }
        let Ok(permit) = places.clone().acquire_owned().await else {
            return std::io::ErrorKind::Other.into();
        };
        let leave = ended.child_token();
        let card = seats.come(peer.ip().into(), leave.clone());
        let connection = Connection {
            chain: Arc::from([]),
            peer: Some(peer),
            place: Arc::new(Place { card, _permit: permit }),
            patience: StallTimeout::new(bounds.write_deadline, bounds.stream_deadline),
            ended: leave.clone(),
        };
        let work = connected(stream, connection, routes.clone(), tls.clone(), bounds.head_deadline);
        connections.spawn(async move {
            tokio::select! {
                biased;
                () = leave.cancelled() => tracing::debug!(%peer, "A connection gave up its place"),
                () = work => {}
            }
        });
    }
}

async fn connected(
    stream: TcpStream,
    mut connection: Connection,
    routes: Router,
    tls: Option<ServingTls>,
    head_deadline: Duration,
) {
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let Some(tls) = tls else {
        return converse(stream, connection, routes, head_deadline).await;
    };
    match tokio::time::timeout(HANDSHAKE_DEADLINE, tls.accept(stream)).await {
        Ok(Ok((stream, chain))) => {
            connection.chain = chain;
            converse(stream, connection, routes, head_deadline).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, peer = ?connection.peer, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = ?connection.peer, "TLS handshake took too long"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    routes: Router,
    head_deadline: Duration,
) {
    let stream = StallGuard::new(stream, connection.patience.clone());
    let service = TowerToHyperService::new(routes.layer(axum::Extension(connection)));
    let conversation = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_deadline)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    if let Err(error) = conversation.await {
        tracing::debug!(%error, "Connection ended");
    }
}
