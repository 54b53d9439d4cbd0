//! The metrics of reviews; names, labels and buckets are upstream's (row 22.1).

use std::time::Duration;

use bridge_kube::ApiError;
use bridge_metrics::Registry;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

const REVIEW_SECONDS: [f64; 8] = [0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// The kinds of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    Token,
    Access,
}

/// The handles; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct ReviewMetrics {
    tokens: (IntCounterVec, HistogramVec),
    accesses: (IntCounterVec, HistogramVec),
    cache: (IntCounterVec, HistogramVec),
    fetches: IntCounterVec,
    fetching: IntGaugeVec,
}

impl ReviewMetrics {
    /// New metrics, all empty.
    ///
    /// # Errors
    /// A name or label is malformed, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        let of = |name: &str, help: &str, label: &str, buckets: Option<&[f64]>| {
            let total = Opts::new(format!("{name}_total"), format!("[ALPHA] {help}"));
            let seconds = HistogramOpts::new(
                format!("{name}_duration_seconds"),
                format!("[ALPHA] Seconds that each took: {help}"),
            );
            let seconds = match buckets {
                Some(buckets) => seconds.buckets(buckets.to_vec()),
                None => seconds,
            };
            Ok::<_, prometheus::Error>((
                IntCounterVec::new(total, &[label])?,
                HistogramVec::new(seconds, &[label])?,
            ))
        };
        Ok(Self {
            tokens: of(
                "apiserver_delegated_authn_request",
                "Reviews of tokens by the API server, by status code.",
                "code",
                Some(&REVIEW_SECONDS),
            )?,
            accesses: of(
                "apiserver_delegated_authz_request",
                "Reviews of access by the API server, by status code.",
                "code",
                Some(&REVIEW_SECONDS),
            )?,
            cache: of(
                "authentication_token_cache_request",
                "Questions for the user of a token, by whether the answer was remembered.",
                "status",
                None,
            )?,
            fetches: IntCounterVec::new(
                Opts::new(
                    "authentication_token_cache_fetch_total",
                    "[ALPHA] Questions for the user of a token that were put to the API server, by result.",
                ),
                &["status"],
            )?,
            fetching: IntGaugeVec::new(
                Opts::new(
                    "authentication_token_cache_active_fetch_count",
                    "[ALPHA] Questions for the user of a token that the API server has not answered, and callers that wait for such an answer.",
                ),
                &["status"],
            )?,
        })
    }

    /// Registers them.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        for (total, seconds) in [&self.tokens, &self.accesses, &self.cache] {
            registry.register(Box::new(total.clone()))?;
            registry.register(Box::new(seconds.clone()))?;
        }
        registry.register(Box::new(self.fetches.clone()))?;
        registry.register(Box::new(self.fetching.clone()))
    }

    /// Counts a review that was sent to the API server; `None` for no failure.
    pub(crate) fn reviewed(&self, review: Review, failure: Option<&ApiError>, took: Duration) {
        let code = match failure.map(|error| error.code) {
            None => "201".to_owned(),
            Some(0) => "<error>".to_owned(),
            Some(code) => code.to_string(),
        };
        let (total, seconds) = match review {
            Review::Token => &self.tokens,
            Review::Access => &self.accesses,
        };
        total.with_label_values(&[&code]).inc();
        seconds.with_label_values(&[&code]).observe(took.as_secs_f64());
    }

    /// Counts a question for the user of a token.
    pub(crate) fn asked(&self, remembered: bool, took: Duration) {
        let status = if remembered { "hit" } else { "miss" };
        let (total, seconds) = &self.cache;
        total.with_label_values(&[status]).inc();
        seconds.with_label_values(&[status]).observe(took.as_secs_f64());
    }

    /// Counts a caller as waiting until what is returned is dropped.
    pub(crate) fn waits(&self) -> Held {
        Held::new(&self.fetching, "blocked")
    }

    /// Counts a question to the API server as under way until what is returned is dropped.
    pub(crate) fn fetches(&self) -> Held {
        Held::new(&self.fetching, "in_flight")
    }

    /// Counts the end of a question to the API server.
    pub(crate) fn fetched(&self, answered: bool) {
        self.fetches.with_label_values(&[if answered { "ok" } else { "error" }]).inc();
    }
}

/// A place in a gauge.
#[derive(Debug)]
pub(crate) struct Held(prometheus::IntGauge);

impl Held {
    fn new(gauge: &IntGaugeVec, status: &str) -> Self {
        let gauge = gauge.with_label_values(&[status]);
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}
