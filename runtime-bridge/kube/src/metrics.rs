//! The metrics of calls to the API server; names, labels and buckets are those of upstream's client library (row 22.1).

use std::sync::Arc;
use std::time::Duration;

use super::exec::ProgramMetrics;
use bridge_metrics::Registry;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// 64 bytes to 16 MiB.
const BYTES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
/// The label of a call without an answer.
const NO_ANSWER: &str = "<error>";

/// The handles, which all clients of a node share; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct RestMetrics {
    requests: IntCounterVec,
    retries: IntCounterVec,
    seconds: HistogramVec,
    waited: HistogramVec,
    request_bytes: HistogramVec,
    response_bytes: HistogramVec,
    /// The programs of kubeconfigs.
    pub programs: ProgramMetrics,
}

impl RestMetrics {
    /// New metrics, all empty.
    ///
    /// # Errors
    /// A name or label is malformed, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            HistogramVec::new(options, &["verb", "host"])
        };
        let counter = |name: &str, help: &str, by: &str| {
            IntCounterVec::new(Opts::new(name, help), &["code", by, "host"])
        };
        Ok(Self {
            requests: counter(
                "rest_client_requests_total",
                "[ALPHA] Calls to the API server, by status code, method and host.",
                "method",
            )?,
            retries: counter(
                "rest_client_request_retries_total",
                "[ALPHA] Calls that were made again, by the status code before, verb and host.",
                "verb",
            )?,
            seconds: histogram(
                "rest_client_request_duration_seconds",
                "[ALPHA] Seconds until the answer to a call began, by verb and host.",
                &SECONDS,
            )?,
            waited: histogram(
                "rest_client_rate_limiter_duration_seconds",
                "[ALPHA] Seconds that a call waited for its turn at the rate limit, by verb and host.",
                &SECONDS,
            )?,
            request_bytes: histogram(
                "rest_client_request_size_bytes",
                "[ALPHA] Bytes of the body of a call, by verb and host.",
                &BYTES,
            )?,
            response_bytes: histogram(
                "rest_client_response_size_bytes",
                "[ALPHA] Bytes of the body of an answer, by verb and host.",
                &BYTES,
            )?,
            programs: ProgramMetrics::new()?,
        })
    }

    /// Registers them.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.retries.clone()))?;
        registry.register(Box::new(self.seconds.clone()))?;
        registry.register(Box::new(self.waited.clone()))?;
        registry.register(Box::new(self.request_bytes.clone()))?;
        registry.register(Box::new(self.response_bytes.clone()))?;
        self.programs.register(registry)
    }

    /// The same metrics for calls to this server, whose name and port are the label `host`.
    #[must_use]
    pub fn of_host(&self, host: &str) -> HostMetrics {
        HostMetrics { metrics: self.clone(), host: Arc::from(host) }
    }
}

/// The metrics of the calls to one server.
#[derive(Clone, Debug)]
pub struct HostMetrics {
    metrics: RestMetrics,
    host: Arc<str>,
}

impl HostMetrics {
    fn observe(&self, histogram: &HistogramVec, verb: &str, value: f64) {
        histogram.with_label_values(&[verb, &*self.host]).observe(value);
    }

    pub(super) fn waited(&self, verb: &str, waited: Duration) {
        self.observe(&self.metrics.waited, verb, waited.as_secs_f64());
    }

    /// A call was sent, and its answer began; `None` if there was none.
    pub(super) fn answered(&self, verb: &str, code: Option<u16>, took: Duration, sent_bytes: u64) {
        let code = code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string());
        self.metrics.requests.with_label_values(&[code.as_str(), verb, &*self.host]).inc();
        self.observe(&self.metrics.seconds, verb, took.as_secs_f64());
        self.observe(&self.metrics.request_bytes, verb, float(sent_bytes));
    }

    pub(super) fn received(&self, verb: &str, bytes: usize) {
        self.observe(&self.metrics.response_bytes, verb, float(u64::try_from(bytes).unwrap_or(u64::MAX)));
    }

    pub(super) fn again(&self, verb: &str, code: u16) {
        let code = code.to_string();
        self.metrics.retries.with_label_values(&[code.as_str(), verb, &*self.host]).inc();
    }
}

#[allow(clippy::cast_precision_loss, reason = "metrics are floating-point numbers")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeApi, Fault, On, Verb};
    use bridge_io::Io;
    use bridge_io::clock::FakeClock;
    use k8s_openapi::api::core::v1::Node;

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_by_their_answers() {
        let fake = FakeApi::new(Arc::new(FakeClock::new(1, "2026-01-02T03:04:05Z".parse().unwrap())));
        let mut node = Node::default();
        node.metadata.name = Some("n1".to_owned());
        fake.put(&node);
        let metrics = RestMetrics::new().unwrap();
        let registry = Registry::new();
        metrics.register(&registry).unwrap();
        let client = fake.client(&Io::current()).counted(metrics.of_host("api:6443"));
        fake.fault(On::call(Verb::Get, "nodes"), 1, Fault::too_many(2));
        client.get::<Node>(None, "n1").await.unwrap();
        client.get::<Node>(None, "none").await.unwrap_err();
        let page = String::from_utf8(bridge_metrics::page(registry.gather(), "", "").body).unwrap();
        for series in [
            "rest_client_requests_total{code=\"200\",host=\"api:6443\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"404\",host=\"api:6443\",method=\"GET\"} 1",
            "rest_client_requests_total{code=\"429\",host=\"api:6443\",method=\"GET\"} 1",
            "rest_client_request_retries_total{code=\"429\",host=\"api:6443\",verb=\"GET\"} 1",
            "rest_client_request_duration_seconds_count{host=\"api:6443\",verb=\"GET\"} 3",
            "rest_client_rate_limiter_duration_seconds_count{host=\"api:6443\",verb=\"GET\"} 3",
            "rest_client_response_size_bytes_count{host=\"api:6443\",verb=\"GET\"} 1",
        ] {
            assert!(page.lines().any(|line| line == series), "{series}: {page}");
        }
    }
}
