//! Blocking work on the threads that may block.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

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
    let threads = io.clone();
    let running = io
        .spawn(async move {
            let place = PLACES.acquire().await;
            let mut running = threads.spawn_blocking(work);
            match tokio::time::timeout(SLOW, &mut running).await {
                Ok(done) => done,
                Err(_slow) => {
                    drop(place);
                    running.await
                }
            }
        })
        .map(|task| task.and_then(|done| done));
    async move {
        match running.await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(E::from(RuntimeGone)),
            },
        }
    }
    .boxed()
}
