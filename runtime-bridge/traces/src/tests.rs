//! The exporter on a paused clock, and the same contract for the collector in memory and the one behind a socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_metrics::Registry;
use bridge_pace::history::{History, StepKind};
use futures::FutureExt;
use jiff::Timestamp;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use crate::wire::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse, KeyValue, Resource,
    ResourceSpans, ScopeSpans, Span,
};
use crate::{
    AskNames, CollectorAddress, ExportError, FakeAnswer, FakeCollector, OtlpCollector, PodName, Sampling,
    ServingCollector, TraceCollector, TraceExport, TraceMetrics, export, trace_id,
};

const START: i64 = 1_800_000_000;

/// A history whose steps go to a fake collector; every pod is called as its UID, in the namespace `default`.
struct Scene {
    history: History,
    collector: FakeCollector,
    metrics: TraceMetrics,
    /// The pods whose names were asked for.
    asked: Arc<Mutex<Vec<Arc<str>>>>,
}

impl Scene {
    fn telling(sampling: Sampling) -> Self {
        let born = Instant::now();
        let history = History::new(move || born.elapsed());
        let collector = FakeCollector::default();
        let metrics = TraceMetrics::new().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asks = asked.clone();
        let names: AskNames = Arc::new(move |pods: Vec<Arc<str>>| {
            asks.lock().unwrap().extend(pods.iter().cloned());
            let named = pods.into_iter().map(|pod| {
                let name = PodName { namespace: Arc::from("default"), name: pod.clone() };
                (pod, name)
            });
            let named: BTreeMap<_, _> = named.collect();
            std::future::ready(named).boxed()
        });
        let traces = TraceExport {
            history: history.clone(),
            clock: Arc::new(FakeClock::new(1, Timestamp::from_second(START).unwrap())),
            collector: Arc::new(collector.clone()),
            names,
            node: "node".to_owned(),
            sampling,
            metrics: metrics.clone(),
        };
        export(&Io::current(), traces);
        Self { history, collector, metrics, asked }
    }

    fn new() -> Self {
        Self::telling(Sampling::per_million(1_000_000))
    }

    fn call(&self, pod: &str, what: &'static str) {
        self.history.begin(pod, StepKind::Call, "runtime", what).end(true);
    }

    /// Names and pods of the spans that the collector has taken, apart from those that stand for whole pods.
    fn taken(&self) -> Vec<(String, String)> {
        let steps = self.collector.spans().into_iter().filter(|span| !span.parent_span_id.is_empty());
        steps
            .map(|span| (span.name.clone(), span.attribute("k8s.pod.name").unwrap_or("-").to_owned()))
            .collect()
    }

    /// What was counted: sent, refused, failed, dropped.
    fn counted(&self) -> [u64; 4] {
        ["sent", "refused", "failed", "dropped"].map(|result| self.metrics.counted(result))
    }
}

