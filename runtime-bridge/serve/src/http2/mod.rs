//! HTTP/2 connections: many requests at once on one place, each with the bounds that a connection of HTTP/1.1 has.

mod streams;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::header::CONNECTION;
use futures::future::{BoxFuture, ready};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::connection::{Bounds, Connection};
use super::moving::{StallGuard, StallTimeout};
use streams::{OpenStreams, PROGRESS, StreamBody, StreamTasks};

/// The most requests of a connection at once; further ones wait at the client.
const STREAMS_MAX: u32 = 100;
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: u32 = 128 * 1024;
/// The most bytes of the heads of a connection's requests that wait for their answers: as much as the buffers of a connection
/// of HTTP/1.1 hold.
const HEADS_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX as usize;
/// What a request may send of its body before it is read: no request needs more than a form.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;
/// What all requests of a connection may send of their bodies before they are read.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// The most bytes of one answer that wait to be written.
const SENT_BYTES_MAX: usize = 64 * 1024;
/// A client that takes back more requests than this before they are looked at is sent away.
const EARLY_RESETS_MAX: usize = 20;
/// A client whose mistakes have ended more streams than this is sent away.
const ERRORS_MAX: usize = 256;
/// The time between two questions whether the client is still there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The time for the answer to such a question.
const PONG_WITHIN: Duration = Duration::from_secs(20);
/// So long a connection on which no request is left stays open for the client to learn of its end.
const CLOSES_WITHIN: Duration = Duration::from_secs(1);

/// Serves a connection until it ends, or until it is idle for too long.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    connection: Connection,
    routes: Router,
    bounds: Bounds,
) {
    // A client that pauses one answer still reads from the connection.
    let patience = StallTimeout::new(bounds.write_deadline, bounds.write_deadline);
    let stream = StallGuard::new(stream, patience);
    let open = Arc::new(OpenStreams::default());
    let leaving = CancellationToken::new();
    let ended = connection.ended.child_token();
    // Dropping this guard ends the streams with the connection.
    let _ending = ended.clone().drop_guard();
    let tasks = StreamTasks { open: open.clone(), leaving: leaving.clone(), ended, bounds };
    let requests = Requests {
        routes: TowerToHyperService::new(routes),
        connection,
        heads: Arc::default(),
        leaving: leaving.clone(),
    };
    let mut builder = Builder::new(tasks);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SENT_BYTES_MAX)
        .max_pending_accept_reset_streams(EARLY_RESETS_MAX)
        .max_local_error_reset_streams(ERRORS_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN);
    let mut conversation = pin!(builder.serve_connection(TokioIo::new(stream), requests));
    tokio::select! {
        biased;
        done = conversation.as_mut() => return told(done),
        () = leaving.cancelled() => {}
        () = open.idle(bounds.head_deadline) => leaving.cancel(),
    }
    // The requests that have begun go on to their ends.
    conversation.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        done = conversation.as_mut() => told(done),
        () = open.idle(CLOSES_WITHIN) => {}
    }
}

fn told(done: hyper::Result<()>) {
    if let Err(error) = done {
        tracing::debug!(%error, "Connection ended");
    }
}

/// Answers the requests of one connection.
struct Requests {
    routes: TowerToHyperService<Router>,
    connection: Connection,
    heads: Arc<AtomicUsize>,
    /// Cancelled when the connection takes no more requests.
    leaving: CancellationToken,
}

impl Service<hyper::Request<Incoming>> for Requests {
    type Response = hyper::Response<StreamBody>;
    type Error = h2::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn call(&self, mut request: hyper::Request<Incoming>) -> Self::Future {
        let head = HeldHead::of(&self.heads, &request).filter(|_| !self.leaving.is_cancelled());
        let Some(head) = head else {
            // The client may send it again, later or on another connection.
            return Box::pin(ready(Err(h2::Error::from(h2::Reason::REFUSED_STREAM))));
        };
        let (routes, connection, leaving) =
            (self.routes.clone(), self.connection.clone(), self.leaving.clone());
        Box::pin(async move {
            let progress = PROGRESS.try_with(Arc::clone);
            let progress = progress.map_err(|_| h2::Error::from(h2::Reason::INTERNAL_ERROR))?;
            let patience = progress.patience.clone();
            request.extensions_mut().insert(Connection { patience, ..connection });
            let Ok(answer) = routes.call(request).await;
            drop(head);
            if answer.headers().get(CONNECTION).is_some_and(|value| value == "close") {
                leaving.cancel();
            }
            Ok(answer.map(|body| StreamBody::new(body, progress)))
        })
    }
}

/// The bytes of a request's head, counted until the answer begins.
struct HeldHead {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldHead {
    /// `None` if the connection's heads are too many bytes with this one.
    fn of<B>(all: &Arc<AtomicUsize>, request: &hyper::Request<B>) -> Option<Self> {
        let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
        let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
        let bytes = path + fields.sum::<usize>();
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        let head = Self { all: all.clone(), bytes };
        (before + bytes <= HEADS_BYTES_MAX).then_some(head)
    }
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
