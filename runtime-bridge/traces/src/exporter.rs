//! The way of steps from the history of pods to the collector.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_io::{Io, lasting};
use bridge_pace::Backoff;
use bridge_pace::history::{History, Step};
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};

use crate::collector::{ExportError, TraceCollector};
use crate::metrics::TraceMetrics;
use crate::queue::{BATCH_MAX, Ended, Queue};
use crate::spans::{Batch, PodName, Process, Sampling};
use crate::wire::{ExportTraceServiceRequest, ExportTraceServiceResponse};

/// How long the first step of a batch waits for more, as OpenTelemetry's exporters do.
const GATHER: Duration = Duration::from_secs(5);
/// The deadline of a call, that of OpenTelemetry's exporters.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// The waits between calls while the collector does not take spans.
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(60));
/// Spans that the collector has not taken for so long are given up for later ones.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// The most pods of which the name is remembered, and that their first span is told.
const PODS_MAX: usize = 1024;

/// Asks what pods are called; those that are not known are left out.
pub type AskNames =
    Arc<dyn Fn(Vec<Arc<str>>) -> BoxFuture<'static, BTreeMap<Arc<str>, PodName>> + Send + Sync>;

/// What is told to which collector.
pub struct TraceExport {
    /// What is done for pods.
    pub history: History,
    /// Tells when the steps were, and gives the process its number.
    pub clock: Arc<dyn Clock>,
    /// Takes the spans.
    pub collector: Arc<dyn TraceCollector>,
    /// Tells the names of pods.
    pub names: AskNames,
    /// The node's name.
    pub node: String,
    /// The share of pods that are told.
    pub sampling: Sampling,
    /// Counts what becomes of spans.
    pub metrics: TraceMetrics,
}

/// Tells the collector from now on of each step that has ended for a pod, in a task of the I/O runtime. What waits when the
/// runtime ends is lost.
pub fn export(io: &Io, traces: TraceExport) {
    let TraceExport { history, clock, collector, names, node, sampling, metrics } = traces;
    let queue = Arc::new(Queue::default());
    let drops_told = Arc::new(AtomicBool::new(false));
    let (into, drops, counted) = (queue.clone(), drops_told.clone(), metrics.clone());
    let follows = history.follow(move |pod: &str, number: u64, step: &Step| {
        if sampling.tells(pod) && into.push(pod, number, step) {
            counted.count("dropped", 1);
            if !drops.swap(true, Ordering::Relaxed) {
                tracing::warn!("More spans of traces wait than there is room for; the oldest are dropped");
            }
        }
    });
    if !follows {
        return tracing::error!("The history of pods is followed already; no traces are told");
    }
    let process = Process { node, number: clock.random_u64() };
    let exporter =
        Arc::new(Exporter { queue, history, clock, collector, names, process, metrics, drops_told });
    let work = lasting("traces", move || {
        let exporter = exporter.clone();
        async move { exporter.run().await }
    });
    drop(io.spawn(work));
}

struct Exporter {
    queue: Arc<Queue>,
    history: History,
    clock: Arc<dyn Clock>,
    collector: Arc<dyn TraceCollector>,
    names: AskNames,
    process: Process,
    metrics: TraceMetrics,
    /// Whether it was said that steps are dropped, since the collector has taken spans last.
    drops_told: Arc<AtomicBool>,
}

/// What is known of pods of which something was told lately.
#[derive(Debug, Default)]
struct Known {
    batches: u64,
    pods: BTreeMap<Arc<str>, Pod>,
}

#[derive(Debug, Default)]
struct Pod {
    name: Option<PodName>,
    /// Whether its first span has reached the collector.
    is_told: bool,
    /// The last batch that it was in.
    batch: u64,
}

impl Known {
    /// Takes note of the pods of a batch.
    fn touch(&mut self, ended: &[Ended]) {
        self.batches += 1;
        for Ended { pod, .. } in ended {
            self.pods.entry(pod.clone()).or_default().batch = self.batches;
        }
        while self.pods.len() > PODS_MAX {
            let oldest = self.pods.iter().min_by_key(|(_, known)| known.batch).map(|(pod, _)| pod.clone());
            let Some(oldest) = oldest else { return };
            self.pods.remove(&oldest);
        }
    }

    /// The pods of the last batch of which this holds.
    fn of_last<'a>(&'a self, holds: impl Fn(&Pod) -> bool + 'a) -> impl Iterator<Item = Arc<str>> + 'a {
        let of_last = self.pods.iter().filter(move |(_, known)| known.batch == self.batches && holds(known));
        of_last.map(|(pod, _)| pod.clone())
    }
}

