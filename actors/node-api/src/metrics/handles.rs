//! The handles.

use std::time::Duration;

use bridge_metrics::Registry;
use jiff::Timestamp;
use prometheus::{Gauge, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::health::Check;

/// Upper bounds of the rest of a client certificate's life, in seconds.
const LEFT_SECONDS: [f64; 14] = [
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// The labels of a request.
const REQUEST: [&str; 4] = ["method", "path", "server_type", "long_running"];

/// The registries of the pages.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    /// `/metrics`
    pub main: Registry,
    /// `/metrics/probes`
    pub probes: Registry,
    /// `/metrics/slis`
    pub slis: Registry,
}

/// NodeApi's metrics; clones count into the same ones.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    pub(crate) registries: Registries,
    /// When the process began, in seconds since the epoch.
    pub(crate) began: i64,
    pub(crate) requests: IntCounterVec,
    pub(crate) seconds: HistogramVec,
    pub(crate) in_flight: IntGaugeVec,
    panics: IntCounterVec,
    websockets: IntCounterVec,
    certificates: Histogram,
    health: IntGaugeVec,
    checks: IntCounterVec,
}

impl ApiMetrics {
    /// Makes the handles and registers them, and the start of the process with the two smaller pages, which have nothing else
    /// of the process.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn new(registries: Registries, began: Timestamp) -> prometheus::Result<Self> {
        let opts = |name: &str, help: &str| Opts::new(name, help);
        let made = Self {
            began: began.as_second(),
            requests: IntCounterVec::new(
                opts(
                    "kubelet_http_requests_total",
                    "[ALPHA] Requests that the kubelet's server has received.",
                ),
                &REQUEST,
            )?,
            seconds: HistogramVec::new(
                HistogramOpts::new(
                    "kubelet_http_requests_duration_seconds",
                    "[ALPHA] Seconds from a request to the end of its answer.",
                ),
                &REQUEST,
            )?,
            in_flight: IntGaugeVec::new(
                opts("kubelet_http_inflight_requests", "[ALPHA] Requests that are being answered."),
                &REQUEST,
            )?,
            panics: IntCounterVec::new(
                opts(
                    "understudy_http_panics_total",
                    "Answers of the kubelet's server that ended in a panic.",
                ),
                &["path"],
            )?,
            websockets: IntCounterVec::new(
                opts(
                    "kubelet_websocket_streaming_requests_total",
                    "[ALPHA] Streams into containers that the kubelet translates from a WebSocket.",
                ),
                &["subresource"],
            )?,
            certificates: Histogram::with_opts(
                HistogramOpts::new(
                    "apiserver_client_certificate_expiration_seconds",
                    "[ALPHA] Seconds until the certificate ends by which a caller was authenticated.",
                )
                .buckets(LEFT_SECONDS.to_vec()),
            )?,
            health: IntGaugeVec::new(
                opts(
                    "kubernetes_healthcheck",
                    "[STABLE] Whether a health check has passed, when it was last asked for.",
                ),
                &["name", "type"],
            )?,
            checks: IntCounterVec::new(
                opts("kubernetes_healthchecks_total", "[STABLE] Health checks by their results."),
                &["name", "type", "status"],
            )?,
            registries,
        };
        made.register(began)?;
        Ok(made)
    }

    fn register(&self, began: Timestamp) -> prometheus::Result<()> {
        let Registries { main, probes, slis } = &self.registries;
        main.register(Box::new(self.requests.clone()))?;
        main.register(Box::new(self.seconds.clone()))?;
        main.register(Box::new(self.in_flight.clone()))?;
        main.register(Box::new(self.panics.clone()))?;
        main.register(Box::new(self.websockets.clone()))?;
        main.register(Box::new(self.certificates.clone()))?;
        super::logs::describe(main);
        super::volumes::describe(main);
        slis.register(Box::new(self.health.clone()))?;
        slis.register(Box::new(self.checks.clone()))?;
        for page in [probes, slis] {
            let help = "[ALPHA] When the process began, in seconds since the epoch.";
            let start = Gauge::new("process_start_time_seconds", help)?;
            start.set(began.as_duration().as_secs_f64());
            page.register(Box::new(start))?;
        }
        Ok(())
    }

    /// The registries of the pages.
    #[must_use]
    pub fn registries(&self) -> &Registries {
        &self.registries
    }

    /// Counts an answer that ended in a panic.
    pub(crate) fn panicked(&self, path: &str) {
        self.panics.with_label_values(&[path]).inc();
    }

    /// Counts a stream that is translated from a WebSocket.
    pub(crate) fn websocket(&self, subresource: &str) {
        self.websockets.with_label_values(&[subresource]).inc();
    }

    /// Notes how long the certificate of a caller is good yet.
    pub(crate) fn certificate(&self, left: Duration) {
        self.certificates.observe(left.as_secs_f64());
    }

    /// Notes the results of health checks that were asked for together.
    pub(crate) fn checked<'a>(&self, checks: impl Iterator<Item = &'a Check>) {
        for Check { name, failed } in checks {
            let status = if failed.is_some() { "error" } else { "success" };
            self.health.with_label_values(&[name, "healthz"]).set(i64::from(failed.is_none()));
            self.checks.with_label_values(&[name, "healthz", status]).inc();
        }
    }

    /// Forgets the results of health checks.
    pub(crate) fn forget_checks(&self) {
        self.health.reset();
        self.checks.reset();
    }

    /// The requests of such labels that are being answered.
    pub(crate) fn in_flight(&self, labels: &[&str]) -> IntGauge {
        self.in_flight.with_label_values(labels)
    }
}
