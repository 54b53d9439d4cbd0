//! Traces of pods for an OpenTelemetry collector (row 23.7).
//!
//! A span is a step of a pod's history, as supervision and the bridge note it for `/timeline`: there is no second
//! instrumentation. A pod is one trace. What waits for the collector has a bound, which pods share; the oldest steps of
//! the pod with most of them go first, and are counted. A collector that is away, slow or refuses costs spans and nothing else.

mod collector;
mod endpoint;
mod exporter;
#[cfg(any(test, feature = "fake"))]
mod fake;
mod metrics;
mod otlp;
mod queue;
mod spans;
#[cfg(test)]
mod tests;
pub mod wire;

pub use collector::{ExportError, TraceCollector};
pub use endpoint::{CollectorAddress, DEFAULT_ENDPOINT, EndpointError};
pub use exporter::{AskNames, TraceExport, export};
#[cfg(any(test, feature = "fake"))]
pub use fake::{FakeAnswer, FakeCollector, ServingCollector};
pub use metrics::TraceMetrics;
pub use otlp::OtlpCollector;
pub use spans::{PodName, Sampling, trace_id};
