//! A task whose outcome several callers share.

use std::fmt;
use std::future::Future;

use bridge_pace::panics::{self, Carried};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// A task of the I/O runtime, which runs to its end whatever becomes of its callers. Clones share its outcome.
#[derive(Clone)]
pub struct SharedTask<T: Clone> {
    outcome: Shared<BoxFuture<'static, Result<T, Carried>>>,
    abort: AbortHandle,
}

impl<T: Clone> fmt::Debug for SharedTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTask").field("ended", &self.abort.is_finished()).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> SharedTask<T> {
    /// Begins `work`; `gone` is the outcome if it is cancelled or its runtime ends.
    pub fn spawn(
        io: &Handle,
        work: impl Future<Output = T> + Send + 'static,
        gone: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let task = io.spawn(panics::caught(work).boxed());
        let abort = task.abort_handle();
        let outcome = async move { task.await.unwrap_or_else(|_| Ok(gone())) };
        Self { outcome: outcome.boxed().shared(), abort }
    }

    /// The outcome. A panic of the work goes on in each caller.
    pub fn outcome(&self) -> BoxFuture<'static, T> {
        self.outcome.clone().map(panics::resumed).boxed()
    }

    /// Ends the work where it stands.
    pub fn cancel(&self) {
        self.abort.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_callers_have_the_outcome_also_of_a_task_that_was_cancelled() {
        let io = Handle::current();
        let task = SharedTask::spawn(&io, async { 1 }, || 0);
        assert_eq!((task.outcome().await, task.clone().outcome().await), (1, 1));
        let task = SharedTask::spawn(&io, std::future::pending(), || 0);
        task.cancel();
        assert_eq!((task.outcome().await, task.outcome().await), (0, 0));
    }
}
