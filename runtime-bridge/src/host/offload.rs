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

/// What is asked for by nobody who waits.
const LOWEST_PRIORITY: i32 = 19;

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
    ended(outcome)
}

/// Starts `work` on a thread of its own that yields to every other: for what takes long and is in no hurry. Whoever asks
/// bounds how many of these there are. What becomes of it is as with [`offload`].
pub(crate) fn at_low_priority<T, E>(
    name: &str,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<RuntimeGone> + Send + 'static,
{
    let (done, outcome) = oneshot::channel();
    let made = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // On Linux a priority is a thread's. One that cannot be lowered only makes the work quicker.
        let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
        // Nobody may wait any more.
        drop(done.send(catch_unwind(AssertUnwindSafe(work))));
    });
    // Without a thread nothing is done, and that is told as without a runtime.
    drop(made);
    ended(outcome)
}

/// What becomes of work that tells its outcome.
fn ended<T, E>(
    outcome: oneshot::Receiver<std::thread::Result<Result<T, E>>>,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<RuntimeGone> + Send + 'static,
{
    async move {
        match outcome.await {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(E::from(RuntimeGone)),
        }
    }
    .boxed()
}

/// [`offload`] for work of every type, so that there is one kind of task and not one for each.
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