fn names(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, pod)| ((*name).to_owned(), (*pod).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn steps_arrive_together_as_spans_of_their_pods_traces() {
    let scene = Scene::new();
    let run = scene.history.begin("a", StepKind::Call, "runtime", "RunPodSandbox");
    sleep(Duration::from_secs(3)).await;
    run.end(true);
    scene.call("b", "StopPodSandbox");
    scene.history.handled("a", "PodWorker", "SyncPod", Duration::ZERO);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(scene.collector.calls(), 0, "more may come");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.collector.calls(), 1);
    assert_eq!(scene.taken(), names(&[("RunPodSandbox", "a"), ("StopPodSandbox", "b"), ("SyncPod", "a")]));
    let spans = scene.collector.spans();
    let run = spans.iter().find(|span| span.name == "RunPodSandbox").expect("it was taken");
    let ns = |seconds: i64| u64::try_from(seconds * 1_000_000_000).unwrap();
    assert_eq!((run.start_time_unix_nano, run.end_time_unix_nano), (ns(START), ns(START + 3)));
    let roots: BTreeMap<_, _> = spans
        .iter()
        .filter(|span| span.parent_span_id.is_empty())
        .map(|span| (span.trace_id.clone(), span.span_id.clone()))
        .collect();
    assert_eq!(
        roots.keys().cloned().collect::<BTreeSet<_>>(),
        ["a", "b"].map(|pod| trace_id(pod).to_vec()).into()
    );
    for span in spans.iter().filter(|span| !span.parent_span_id.is_empty()) {
        assert_eq!(roots.get(&span.trace_id), Some(&span.parent_span_id));
    }
    // What comes later belongs to the same trace, and the pod's name is known.
    scene.call("a", "StartContainer");
    sleep(Duration::from_secs(6)).await;
    let later = scene.collector.spans().split_off(spans.len());
    assert_eq!(later.iter().map(|span| span.name.as_str()).collect::<Vec<_>>(), ["StartContainer"]);
    assert_eq!(roots.get(&later[0].trace_id), Some(&later[0].parent_span_id));
    assert_eq!(scene.asked.lock().unwrap().len(), 2);
    assert_eq!(scene.counted(), [6, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_sampled_is_not_told() {
    let sampling = Sampling::per_million(500_000);
    let scene = Scene::telling(sampling);
    let pods: Vec<String> = (0..100).map(|pod| format!("pod-{pod}")).collect();
    for pod in &pods {
        scene.call(pod, "StartContainer");
        scene.call(pod, "StopContainer");
    }
    sleep(Duration::from_secs(6)).await;
    let told: BTreeSet<String> = scene.taken().into_iter().map(|(_, pod)| pod).collect();
    let expected: BTreeSet<String> = pods.into_iter().filter(|pod| sampling.tells(pod)).collect();
    assert_eq!(told, expected);
    assert_eq!(scene.taken().len(), expected.len() * 2, "all of a pod or nothing");
}

#[tokio::test(start_paused = true)]
async fn spans_wait_for_a_collector_that_is_away_for_short() {
    let scene = Scene::new();
    scene.collector.answer(FakeAnswer::Fails(ExportError::Away("refused".to_owned())));
    scene.call("a", "StartContainer");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(scene.collector.calls(), 1);
    scene.collector.answer(FakeAnswer::Takes);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(scene.taken(), names(&[("StartContainer", "a")]));
    assert_eq!(scene.counted(), [2, 0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_is_away_for_long_is_asked_rarely_and_costs_the_oldest_spans() {
    let scene = Scene::new();
    scene.collector.answer(FakeAnswer::Fails(ExportError::Away("refused".to_owned())));
    for at in 0..3600 {
        scene.call("a", if at % 2 == 0 { "StartContainer" } else { "StopContainer" });
        sleep(Duration::from_secs(1)).await;
    }
    let calls = scene.collector.calls();
    assert!((30..80).contains(&calls), "once a minute: {calls}");
    let [sent, refused, failed, _] = scene.counted();
    assert!(sent == 0 && refused == 0 && failed > 512, "{:?}", scene.counted());
    scene.collector.answer(FakeAnswer::Takes);
    scene.call("a", "StopPodSandbox");
    sleep(Duration::from_secs(130)).await;
    let [sent, _, failed, dropped] = scene.counted();
    let taken = scene.taken();
    assert!(sent > 0 && taken.last().is_some_and(|(last, _)| last == "StopPodSandbox"), "{taken:?}");
    // The root is told until it has arrived.
    let roots = scene.collector.spans().iter().filter(|span| span.parent_span_id.is_empty()).count();
    assert_eq!(roots, 1);
    assert!(sent + failed + dropped >= 3600, "each step is counted: {:?}", scene.counted());
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_bounded_and_counted() {
    let scene = Scene::new();
    scene.collector.answer(FakeAnswer::Silent);
    scene.call("quiet", "RunPodSandbox");
    sleep(Duration::from_secs(6)).await;
    for _ in 0..10_000 {
        scene.call("loud", "StartContainer");
    }
    scene.call("quiet", "StartContainer");
    let dropped = scene.counted()[3];
    assert_eq!(dropped, 10_001 - 2048);
    scene.collector.answer(FakeAnswer::Takes);
    sleep(Duration::from_secs(600)).await;
    let taken = scene.taken();
    assert_eq!(taken.iter().filter(|(_, pod)| pod == "quiet").count(), 2, "it has lost nothing");
    assert_eq!(taken.len(), 2049);
    assert_eq!(scene.counted()[2], 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_at_its_deadline() {
    let scene = Scene::new();
    scene.collector.answer(FakeAnswer::Silent);
    scene.call("a", "StartContainer");
    sleep(Duration::from_secs(14)).await;
    assert_eq!(scene.collector.calls(), 1);
    sleep(Duration::from_secs(7)).await;
    assert_eq!(scene.collector.calls(), 2, "15 s after the step, and 5 s of waiting");
}

#[tokio::test(start_paused = true)]
async fn refused_spans_are_not_sent_again_and_hold_up_no_others() {
    let scene = Scene::new();
    scene.collector.answer(FakeAnswer::Fails(ExportError::Refused("not these".to_owned())));
    scene.call("a", "StartContainer");
    sleep(Duration::from_secs(6)).await;
    assert_eq!((scene.collector.calls(), scene.counted()), (1, [0, 2, 0, 0]));
    scene.collector.answer(FakeAnswer::LeavesOut(1));
    scene.call("a", "StopContainer");
    sleep(Duration::from_secs(6)).await;
    assert_eq!((scene.collector.calls(), scene.counted()), (2, [1, 3, 0, 0]));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_a_collector_while_nothing_is_done() {
    let scene = Scene::new();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(scene.collector.calls(), 0);
}

#[test]
fn the_metric_has_a_series_for_each_result() {
    let (metrics, registry) = (TraceMetrics::new().unwrap(), Registry::new());
    metrics.register(&registry).unwrap();
    let family = &registry.gather()[0];
    assert_eq!((family.name(), family.get_metric().len()), ("understudy_trace_spans_total", 4));
}

fn request() -> ExportTraceServiceRequest {
    let span =
        Span { trace_id: vec![1; 16], span_id: vec![2; 8], name: "sync".to_owned(), ..Span::default() };
    let resource = Resource { attributes: vec![KeyValue::text("service.name", "kubelet")] };
    let scope_spans = vec![ScopeSpans { scope: None, spans: vec![span] }];
    let of = ResourceSpans { resource: Some(resource), scope_spans };
    ExportTraceServiceRequest { resource_spans: vec![of] }
}

/// What holds for every collector; `fake` is what it leads to.
async fn keeps_the_contract(collector: &dyn TraceCollector, fake: &FakeCollector) {
    let taken = collector.export(request()).await.expect("it takes all");
    assert_eq!(taken.partial_success, None);
    assert_eq!(fake.requests(), [request()]);
    fake.answer(FakeAnswer::LeavesOut(1));
    let partial = ExportTracePartialSuccess { rejected_spans: 1, error_message: "full".to_owned() };
    assert_eq!(collector.export(request()).await.expect("it takes some").partial_success, Some(partial));
    fake.answer(FakeAnswer::Fails(ExportError::Refused("not these".to_owned())));
    let refused = collector.export(request()).await;
    assert!(matches!(&refused, Err(ExportError::Refused(why)) if why.contains("not these")), "{refused:?}");
    fake.answer(FakeAnswer::Fails(ExportError::Away("overloaded".to_owned())));
    let away = collector.export(request()).await;
    assert!(matches!(&away, Err(ExportError::Away(why)) if why.contains("overloaded")), "{away:?}");
    fake.answer(FakeAnswer::Silent);
    let silent = timeout(Duration::from_millis(50), collector.export(request())).await;
    assert!(silent.is_err(), "{silent:?}");
    fake.answer(FakeAnswer::Takes);
    collector.export(request()).await.expect("it takes all again");
}

#[tokio::test]
async fn the_fake_keeps_the_contract() {
    let fake = FakeCollector::default();
    keeps_the_contract(&fake, &fake).await;
}

#[tokio::test]
async fn a_collector_behind_a_port_keeps_the_contract() {
    let fake = FakeCollector::default();
    let (_serving, address) = ServingCollector::on_a_port(&fake).unwrap();
    let address = CollectorAddress::parse(&address.to_string()).unwrap();
    let collector = OtlpCollector::new(&Io::current(), address).unwrap();
    keeps_the_contract(&collector, &fake).await;
}

#[tokio::test]
async fn a_collector_behind_a_socket_keeps_the_contract() {
    let fake = FakeCollector::default();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("collector.sock");
    let _serving = ServingCollector::at(&path, &fake).unwrap();
    let address = CollectorAddress::parse(&format!("unix://{}", path.display())).unwrap();
    let collector = OtlpCollector::new(&Io::current(), address).unwrap();
    keeps_the_contract(&collector, &fake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_behind_an_abstract_socket_keeps_the_contract_and_a_full_backlog_holds_up_no_thread() {
    let name = format!("understudy-collector-{}", std::process::id());
    let path = format!("\0{name}");
    let address = CollectorAddress::parse(&format!("unix-abstract:{name}")).unwrap();
    let socket = tokio::net::UnixSocket::new_stream().unwrap();
    socket.bind(&path).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = UnixStream::connect(&path).await {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the backlog is full some time");
    }
    let collector = OtlpCollector::new(&Io::current(), address.clone()).unwrap();
    let export = collector.export(request());
    let away = timeout(Duration::from_secs(10), tokio::spawn(export)).await;
    // A thread that waits for its place goes on.
    drop((listener, waiting));
    assert!(matches!(away, Ok(Ok(Err(ExportError::Away(_))))), "{away:?}");
    let fake = FakeCollector::default();
    let _serving = ServingCollector::at(Path::new(&path), &fake).unwrap();
    let collector = OtlpCollector::new(&Io::current(), address).unwrap();
    keeps_the_contract(&collector, &fake).await;
}

/// A machine that is gone answers nothing and closes nothing.
#[tokio::test(start_paused = true)]
async fn a_connection_that_answers_nothing_is_dialled_again() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = CollectorAddress::parse(&listener.local_addr().unwrap().to_string()).unwrap();
    let collector = OtlpCollector::new(&Io::current(), address).unwrap();
    let exports = tokio::spawn({
        let collector = collector.clone();
        async move {
            loop {
                let _away = collector.export(request()).await;
                sleep(Duration::from_secs(5)).await;
            }
        }
    });
    let first = listener.accept().await.unwrap();
    let again = timeout(Duration::from_secs(600), listener.accept()).await;
    assert!(matches!(again, Ok(Ok(_))), "{again:?}");
    exports.abort();
    drop(first);
}

/// The first outcome of calls that is as it is waited for.
async fn until(
    collector: &OtlpCollector,
    is_as_wanted: impl Fn(&Result<ExportTraceServiceResponse, ExportError>) -> bool,
) -> Result<ExportTraceServiceResponse, ExportError> {
    let calls = async {
        loop {
            let outcome = collector.export(request()).await;
            if is_as_wanted(&outcome) {
                break outcome;
            }
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), calls).await.expect("within half a minute")
}

#[tokio::test]
async fn a_collector_that_goes_away_is_told_as_such_and_found_again() {
    let fake = FakeCollector::default();
    let (serving, address) = ServingCollector::on_a_port(&fake).unwrap();
    let named = CollectorAddress::parse(&address.to_string()).unwrap();
    let collector = OtlpCollector::new(&Io::current(), named).unwrap();
    collector.export(request()).await.expect("it takes all");
    drop(serving);
    let away = until(&collector, Result::is_err).await;
    assert!(matches!(away, Err(ExportError::Away(_))), "{away:?}");
    let again = async {
        loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let listener =
        timeout(Duration::from_secs(30), again).await.expect("its port is free within half a minute");
    let before = fake.requests().len();
    let _serving = ServingCollector::on(listener, &fake).unwrap();
    until(&collector, Result::is_ok).await.expect("it takes all again");
    assert_eq!(fake.requests().len(), before + 1);
}
