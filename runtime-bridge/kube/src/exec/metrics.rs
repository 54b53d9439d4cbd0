//! The metrics of programs that yield the kubelet's identity; names, labels and buckets are those of upstream's client library
//! (row 22.1).

use std::sync::{Arc, Mutex, PoisonError};

use bridge_metrics::Registry;
use jiff::Timestamp;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounterVec, Opts};

/// 10 minutes to 4 years.
const AGE_SECONDS: [f64; 11] = [
    600.0,
    1800.0,
    3600.0,
    14400.0,
    86400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
const TTL: &str = "rest_client_exec_plugin_ttl_seconds";
const TTL_HELP: &str =
    "[ALPHA] Seconds until the client certificate of the kubeconfig's program ends; infinite without one.";

/// How a run of a program ended, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// It ended with 0, whatever it printed.
    Done,
    /// It ended with another code; -1 if a signal ended it.
    Failed(i32),
    /// It could not be found or run.
    NotFound,
    /// It was not waited for to its end.
    Internal,
}

impl Run {
    fn labels(self) -> (String, &'static str) {
        match self {
            Self::Done => ("0".to_owned(), "no_error"),
            Self::Failed(code) => (code.to_string(), "plugin_execution_error"),
            Self::NotFound => ("1".to_owned(), "plugin_not_found_error"),
            Self::Internal => ("1".to_owned(), "client_internal_error"),
        }
    }
}

/// The handles; clones count into the same metrics.
#[derive(Clone, Debug)]
pub struct ProgramMetrics {
    calls: IntCounterVec,
    ages: Histogram,
    ends: Ends,
}

/// Tells how long the certificate still holds when it is asked.
#[derive(Clone, Debug)]
struct Ends {
    at: Arc<Mutex<Option<Timestamp>>>,
    desc: Desc,
}

impl ProgramMetrics {
    /// New metrics, all empty.
    ///
    /// # Errors
    /// A name or label is malformed, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        let calls = Opts::new(
            "rest_client_exec_plugin_call_total",
            "[ALPHA] Runs of the kubeconfig's program, by its exit code and how the run ended.",
        );
        let ages = HistogramOpts::new(
            "rest_client_exec_plugin_certificate_rotation_age",
            "[ALPHA] Seconds from the begin of a certificate of the kubeconfig's program until it gave another one.",
        );
        let desc = Desc::new(TTL.to_owned(), TTL_HELP.to_owned(), Vec::new(), Default::default())?;
        Ok(Self {
            calls: IntCounterVec::new(calls, &["code", "call_status"])?,
            ages: Histogram::with_opts(ages.buckets(AGE_SECONDS.to_vec()))?,
            ends: Ends { at: Arc::default(), desc },
        })
    }

    /// Registers them.
    ///
    /// # Errors
    /// A metric of one of these names is registered already.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.calls.clone()))?;
        registry.register(Box::new(self.ages.clone()))?;
        registry.register(Box::new(self.ends.clone()))
    }

    pub(super) fn ran(&self, run: Run) {
        let (code, status) = run.labels();
        self.calls.with_label_values(&[code.as_str(), status]).inc();
    }

    /// The certificate that began at this time gave way to another one.
    pub(super) fn rotated(&self, began: Timestamp, now: Timestamp) {
        self.ages.observe(now.duration_since(began).as_secs_f64());
    }

    /// The certificate ends at this time; none: there is no certificate.
    pub(super) fn ends(&self, at: Option<Timestamp>) {
        *self.ends.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

impl Collector for Ends {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let at = *self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let left = at.map_or(f64::INFINITY, |at| at.duration_since(Timestamp::now()).as_secs_f64());
        let Ok(gauge) = Gauge::new(TTL, TTL_HELP) else { return Vec::new() };
        gauge.set(left);
        gauge.collect()
    }
}
