//! The routes of the health port and the read-only port, and their answers; HTTPS serves these too, see `secured`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use messages::event_recorder::GetEvents;
use messages::pod_manager::GetPods;
use messages::stats::{Families, Summary};
use messages::stats_provider::{GetSummary, GetUsageMetrics, MetricsPage};
use messages::status_manager::GetPodStatuses;
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};
use serde::Serialize;
use supervision::{AskPort, Tree};

use crate::actor::NodeApi;
use crate::health::{Check, told};
use crate::pods::pod_list;
use crate::shared::{SharedAnswers, shared};
use crate::streaming::query_pairs;
use crate::usage::{families, is_short};

/// How long a request waits for an actor.
pub(crate) const ASK_DEADLINE: Duration = Duration::from_secs(5);
/// How long a request waits for figures: the runtime may take its time to tell of disks.
const FIGURES_WITHIN: Duration = Duration::from_secs(9);

/// The content type of a page of metrics.
const TEXT: &str = prometheus::TEXT_FORMAT;

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
    /// Asks StatsProvider for the summary.
    pub summary: AskPort<NodeApi, GetSummary>,
    /// Asks StatsProvider for pages of metrics.
    pub usage: AskPort<NodeApi, GetUsageMetrics>,
    /// The answers about usage that are being sent.
    pub shared: SharedAnswers,
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
        .route("/metrics/resource", get(resource_metrics))
        .route("/metrics/cadvisor", get(cadvisor_metrics))
        .route("/stats/summary", get(summary).post(summary))
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

async fn resource_metrics(State(answers): State<Answers>) -> Response {
    usage_metrics(&answers, MetricsPage::Resource).await
}

async fn cadvisor_metrics(State(answers): State<Answers>) -> Response {
    usage_metrics(&answers, MetricsPage::Cadvisor).await
}

/// A page of one reading is written once for all that ask for it meanwhile, and so is the summary.
async fn usage_metrics(answers: &Answers, page: MetricsPage) -> Response {
    match answers.usage.ask(GetUsageMetrics(page), FIGURES_WITHIN).await {
        Ok(page) => {
            let text = answers.shared.pages.text(&page, |page: &Families| written(&families(page)));
            shared(text, TEXT)
        }
        Err(error) => unavailable(messages::stats_provider::RECEIVER, &error),
    }
}

async fn summary(State(answers): State<Answers>, method: Method, uri: Uri, body: Bytes) -> Response {
    let form = if method == Method::POST { String::from_utf8_lossy(&body) } else { "".into() };
    let only_cpu_and_memory = is_short(uri.query().unwrap_or_default(), &form);
    match answers.summary.ask(GetSummary { only_cpu_and_memory }, FIGURES_WITHIN).await {
        Ok(Ok(summary)) => {
            let json =
                |summary: &Arc<Summary>| serde_json::to_vec(&**summary).map_err(|error| error.to_string());
            shared(answers.shared.summaries.text(&summary, json), "application/json")
        }
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("Internal Error: {why}")).into_response(),
        Err(error) => unavailable(messages::stats_provider::RECEIVER, &error),
    }
}

fn encoded(registry: &Registry) -> Response {
    match written(&registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

fn written(families: &[MetricFamily]) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    match TextEncoder::new().encode(families, &mut text) {
        Ok(()) => Ok(text),
        Err(error) => Err(format!("encode metrics: {error}\n")),
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
