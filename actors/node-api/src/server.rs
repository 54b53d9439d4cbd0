//! A bounded HTTP/1.1 listener.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use runtime_bridge::serving::{Chain, ServingTls, keep_alive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Bytes of a head, and of what waits to be written: longer commands than a shell takes do not come.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// A TLS client must have ended its handshake by then.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Connections at once, upgraded ones included; more wait in the kernel's backlog. With TLS, the oldest one on
    /// which nobody has shown yet who it is gives its place to a new one, so that strangers keep nobody out.
    pub connections_max: usize,
    /// A client must have sent the head of a request by then, counted from the connection or the answer before.
    pub head_deadline: Duration,
}

impl Bounds {
    /// Of a listener for people and probes.
    pub const PLAIN: Self = Self { connections_max: 256, head_deadline: Duration::from_secs(10) };
    /// Of the listener that the API server keeps connections to: they may be idle for a while (row 21.1).
    pub const SECURED: Self = Self { connections_max: 1024, head_deadline: Duration::from_secs(90) };
}

/// What every request knows of its connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's certificates.
    pub chain: Chain,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// Held as long as anything goes on over the connection, also when it is no HTTP any more.
    pub place: Arc<OwnedSemaphorePermit>,
    /// Somebody known has asked something over it.
    pub known: Arc<AtomicBool>,
    /// The listener has ended: so does everything that came through it.
    pub ended: CancellationToken,
}

/// Connections on which nobody has shown yet who it is, oldest first.
#[derive(Debug, Default)]
struct Strangers(VecDeque<(Weak<AtomicBool>, CancellationToken)>);

impl Strangers {
    /// A new connection, which ends with the token.
    fn add(&mut self, known: &Arc<AtomicBool>, leave: CancellationToken, connections_max: usize) {
        self.0.push_back((Arc::downgrade(known), leave));
        if self.0.len() > 2 * connections_max {
            self.0.retain(|(known, _)| is_stranger(known));
        }
    }

    /// The oldest one has to leave.
    fn send_one_away(&mut self) {
        while let Some((known, leave)) = self.0.pop_front() {
            if is_stranger(&known) {
                return leave.cancel();
            }
        }
    }
}

fn is_stranger(known: &Weak<AtomicBool>) -> bool {
    known.upgrade().is_some_and(|known| !known.load(Ordering::Relaxed))
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
    let ended = CancellationToken::new();
    // Dropping these ends the connections, and what they were upgraded to, with the listener.
    let _ending = ended.clone().drop_guard();
    let mut connections = JoinSet::new();
    let mut strangers = Strangers::default();
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
        if tls.is_some() && places.available_permits() == 0 {
            strangers.send_one_away();
        }
        let Ok(place) = places.clone().acquire_owned().await else { return std::io::ErrorKind::Other.into() };
        let connection = Connection {
            chain: Arc::from([]),
            peer: Some(peer),
            place: Arc::new(place),
            known: Arc::default(),
            ended: ended.clone(),
        };
        let leave = CancellationToken::new();
        strangers.add(&connection.known, leave.clone(), bounds.connections_max);
        let work = connected(stream, connection, routes.clone(), tls.clone(), bounds.head_deadline);
        connections.spawn(async move {
            tokio::select! {
                biased;
                () = leave.cancelled() => tracing::debug!(%peer, "A connection of nobody known gave up its place"),
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
