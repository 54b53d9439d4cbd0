//! A bounded HTTP/1.1 listener.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Connections at once on one listener; more wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 256;
/// A client must have sent its request's head by then.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);

/// Serves until it is dropped, or until the listener cannot be opened.
pub async fn serve(address: SocketAddr, routes: Router) -> std::io::Error {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => return error,
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Dropping the set ends the connections with the listener.
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return std::io::ErrorKind::Other.into() };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, %address, "Accept failed");
                // Out of file descriptors: accepting again at once would spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(routes.clone());
        connections.spawn(async move {
            let _place = place;
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_DEADLINE)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "Connection ended");
            }
        });
    }
}
