//! The port to the collector.

use futures::future::BoxFuture;

use crate::wire::{ExportTraceServiceRequest, ExportTraceServiceResponse};

/// Why spans did not reach the collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The collector is away, or cannot take them now: they may be sent again.
    #[error("{0}")]
    Away(String),
    /// The collector does not want them.
    #[error("{0}")]
    Refused(String),
}

/// Takes the kubelet's spans.
pub trait TraceCollector: Send + Sync + std::fmt::Debug {
    /// Sends spans. The caller sets a deadline, at which it drops the future.
    fn export(
        &self,
        request: ExportTraceServiceRequest,
    ) -> BoxFuture<'static, Result<ExportTraceServiceResponse, ExportError>>;
}
