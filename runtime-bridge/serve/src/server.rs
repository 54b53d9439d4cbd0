//! A bounded listener: HTTP/1.1, and HTTP/2 over TLS for clients that ask for it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bridge_tls::serving::{ServingTls, keep_alive};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::{Bounds, Connection, Place};
use super::http2;
use super::moving::{StallGuard, StallTimeout};
use super::places::ConnectionTable;
use super::requests::{LastingBody, RequestLimit};

/// The most bytes of a request's head, and of an answer that waits to be written: no shell command is longer.
const BUFFER_BYTES_MAX: usize = 128 * 1024;
/// The longest time of a client's TLS handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// The name of HTTP/2 in a TLS handshake.
const H2: &[u8] = b"h2";

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
            place: Arc::new(Place::new(card, permit)),
            patience: StallTimeout::new(bounds.write_deadline, bounds.stream_deadline),
            ended: leave.clone(),
        };
        let work = connected(stream, connection, routes.clone(), tls.clone(), bounds);
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
    bounds: Bounds,
) {
    let _ = stream.set_nodelay(true);
    keep_alive(&stream);
    let Some(tls) = tls else {
        return converse(stream, connection, routes, bounds).await;
    };
    match tokio::time::timeout(HANDSHAKE_DEADLINE, tls.accept(stream)).await {
        Ok(Ok((stream, chain))) => {
            connection.chain = chain;
            if stream.get_ref().1.alpn_protocol() == Some(H2) {
                http2::converse(stream, connection, routes, bounds).await;
            } else {
                converse(stream, connection, routes, bounds).await;
            }
        }
        Ok(Err(error)) => tracing::debug!(%error, peer = ?connection.peer, "TLS handshake failed"),
        Err(_) => tracing::debug!(peer = ?connection.peer, "TLS handshake took too long"),
    }
}

/// Serves a connection of HTTP/1.1 until it ends, or until a request has taken too long.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    routes: Router,
    bounds: Bounds,
) {
    let stream = StallGuard::new(stream, connection.patience.clone());
    let limit = RequestLimit::new(bounds.request_deadline);
    let requests = limit.clone();
    let routes = TowerToHyperService::new(routes.layer(axum::Extension(connection)));
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let running = requests.begin();
        let answer = routes.call(request);
        async move {
            let answer = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| LastingBody::new(body, running)))
        }
    });
    let conversation = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_deadline)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    tokio::select! {
        biased;
        done = conversation => {
            if let Err(error) = done {
                tracing::debug!(%error, "Connection ended");
            }
        }
        () = limit.expired() => tracing::debug!("A request has taken too long: its connection ends"),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes};
    use axum::routing::get;
    use futures::{StreamExt, stream};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_after_its_time_and_an_idle_connection_after_another() {
        let endless = || async {
            let begin = stream::iter([Ok::<_, std::io::Error>(Bytes::from("begin"))]);
            Body::from_stream(StreamExt::chain(begin, stream::pending()))
        };
        let routes = || Router::new().route("/endless", get(endless)).route("/", get(|| async { "ok" }));
        for (path, lasts) in
            [("/endless", Bounds::SECURED.request_deadline), ("/", Bounds::SECURED.head_deadline)]
        {
            let (mut client, server) = duplex(4096);
            let connection = Connection::of_a_test(Bounds::SECURED);
            let begun = Instant::now();
            let talk = async {
                let ask = format!("GET {path} HTTP/1.1\r\nHost: kubelet\r\n\r\n");
                client.write_all(ask.as_bytes()).await.unwrap();
                let mut answer = String::new();
                client.read_to_string(&mut answer).await.unwrap();
                answer
            };
            let ((), answer) = tokio::join!(converse(server, connection, routes(), Bounds::SECURED), talk);
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            assert!(!answer.ends_with("0\r\n\r\n"), "what is cut off has no end: {answer}");
            let (lasted, within) = (begun.elapsed(), lasts + Duration::from_secs(2));
            assert!(lasted >= lasts && lasted < within, "{path}: {lasted:?}");
        }
    }
}
