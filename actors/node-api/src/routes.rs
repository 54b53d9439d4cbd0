//! The routes of the health port and the read-only port, and their answers; HTTPS serves these too, see `secured`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use bridge_io::clock::Clock;
use bridge_metrics::Page;
use messages::PodUid;
use messages::config_manager::GetConfiguration;
use messages::event_recorder::GetEvents;
use messages::pod_manager::GetPods;
use messages::stats_provider::{GetSummary, GetUsageMetrics, MetricsPage};
use messages::status_manager::GetPodStatuses;
use pod_why::model::Supervision;
use pod_why::overview::Overview;
use pod_why::timeline::Timeline;
use pod_why::why::{subjects, why as explained};
use prometheus::proto::MetricFamily;
use serde::Serialize;
use supervision::{AskPort, Tree};

use crate::actor::NodeApi;
use crate::bodies::Client;
use crate::health::{self, Check};
use crate::known::{Known, WhyAll, events_now, pods_now};
use crate::metrics::{ApiMetrics, Server, counted, logs_of_pods, volumes_of_pods};
use crate::node_page;
use crate::pods::pod_list;
use crate::shared::{Joined, SharedAnswers};
use crate::streaming::query_pairs;
use crate::usage::{families, is_short};

/// How long a request waits for an actor.
pub(crate) const ASK_DEADLINE: Duration = Duration::from_secs(5);
/// How long a request waits for figures: the runtime may take its time to tell of disks.
const FIGURES_WITHIN: Duration = Duration::from_secs(12);
/// The most bytes of a form: it has one field of few letters.
const FORM_BYTES_MAX: usize = 4096;
/// How long the page of the kubelet's metrics waits for the figures of logs and volumes, which are left out without an
/// answer.
const DISKS_WITHIN: Duration = Duration::from_secs(5);
/// When the process began, in seconds since the epoch; as Prometheus' library for Go names it.
const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");
pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Sources of the answers of the health port and the read-only port.
#[derive(Clone)]
pub struct Answers {
    /// The supervision tree.
    pub tree: Tree,
    /// The registries of the pages of metrics, and NodeApi's own metrics.
    pub metrics: ApiMetrics,
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
    /// Asks ConfigManager for the configuration.
    pub configuration: AskPort<NodeApi, GetConfiguration>,
    /// The release of Kubernetes whose kubelet this is.
    pub kubernetes: &'static str,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
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
    let metrics = answers.metrics.clone();
    shared_routes(answers).layer(from_fn_with_state((metrics, Server::ReadOnly), counted))
}

