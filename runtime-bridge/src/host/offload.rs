//! Blocking work on the threads that may block.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// Pieces of work at the same time. More threads than the disk has use for only cost memory.
static PLACES: Semaphore = Semaphore::const_new(8);
/// Work that takes longer (a mount that hangs) gives its place to others; the runtime's own bound holds for it.
const SLOW: Duration = Duration::from_secs(1);

/// The I/O runtime has been shut down, so the work was not done (or its end was not seen).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the I/O runtime has shut down")]
pub struct RuntimeGone;

/// Starts `work`, as soon as there is a place, on a thread that may block. It runs to its end even when the future is dropped: half an
/// unmount or half a checkpoint would be worse than one that nobody waits for. A panic goes on in whoever waits.
pub(crate) fn offload<T, E>(
    io: &Handle,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<RuntimeGone> + Send + 'static,
{
    let (done, outcome) = oneshot::channel();
    // Nobody may wait any more.
    begin(io, Box::new(move || drop(done.send(catch_unwind(AssertUnwindSafe(work))))));
    async move {
        match outcome.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(E::from(RuntimeGone)),
        }
    }
    .boxed()
}

/// The same for work of every type, so that there is one kind of task and not one for each.
fn begin(io: &Handle, work: Box<dyn FnOnce() + Send>) {
    let threads = io.clone();
    drop(io.spawn(async move {
        let place = PLACES.acquire().await;
        let mut running = threads.spawn_blocking(work);
        if tokio::time::timeout(SLOW, &mut running).await.is_err() {
            drop(place);
        }
    }));
}
