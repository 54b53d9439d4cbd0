//! Counts requests: each from its arrival to the end of its answer, and, where its connection becomes a stream into a
//! container, to the end of that.

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bridge_pace::panics;
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

/// Passes a request on and counts it. A panic over it is an answer, too: it ends neither the connection nor NodeApi, and is told
/// and counted.
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
    let answer = match panics::caught(next.run(request)).await {
        Ok(answer) => answer,
        Err(panic) => {
            metrics.panicked(path);
            tracing::error!(%panic, method, path, "A request could not be answered");
            (StatusCode::INTERNAL_SERVER_ERROR, "the kubelet could not make the answer\n").into_response()
        }
    };
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use jiff::Timestamp;
    use tower::ServiceExt;

    use super::*;
    use crate::metrics::Registries;

    async fn broken() -> &'static str {
        panic!("for the test")
    }

    #[tokio::test]
    async fn a_panic_over_a_request_is_an_answer_and_is_counted() {
        let metrics =
            ApiMetrics::new(Registries::default(), Timestamp::UNIX_EPOCH).expect("the registries are empty");
        let routes: Router = Router::new()
            .route("/pods", get(broken))
            .layer(from_fn_with_state((metrics.clone(), Server::Secured), counted));
        let request = Request::get("/pods").body(Body::empty()).expect("a request");
        let answer = routes.oneshot(request).await.expect("routes do not fail");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let families = metrics.registries().main.gather();
        let counted = families.iter().find(|family| family.name() == "understudy_http_panics_total");
        assert_eq!(counted.map(|family| family.get_metric()[0].get_counter().get_value()), Some(1.0));
    }
}
