//! NodeApi alone: its ports are in memory; the subsystems that it asks are recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use bridge_io::clock::SystemClock;
use bridge_serve::{Bounds, Connection, FakeListeners, Listeners};
use messages::event_recorder::GetEvents;
use messages::pod_manager::GetPods;
use messages::stats::{Family, FamilyKind, Sample};
use messages::stats_provider::{GetSummary, GetUsageMetrics, MetricsPage};
use messages::status_manager::GetPodStatuses;
use node_api::{Answers, ApiMetrics, NodeApi, NodeApiConfig, NodeApiDeps, Registries, SharedAnswers};
use stage::{Neighbour, Stage, alone, desired_pods};
use supervision::Supervised;
use tower::ServiceExt;

const SECOND: Duration = Duration::from_secs(1);
/// When the process began.
const BEGAN: jiff::Timestamp = jiff::Timestamp::constant(1_795_407_771, 500_000_000);
const READ_ONLY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 10255);

fn family() -> Family {
    let sample = |pod: &str, value, ms| Sample {
        labels: vec![("namespace", "n".into()), ("pod", pod.into())],
        value,
        at: jiff::Timestamp::from_millisecond(ms).ok().filter(|_| ms > 0),
    };
    Family {
        name: "pod_cpu_usage_seconds_total",
        help: "CPU".into(),
        kind: FamilyKind::Counter,
        samples: vec![sample("a", 1.5, 1_800_000_000_123), sample("b\"c", 2.0, 0)],
    }
}

struct Neighbours {
    listeners: FakeListeners,
    pods: Neighbour<GetPods>,
    statuses: Neighbour<GetPodStatuses>,
    events: Neighbour<GetEvents>,
    summary: Neighbour<GetSummary>,
    usage: Neighbour<GetUsageMetrics>,
}

impl Neighbours {
    fn new() -> Self {
        Self {
            listeners: FakeListeners::default(),
            pods: Neighbour::answering("PodManager", |_| desired_pods(2)),
            statuses: Neighbour::answering("StatusManager", |_| BTreeMap::new()),
            events: Neighbour::answering("EventRecorder", |_| Vec::new()),
            summary: Neighbour::answering("StatsProvider", |_| Err("failed to list pod stats".to_owned())),
            usage: Neighbour::answering("StatsProvider", |_| Arc::new(vec![family()])),
        }
    }

    fn start(&self, stage: &Stage<'_>) -> Supervised<NodeApi> {
        stage.start(self.deps(stage), NodeApi::new)
    }

    fn deps(&self, stage: &Stage<'_>) -> NodeApiDeps {
        NodeApiDeps {
            config: NodeApiConfig { health: None, read_only: Some(READ_ONLY), secured: None },
            listeners: Arc::new(self.listeners.clone()),
            answers: Answers {
                tree: stage.tree.clone(),
                metrics: ApiMetrics::new(Registries::default(), BEGAN).unwrap(),
                pods: self.pods.asked(),
                statuses: self.statuses.asked(),
                events: self.events.asked(),
                summary: self.summary.asked(),
                usage: self.usage.asked(),
                configuration: Neighbour::new("ConfigManager").asked(),
                kubernetes: "1.36.2",
                clock: Arc::new(SystemClock),
                shared: SharedAnswers::default(),
            },
            secured: None,
        }
    }

    /// Code and body of an answer; nothing if nothing listens.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let routes = self.listeners.routes(READ_ONLY)?;
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = routes.oneshot(request).await.unwrap();
        let code = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        Some((code, String::from_utf8(body.to_vec()).unwrap()))
    }

    async fn until_open(&self, stage: &Stage<'_>) {
        stage.until("the port to be open", || self.listeners.routes(READ_ONLY).is_some()).await;
    }
}

#[test]
fn what_is_asked_over_http_is_asked_of_the_actors() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        assert_eq!((near.pods.count(), near.statuses.count(), near.events.count()), (0, 0, 0));
        let (code, body) = near.get("/pods").await.unwrap();
        assert_eq!((code, body.matches("\"uid\"").count()), (200, 2), "{body}");
        assert_eq!((near.pods.count(), near.statuses.count(), near.events.count()), (1, 1, 0));
    });
}

