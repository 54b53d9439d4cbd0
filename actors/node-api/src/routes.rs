//! The routes of the health port and the read-only port, and their answers; HTTPS serves these too, see `secured`.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use messages::event_recorder::GetEvents;
use messages::pod_manager::GetPods;
use messages::status_manager::GetPodStatuses;
use prometheus::{Encoder, Registry, TextEncoder};
use serde::Serialize;
use supervision::{AskPort, Tree};

use crate::actor::NodeApi;
use crate::health::{Check, told};
use crate::pods::pod_list;
use crate::streaming::query_pairs;

/// How long a request waits for an actor.
pub(crate) const ASK_DEADLINE: Duration = Duration::from_secs(5);

/// Sources of the answers of the health port and the read-only port.
#[derive(Clone)]
pub struct Answers {
    /// The supervision tree.
    pub tree: Tree,
    /// Metrics of `/metrics`.
    pub registry: Registry,
    /// Metrics of `/metrics/probes`.
    pub probes: Registry,
    /// Asks PodManager for the desired pods.
    pub pods: AskPort<NodeApi, GetPods>,
    /// Asks StatusManager for all pods' statuses.
    pub statuses: AskPort<NodeApi, GetPodStatuses>,
    /// Asks EventRecorder for events.
    pub events: AskPort<NodeApi, GetEvents>,
}

/// The health port (row 21.11): text `ok` for GET and HEAD.
pub fn health_routes(answers: Answers) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/healthz/ping", get(|| async { "ok" }))
        .route("/healthz/log", get(|| async { "ok" }))
        .route("/healthz/syncloop", get(syncloop))
        .with_state(answers)
}

/// The read-only port.
pub fn read_only_routes(answers: Answers) -> Router {
    Router::new()
        .route("/pods", get(pods))
        .route("/pods/", get(pods))
        .route("/metrics", get(metrics))
        .route("/metrics/probes", get(probe_metrics))
        .route("/supervision", get(supervision))
        .route("/events", get(events))
        .with_state(answers.clone())
        .merge(health_routes(answers))
}

/// The text of a failure, if a vital subsystem neither runs nor is being restarted; `None` otherwise.
fn lost(answers: &Answers) -> Option<String> {
    let lost = answers.tree.lost_vitals();
    (!lost.is_empty()).then(|| format!("{} not running", lost.join(", ")))
}

async fn healthz(State(answers): State<Answers>, uri: Uri) -> Response {
    let check = |name, failed| Check { name, failed };
    let checks = [check("ping", None), check("log", None), check("syncloop", lost(&answers))];
    let (well, text) = told(&checks, &query_pairs(uri.query().unwrap_or_default()));
    let status = if well { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (status, text).into_response()
}

async fn syncloop(State(answers): State<Answers>) -> Response {
    match lost(&answers) {
        None => "ok".into_response(),
        Some(why) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n")).into_response()
        }
    }
}

async fn pods(State(answers): State<Answers>) -> Response {
    let desired = answers.pods.ask(GetPods, ASK_DEADLINE);
    let statuses = answers.statuses.ask(GetPodStatuses, ASK_DEADLINE);
    let desired = match desired.await {
        Ok(desired) => desired,
        Err(error) => return unavailable(messages::pod_manager::RECEIVER, &error),
    };
    match statuses.await {
        Ok(statuses) => json(&pod_list(&desired, &statuses)),
        Err(error) => unavailable(messages::status_manager::RECEIVER, &error),
    }
}

async fn events(State(answers): State<Answers>) -> Response {
    match answers.events.ask(GetEvents, ASK_DEADLINE).await {
        Ok(events) => json(&serde_json::json!({ "events": events })),
        Err(error) => unavailable(messages::event_recorder::RECEIVER, &error),
    }
}

async fn supervision(State(answers): State<Answers>) -> Response {
    json(&answers.tree.snapshot().await)
}

async fn metrics(State(answers): State<Answers>) -> Response {
    encoded(&answers.registry)
}

async fn probe_metrics(State(answers): State<Answers>) -> Response {
    encoded(&answers.probes)
}

fn encoded(registry: &Registry) -> Response {
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => ([(header::CONTENT_TYPE, encoder.format_type().to_owned())], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("encode metrics: {error}\n")).into_response()
        }
    }
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("encode answer: {error}\n")).into_response()
        }
    }
}

pub(crate) fn unavailable(who: &str, error: &supervision::AskError) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{who}: {error}\n")).into_response()
}
