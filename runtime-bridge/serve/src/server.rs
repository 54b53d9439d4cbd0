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

use super::moving::{Moving, Patience};
use super::places::{Card, Seats};

/// Bytes of a head, and of what waits to be written: longer commands than a shell takes do not come.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// A TLS client must have ended its handshake by then.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// Longest silence on a stream, and longest time of a request (row 21.1).
const STREAM_DEADLINE: Duration = Duration::from_secs(4 * 60 * 60);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once, upgraded ones included; more wait in the kernel's backlog. A new one takes the place of one
    /// on which nothing was allowed yet, so that strangers keep nobody out, or of one beyond the half that a user or a
    /// peer may have.
    pub connections_max: usize,
    /// A client must have sent the head of a request by then, counted from the connection or the answer before.
    pub head_deadline: Duration,
    /// A client must take something of its answer by then.
    pub write_deadline: Duration,
    /// Longest time of a request, and in which nothing moves on a stream.
    pub stream_deadline: Duration,
}

impl Bounds {
    /// Of a listener for people and probes.
    pub const PLAIN: Self = Self {
        connections_max: 256,
        head_deadline: Duration::from_secs(10),
        write_deadline: Duration::from_secs(30),
        stream_deadline: STREAM_DEADLINE,
    };
    /// Of the listener that the API server keeps connections to: they may be idle for a while (row 21.1).
    pub const SECURED: Self =
        Self { connections_max: 1024, head_deadline: Duration::from_secs(90), ..Self::PLAIN };
}

/// The place of a connection, held as long as anything goes on over it, also when it is no HTTP any more.
#[derive(Debug)]
pub struct Place {
    /// Who has it.
    pub card: Arc<Card>,
    _permit: OwnedSemaphorePermit,
}

/// What every request knows of its connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's certificates.
    pub chain: Chain,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// One of those that there are.
    pub place: Arc<Place>,
    /// How long the client is waited for.
    pub patience: Patience,
    /// The place was given to another one, or the listener has ended: so does everything that came through it.
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

/// [`serve`] on a listener that is open.
pub async fn serve_on(
    listener: TcpListener,
    routes: Router,
    tls: Option<ServingTls>,
    bounds: Bounds,
) -> std::io::Error {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let mut seats: Seats<CancellationToken> = Seats::new(bounds.connections_max);
    let ended = CancellationToken::new();
    // Dropping these ends the connections, and what they were upgraded to, with the listener.
    let _ending = ended.clone().drop_guard();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "Accept failed");
                // Out of file descriptors: accepting again at once would spin.
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
            patience: Patience::new(bounds.write_deadline, bounds.stream_deadline),
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
    let stream = Moving::new(stream, connection.patience.clone());
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
