//! Counts requests: each from its arrival to the end of its answer, and, where its connection becomes a stream into a
//! container, to the end of that.

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bridge_serve::Lasting;
use http_body_util::BodyExt;
use prometheus::{Histogram, IntGauge};
use std::sync::Arc;
use tokio::time::Instant;

use super::ApiMetrics;
use super::paths;

/// A server, as the label `server_type` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// The read-only port.
    ReadOnly,
    /// The HTTPS port.
    Secured,
}

/// A request that is being answered; its end is counted when the last copy is dropped.
struct InFlight {
    count: IntGauge,
    seconds: Histogram,
    began: Instant,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.count.dec();
        self.seconds.observe(self.began.elapsed().as_secs_f64());
    }
}

/// Passes a request on and counts it.
pub(crate) async fn counted(
    State((metrics, server)): State<(ApiMetrics, Server)>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (paths::method(request.method().as_str()), paths::path(request.uri().path()));
    let server = match server {
        Server::ReadOnly => "readonly",
        Server::Secured => "readwrite",
    };
    let labels = [method, path, server, paths::long_running(path)];
    metrics.requests.with_label_values(&labels).inc();
    let count = metrics.in_flight(&labels);
    count.inc();
    let seconds = metrics.seconds.with_label_values(&labels);
    let in_flight = Arc::new(InFlight { count, seconds, began: Instant::now() });
    request.extensions_mut().insert(Lasting(in_flight.clone()));
    let answer = next.run(request).await;
    if answer.body().size_hint().exact().is_some() {
        return answer;
    }
    answer.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _lasts = &in_flight;
            frame
        }))
    })
}