#[test]
fn one_address_with_many_slow_answers_ends_none_to_another() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        // An answer with so many pods, of which nothing is taken yet.
        let asked = async |address: &str, pods: usize| {
            near.pods.answer(move |_| desired_pods(pods));
            let peer = Some(SocketAddr::new(address.parse().unwrap(), 40_000));
            let connection = Connection { peer, ..Connection::of_a_test(Bounds::PLAIN) };
            let request = Request::get("/pods").extension(connection).body(Body::empty()).unwrap();
            let routes = near.listeners.routes(READ_ONLY).unwrap();
            routes.oneshot(request).await.unwrap().into_body()
        };
        let quiet = asked("10.0.0.1", 1).await;
        let mut slow = Vec::new();
        for pods in 2..30 {
            slow.push(asked("10.0.0.2", pods).await);
        }
        let taken = to_bytes(quiet, usize::MAX).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&taken).matches("\"uid\"").count(), 1);
        let newest = slow.pop().unwrap();
        assert!(to_bytes(newest, usize::MAX).await.is_ok());
        assert!(to_bytes(slow.remove(0), usize::MAX).await.is_err(), "it was given up");
    });
}

/// An answer's status, headers that tell of the page, and body.
async fn scrape(near: &Neighbours, method: &str, path: &str, accept: &str) -> (u16, [String; 3], Vec<u8>) {
    let routes = near.listeners.routes(READ_ONLY).unwrap();
    let request = Request::builder().method(method).uri(path).header("accept", accept);
    let request = request.header("accept-encoding", if path.ends_with("slis") { "gzip" } else { "identity" });
    let answer = routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let header = |name| answer.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let told = ["content-type", "content-encoding", "process-start-time-unix"].map(header);
    let code = answer.status().as_u16();
    (code, told, to_bytes(answer.into_body(), usize::MAX).await.unwrap().to_vec())
}

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5";
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

#[test]
fn every_page_comes_in_the_format_that_the_scraper_prefers() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        near.get("/healthz").await.unwrap();
        for page in ["", "/probes", "/slis"] {
            let path = format!("/metrics{page}");
            let packed = if page == "/slis" { "gzip" } else { "" };
            for (accept, content_type) in [
                ("", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"),
                (
                    OPEN_METRICS,
                    "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores",
                ),
                (
                    PROTOBUF,
                    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                     encoding=delimited; escaping=underscores",
                ),
            ] {
                let (code, told, body) = scrape(&near, "GET", &path, accept).await;
                assert_eq!(
                    (code, told),
                    (200, [content_type, packed, "1795407771"].map(str::to_owned)),
                    "{path}"
                );
                assert!(!body.is_empty(), "{path}");
                if accept == OPEN_METRICS && packed.is_empty() {
                    assert!(body.ends_with(b"\n# EOF\n"), "{path}");
                }
            }
        }
    });
}

#[test]
fn results_of_health_checks_are_kept_until_they_are_forgotten() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        let started = "# HELP process_start_time_seconds [ALPHA] When the process began, in seconds since the epoch.\n\
            # TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7954077715e+09\n";
        assert_eq!(near.get("/metrics/slis").await.unwrap(), (200, started.to_owned()));
        for _ in 0..2 {
            near.get("/healthz").await.unwrap();
        }
        let (_, body) = near.get("/metrics/slis").await.unwrap();
        for series in [
            "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"healthz\"} 2",
        ] {
            assert!(body.lines().any(|line| line == series), "{series}: {body}");
        }
        let (code, told, reset) = scrape(&near, "DELETE", "/metrics/slis", "").await;
        assert_eq!((code, told[0].as_str()), (200, "text/plain; charset=utf-8"));
        assert_eq!(reset, b"metrics reset\n");
        assert_eq!(near.get("/metrics/slis").await.unwrap(), (200, started.to_owned()));
    });
}

#[test]
fn requests_are_counted_by_labels_that_callers_do_not_choose() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        for path in ["/pods", "/nowhere/1", "/nowhere/2", "/exec/ns/pod/c"] {
            near.get(path).await.unwrap();
        }
        let (_, body) = near.get("/metrics").await.unwrap();
        let labels = |long, path| {
            format!("{{long_running=\"{long}\",method=\"GET\",path=\"{path}\",server_type=\"readonly\"}}")
        };
        for (series, value) in [
            (format!("kubelet_http_requests_total{}", labels(false, "pods")), 1),
            (format!("kubelet_http_requests_total{}", labels(false, "other")), 2),
            (format!("kubelet_http_requests_total{}", labels(true, "exec")), 1),
            (format!("kubelet_http_requests_duration_seconds_count{}", labels(false, "other")), 2),
            (format!("kubelet_http_inflight_requests{}", labels(false, "other")), 0),
            (format!("kubelet_http_inflight_requests{}", labels(false, "metrics")), 1),
        ] {
            assert!(body.contains(&format!("\n{series} {value}\n")), "{series}: {body}");
        }
    });
}