/// How the collector is reached.
#[derive(Debug, Default)]
struct Reach {
    /// How often in a row it was not.
    failures: u32,
    /// Whether that was said.
    is_told: bool,
    /// Whether it was said that the collector has left some spans out.
    partly_told: bool,
}

impl Reach {
    fn fails(&mut self, error: &ExportError) {
        self.failures = self.failures.saturating_add(1);
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::warn!(%error, "Traces do not reach their collector; spans are lost until it takes them");
        }
    }

    fn works(&mut self) {
        self.failures = 0;
        if std::mem::take(&mut self.is_told) {
            tracing::info!("Traces reach their collector again");
        }
    }
}

impl Exporter {
    async fn run(&self) {
        let (mut known, mut reach) = (Known::default(), Reach::default());
        loop {
            self.queue.some().await;
            tokio::select! {
                biased;
                () = self.queue.many() => {}
                () = sleep(GATHER) => {}
            }
            loop {
                let batch = self.queue.take();
                let is_full = batch.len() == BATCH_MAX;
                if !batch.is_empty() {
                    self.tell(&batch, &mut known, &mut reach).await;
                }
                if !is_full {
                    break;
                }
            }
        }
    }

    /// Tells of a batch, or gives it up.
    async fn tell(&self, ended: &[Ended], known: &mut Known, reach: &mut Reach) {
        known.touch(ended);
        let nameless: Vec<Arc<str>> = known.of_last(|pod| pod.name.is_none()).collect();
        if !nameless.is_empty() {
            for (pod, name) in (self.names)(nameless).await {
                if let Some(known) = known.pods.get_mut(&pod) {
                    known.name = Some(name);
                }
            }
        }
        let new: BTreeSet<Arc<str>> = known.of_last(|pod| !pod.is_told).collect();
        let spans = ended.len() + new.len();
        let request = self.request(ended, &new, known);
        match self.send(request, reach).await {
            Some(answer) => {
                self.drops_told.store(false, Ordering::Relaxed);
                self.taken(spans, &answer, reach);
                for pod in new {
                    if let Some(known) = known.pods.get_mut(&pod) {
                        known.is_told = true;
                    }
                }
            }
            None => {
                let result = if reach.failures == 0 { "refused" } else { "failed" };
                self.metrics.count(result, spans);
            }
        }
    }

    fn request(&self, ended: &[Ended], new: &BTreeSet<Arc<str>>, known: &Known) -> ExportTraceServiceRequest {
        let name = |(pod, known): (&Arc<str>, &Pod)| Some((pod.clone(), known.name.clone()?));
        let names: BTreeMap<Arc<str>, PodName> = known
            .pods
            .iter()
            .filter(|(_, known_pod)| known_pod.batch == known.batches)
            .filter_map(name)
            .collect();
        let since = i128::try_from(self.history.now().as_nanos()).unwrap_or(i128::MAX);
        let epoch_ns = self.clock.now().as_nanosecond().saturating_sub(since);
        self.process.request(&Batch { ended, new, names: &names, epoch_ns })
    }

    /// Sends spans until the collector takes or refuses them, or they are too old.
    async fn send(
        &self,
        request: ExportTraceServiceRequest,
        reach: &mut Reach,
    ) -> Option<ExportTraceServiceResponse> {
        let begun = Instant::now();
        loop {
            let called = timeout(CALL_WITHIN, self.collector.export(request.clone())).await;
            let error = match called {
                Ok(Ok(answer)) => {
                    reach.works();
                    return Some(answer);
                }
                Ok(Err(error)) => error,
                Err(_) => ExportError::Away(format!("no answer within {} s", CALL_WITHIN.as_secs())),
            };
            reach.fails(&error);
            if matches!(error, ExportError::Refused(_)) {
                // The next spans are not held back for these.
                reach.failures = 0;
                return None;
            }
            sleep(RETRY.after(reach.failures)).await;
            if begun.elapsed() >= GIVE_UP_AFTER {
                return None;
            }
        }
    }

    /// Counts the spans that the collector has taken, and those of them that it has left out.
    fn taken(&self, spans: usize, answer: &ExportTraceServiceResponse, reach: &mut Reach) {
        let partial = answer.partial_success.as_ref();
        let left_out =
            partial.map_or(0, |partial| usize::try_from(partial.rejected_spans).unwrap_or(0)).min(spans);
        self.metrics.count("sent", spans - left_out);
        self.metrics.count("refused", left_out);
        if let Some(partial) = partial.filter(|_| left_out > 0)
            && !std::mem::replace(&mut reach.partly_told, true)
        {
            let why: String = partial.error_message.chars().take(256).collect();
            tracing::warn!(left_out, why = why.as_str(), "The collector of traces leaves spans out");
        }
    }
}
