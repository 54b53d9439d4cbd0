//! A collector in memory, for tests.

mod serve;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::collector::{ExportError, TraceCollector};
use crate::wire::{ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse, Span};

pub use serve::ServingCollector;

/// What the collector answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FakeAnswer {
    /// It takes all.
    #[default]
    Takes,
    /// It takes all but so many.
    LeavesOut(i64),
    /// It is away, or does not want them.
    Fails(ExportError),
    /// It never answers.
    Silent,
}

/// A collector that keeps what it takes. Clones are the same collector.
#[derive(Clone, Debug, Default)]
pub struct FakeCollector {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    answer: FakeAnswer,
    calls: usize,
    taken: Vec<ExportTraceServiceRequest>,
}

impl FakeCollector {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the answer from now on.
    pub fn answer(&self, answer: FakeAnswer) {
        self.state().answer = answer;
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// The requests that were taken.
    #[must_use]
    pub fn requests(&self) -> Vec<ExportTraceServiceRequest> {
        self.state().taken.clone()
    }

    /// The spans that were taken.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        let resources = self.requests().into_iter().flat_map(|request| request.resource_spans);
        resources.flat_map(|of| of.scope_spans).flat_map(|scope| scope.spans).collect()
    }
}

impl TraceCollector for FakeCollector {
    fn export(
        &self,
        request: ExportTraceServiceRequest,
    ) -> BoxFuture<'static, Result<ExportTraceServiceResponse, ExportError>> {
        let mut state = self.state();
        state.calls += 1;
        let answer = state.answer.clone();
        let left_out = match answer {
            FakeAnswer::Takes => 0,
            FakeAnswer::LeavesOut(spans) => spans,
            FakeAnswer::Fails(error) => return std::future::ready(Err(error)).boxed(),
            FakeAnswer::Silent => return std::future::pending().boxed(),
        };
        state.taken.push(request);
        let partial =
            ExportTracePartialSuccess { rejected_spans: left_out, error_message: "full".to_owned() };
        let partial_success = (left_out > 0).then_some(partial);
        std::future::ready(Ok(ExportTraceServiceResponse { partial_success })).boxed()
    }
}
