//! What has become of spans, counted.

use bridge_metrics::Registry;
use prometheus::{IntCounterVec, Opts};

/// The handle; clones count into the same metric.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    spans: IntCounterVec,
}

impl TraceMetrics {
    /// A new metric, all zero.
    ///
    /// # Errors
    /// A name or label is malformed, which does not happen.
    pub fn new() -> prometheus::Result<Self> {
        let opts = Opts::new(
            "understudy_trace_spans_total",
            "Spans of traces, by what became of them: sent to the collector, refused by it, failed to reach it in \
             time, or dropped since too many waited.",
        );
        let spans = IntCounterVec::new(opts, &["result"])?;
        for result in ["sent", "refused", "failed", "dropped"] {
            spans.with_label_values(&[result]);
        }
        Ok(Self { spans })
    }

    /// Registers the metric; called once.
    ///
    /// # Errors
    /// Another metric has the name.
    pub fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        registry.register(Box::new(self.spans.clone()))
    }

    /// The spans so far with a result: `sent`, `refused`, `failed` or `dropped`.
    #[must_use]
    pub fn counted(&self, result: &str) -> u64 {
        self.spans.with_label_values(&[result]).get()
    }

    pub(crate) fn count(&self, result: &str, spans: usize) {
        self.spans.with_label_values(&[result]).inc_by(u64::try_from(spans).unwrap_or(u64::MAX));
    }
}