/// The routes of the read-only port, which HTTPS has too.
pub(crate) fn shared_routes(answers: Answers) -> Router {
    Router::new()
        .route("/pods", get(pods))
        .route("/pods/", get(pods))
        .route("/metrics", any(metrics))
        .route("/metrics/probes", any(probe_metrics))
        .route("/metrics/resource", any(resource_metrics))
        .route("/metrics/cadvisor", any(cadvisor_metrics))
        .route("/stats/summary", get(summary).post(summary))
        .route("/stats/summary/", get(summary).post(summary))
        .route("/metrics/slis", any(slis))
        .route("/supervision", get(supervision))
        .route("/events", get(events))
        .route("/why", get(why))
        .route("/timeline", get(timeline))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .with_state(answers.clone())
        .merge(node_page::routes())
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
    let query = query_pairs(uri.query().unwrap_or_default());
    answers.metrics.checked(health::counted(&checks, &query));
    let (well, text) = health::told(&checks, &query);
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

async fn pods(State(answers): State<Answers>, client: Client) -> Response {
    let made = async {
        let desired = answers.pods.ask(GetPods, ASK_DEADLINE);
        let statuses = answers.statuses.ask(GetPodStatuses, ASK_DEADLINE);
        let desired = desired.await.map_err(|error| unavailable(messages::pod_manager::RECEIVER, &error))?;
        let statuses =
            statuses.await.map_err(|error| unavailable(messages::status_manager::RECEIVER, &error))?;
        serde_json::to_vec(&pod_list(&desired, &statuses)).map_err(|why| unencoded(&why))
    };
    joined(&answers, client, &answers.shared.pods, made).await
}

async fn events(State(answers): State<Answers>, client: Client) -> Response {
    let made = async {
        let events = answers.events.ask(GetEvents, ASK_DEADLINE).await;
        let events = events.map_err(|error| unavailable(messages::event_recorder::RECEIVER, &error))?;
        serde_json::to_vec(&serde_json::json!({ "events": events })).map_err(|why| unencoded(&why))
    };
    joined(&answers, client, &answers.shared.events, made).await
}

async fn supervision(State(answers): State<Answers>, client: Client) -> Response {
    joined(&answers, client, &answers.shared.tree, tree_text(&answers)).await
}

async fn tree_text(answers: &Answers) -> Result<Vec<u8>, Response> {
    serde_json::to_vec(&answers.tree.snapshot().await).map_err(|why| unencoded(&why))
}

/// What each pod waits for; with `pod=UID` in the query all that is known of this pod. Without a tree or pods there is no
/// answer; without events there is one that says so.
async fn why(State(answers): State<Answers>, client: Client, uri: Uri) -> Response {
    let query = query_pairs(uri.query().unwrap_or_default());
    let Some((_, uid)) = query.into_iter().find(|(name, _)| name == "pod") else {
        let made = async {
            let Known { pods, events, tree, unread } = known(&answers, None).await?;
            let overview = Overview::of(&pods, &tree, events, unread, answers.clock.now());
            let (understudy, kubernetes) = (env!("CARGO_PKG_VERSION"), answers.kubernetes);
            let told = WhyAll { understudy, kubernetes, overview };
            serde_json::to_vec(&told).map_err(|why| unencoded(&why))
        };
        return joined(&answers, client, &answers.shared.why, made).await;
    };
    let Known { pods, events, tree, unread } = match known(&answers, Some(&PodUid::new(&uid))).await {
        Ok(known) => known,
        Err(failed) => return failed,
    };
    match subjects(&pods, &tree).iter().find(|subject| subject.uid == uid) {
        Some(subject) => json(&explained(subject, &tree, &events, &unread, answers.clock.now())),
        None => (StatusCode::NOT_FOUND, "no pod of this node has this UID\n").into_response(),
    }
}

/// What was done lately for the pod of `pod=UID` in the query.
async fn timeline(State(answers): State<Answers>, uri: Uri) -> Response {
    let query = query_pairs(uri.query().unwrap_or_default());
    let Some((_, uid)) = query.into_iter().find(|(name, _)| name == "pod") else {
        return (StatusCode::BAD_REQUEST, "name a pod: /timeline?pod=UID\n").into_response();
    };
    let history = answers.tree.history();
    let steps = history.of(&uid);
    if steps.is_empty() {
        return (StatusCode::NOT_FOUND, "nothing was done for a pod of this UID\n").into_response();
    }
    json(&Timeline::of(&uid, &steps, history.now()))
}

/// What is known of the pods; with `only`, of this one.
async fn known(answers: &Answers, only: Option<&PodUid>) -> Result<Known, Response> {
    let tree = answers.shared.tree.text(tree_text(answers));
    let desired = answers.pods.ask(GetPods, ASK_DEADLINE);
    let statuses = answers.statuses.ask(GetPodStatuses, ASK_DEADLINE);
    let events = answers.events.ask(GetEvents, ASK_DEADLINE);
    let desired = desired.await.map_err(|error| unavailable(messages::pod_manager::RECEIVER, &error))?;
    let statuses = statuses.await.map_err(|error| unavailable(messages::status_manager::RECEIVER, &error))?;
    let (events, unread) = match events.await {
        Ok(events) => (events_now(events, only).map_err(|why| unencoded(&why))?, Vec::new()),
        Err(error) => (Vec::new(), vec![format!("{}: {error}", messages::event_recorder::RECEIVER)]),
    };
    let tree: Supervision = serde_json::from_slice(&tree.await?).map_err(|why| unencoded(&why))?;
    Ok(Known { pods: pods_now(&desired, &statuses, only), events, tree, unread })
}

/// The answer that askers of the same text share.
async fn joined(
    answers: &Answers,
    client: Client,
    text: &Joined,
    made: impl Future<Output = Result<Vec<u8>, Response>>,
) -> Response {
    text.text(made).await.map_or_else(|failed| failed, |text| json_text(answers, client, text))
}

/// The registry's families, and those of logs and of volumes behind claims, whose figures are read for this page. A node
/// whose figures cannot be read in time still tells the rest.
async fn metrics(State(answers): State<Answers>, client: Client, headers: HeaderMap) -> Response {
    let ask = GetSummary { only_cpu_and_memory: false };
    let mut families = answers.metrics.registries.main.gather();
    if let Ok(Ok(summary)) = answers.summary.ask(ask, DISKS_WITHIN).await {
        families.extend(logs_of_pods(&summary.pods));
        families.extend(volumes_of_pods(&summary.pods));
        families.sort_by(|one, other| one.name().cmp(other.name()));
    }
    page(&answers, client, &headers, &families)
}

async fn probe_metrics(State(answers): State<Answers>, client: Client, headers: HeaderMap) -> Response {
    page(&answers, client, &headers, &answers.metrics.registries.probes.gather())
}

/// The results of health checks, which DELETE forgets (row 22.5).
async fn slis(
    State(answers): State<Answers>,
    client: Client,
    method: Method,
    headers: HeaderMap,
) -> Response {
    if method == Method::DELETE {
        answers.metrics.forget_checks();
        return ([(header::CONTENT_TYPE, TEXT)], "metrics reset\n").into_response();
    }
    page(&answers, client, &headers, &answers.metrics.registries.slis.gather())
}

async fn resource_metrics(State(answers): State<Answers>, client: Client, headers: HeaderMap) -> Response {
    usage_metrics(&answers, client, &headers, MetricsPage::Resource).await
}

async fn cadvisor_metrics(State(answers): State<Answers>, client: Client, headers: HeaderMap) -> Response {
    usage_metrics(&answers, client, &headers, MetricsPage::Cadvisor).await
}

async fn usage_metrics(answers: &Answers, client: Client, headers: &HeaderMap, of: MetricsPage) -> Response {
    match answers.usage.ask(GetUsageMetrics(of), FIGURES_WITHIN).await {
        Ok(figures) => {
            let (accept, coding) =
                (values(headers, &header::ACCEPT), values(headers, &header::ACCEPT_ENCODING));
            let pages = &answers.shared.pages;
            let page = pages.page(&figures, |figures| Box::new(families(figures)), &accept, &coding);
            sent(answers, client, page)
        }
        Err(error) => unavailable(messages::stats_provider::RECEIVER, &error),
    }
}

/// A page of metrics, as the scraper prefers it.
fn page(answers: &Answers, client: Client, headers: &HeaderMap, families: &[MetricFamily]) -> Response {
    let (accept, coding) = (values(headers, &header::ACCEPT), values(headers, &header::ACCEPT_ENCODING));
    sent(answers, client, Arc::new(bridge_metrics::page(families, &accept, &coding)))
}

/// All values of a header.
fn values(headers: &HeaderMap, name: &HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn sent(answers: &Answers, client: Client, page: Arc<Page>) -> Response {
    let (content_type, coding) = (page.content_type.clone(), page.content_encoding);
    let mut answer = answers.shared.sending.answer(client, page);
    let told = answer.headers_mut();
    told.insert(PROCESS_START, HeaderValue::from(answers.metrics.began));
    // The content type is made of our own words, and of those of the header that are known.
    told.insert(header::CONTENT_TYPE, HeaderValue::from_str(&content_type).unwrap_or(TEXT));
    if let Some(coding) = coding {
        told.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    answer
}

async fn summary(
    State(answers): State<Answers>,
    client: Client,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Response {
    let form = if method == Method::POST { String::from_utf8_lossy(&body) } else { "".into() };
    let only_cpu_and_memory = is_short(uri.query().unwrap_or_default(), &form);
    match answers.summary.ask(GetSummary { only_cpu_and_memory }, FIGURES_WITHIN).await {
        Ok(Ok(summary)) => match answers.shared.summaries.text(&summary) {
            Ok(text) => json_text(&answers, client, text),
            Err(why) => unencoded(&why),
        },
        Ok(Err(why)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("Internal Error: {why}")).into_response(),
        Err(error) => unavailable(messages::stats_provider::RECEIVER, &error),
    }
}

/// An answer with JSON that may be large: many callers that take it slowly hold few of them.
fn json_text(answers: &Answers, client: Client, text: Arc<Vec<u8>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], answers.shared.sending.answer(client, text))
        .into_response()
}

fn unencoded(why: &serde_json::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("encode answer: {why}\n")).into_response()
}

pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(why) => unencoded(&why),
    }
}

pub(crate) fn unavailable(who: &str, error: &supervision::AskError) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{who}: {error}\n")).into_response()
}