#[test]
fn the_read_only_port_says_what_pods_wait_for() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        let read = |(code, body): (u16, String)| {
            let document: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            (code, document, body)
        };
        let (code, all, body) = read(near.get("/why").await.unwrap());
        assert_eq!((code, all["kubernetes"].as_str()), (200, Some("1.36.2")), "{body}");
        let pods = all["pods"].as_array().unwrap();
        assert_eq!((pods.len(), pods[0]["verdict"].as_str()), (2, Some("waits")), "{body}");
        let uid = pods[0]["uid"].as_str().unwrap().to_owned();
        let (code, one, body) = read(near.get(&format!("/why?pod={uid}")).await.unwrap());
        assert_eq!((code, one["uid"].as_str(), &one["unread"]), (200, Some(&*uid), &serde_json::json!([])));
        assert_eq!(one["sentence"], pods[0]["sentence"], "both say the same: {body}");
        assert_eq!(near.get("/why?pod=none").await.unwrap().0, 404);

        near.events.lose_answers();
        let (code, all, body) = read(near.get("/why").await.unwrap());
        let unread = all["unread"][0].as_str().unwrap_or_default();
        assert_eq!((code, unread.starts_with("EventRecorder: ")), (200, true), "{body}");
        near.pods.refuse();
        for path in ["/why".to_owned(), format!("/why?pod={uid}")] {
            let full = (503, "PodManager: the mailbox is full\n".to_owned());
            assert_eq!(near.get(&path).await, Some(full), "{path}");
        }
    });
}

#[test]
fn the_page_comes_with_its_policy_while_no_actor_answers() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        near.pods.refuse();
        let routes = near.listeners.routes(READ_ONLY).unwrap();
        let request = Request::get("/page").body(Body::empty()).unwrap();
        let answer = routes.oneshot(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let policy = answer.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert_eq!(near.pods.count(), 0);
    });
}

#[test]
fn a_new_incarnation_opens_the_port_again() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        stage.crash::<NodeApi>().await;
        near.until_open(stage).await;
        assert_eq!(near.get("/pods").await.unwrap().0, 200);
    });
}

#[test]
fn an_actor_that_refuses_or_loses_the_question_is_named_with_503() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        near.pods.refuse();
        let full = (503, "PodManager: the mailbox is full\n".to_owned());
        assert_eq!(near.get("/pods").await, Some(full));
        near.pods.answer(|_| desired_pods(1));
        near.statuses.lose_answers();
        let (code, body) = near.get("/pods").await.unwrap();
        assert_eq!((code, body.starts_with("StatusManager: ")), (503, true), "{body}");
        near.events.lose_answers();
        assert!(near.get("/events").await.unwrap().1.starts_with("EventRecorder: "));
    });
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    alone(async |stage| {
        let near = Neighbours::new();
        let other = near.listeners.serve(READ_ONLY, Router::new(), None, Bounds::PLAIN);
        let other = tokio::spawn(other);
        stage.until("another program to have the port", || near.listeners.routes(READ_ONLY).is_some()).await;
        near.start(stage);
        stage.pass(60 * SECOND).await;
        assert_eq!(near.get("/pods").await.unwrap().0, 404, "the other program answers");
        other.abort();
        stage.pass(10 * SECOND).await;
        assert_eq!(near.get("/pods").await.unwrap().0, 200);
    });
}

#[test]
fn figures_are_asked_of_stats_provider_and_shown_with_their_times() {
    alone(async |stage| {
        let near = Neighbours::new();
        near.start(stage);
        near.until_open(stage).await;
        let (code, body) = near.get("/metrics/resource").await.unwrap();
        let expected = "# HELP pod_cpu_usage_seconds_total CPU\n# TYPE pod_cpu_usage_seconds_total counter\n\
            pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"a\"} 1.5 1800000000123\n\
            pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"b\\\"c\"} 2\n";
        assert_eq!((code, body.as_str()), (200, expected));
        near.get("/metrics/cadvisor").await.unwrap();
        let pages: Vec<MetricsPage> = near.usage.heard().into_iter().map(|ask| ask.0).collect();
        assert_eq!(pages, [MetricsPage::Resource, MetricsPage::Cadvisor]);
        let failed = (500, "Internal Error: failed to list pod stats".to_owned());
        assert_eq!(near.get("/stats/summary").await, Some(failed));
        near.get("/stats/summary?only_cpu_and_memory=true").await.unwrap();
        let short: Vec<bool> = near.summary.heard().iter().map(|ask| ask.only_cpu_and_memory).collect();
        assert_eq!(short, [false, true]);
        near.summary.refuse();
        assert_eq!(near.get("/stats/summary").await.unwrap().0, 503);
    });
}
