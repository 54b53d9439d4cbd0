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

/// Whole trees that are removed at the same time. A pod decides how large they are, so they never have the blocking threads.
static REMOVALS: Semaphore = Semaphore::const_new(4);

/// What is asked for by nobody who waits.
const LOWEST_PRIORITY: i32 = 19;

/// The I/O runtime has been shut down, so the work was not done (or its end was not seen).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the I/O runtime has shut down")]
pub struct RuntimeGone;

/// Starts `work`, as soon as there is a place, on a thread that may block. It runs to its end even when the future is dropped: half an
/// unmount or half a checkpoint would be worse than one that nobody waits for. A panic goes on in whoever waits.
pub fn offload<T, E>(
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
pub fn at_low_priority<T, E>(
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

/// Removes what a pod has filled, [`at_low_priority`], as soon as there is a place, which it keeps to its end: however many
/// trees are removed, and however large they are, no other work waits for that. It runs to its end as with [`offload`].
pub fn removal<T, E>(
    io: &Handle,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> BoxFuture<'static, Result<T, E>>
where
    T: Send + 'static,
    E: From<RuntimeGone> + Send + 'static,
{
    let (done, outcome) = oneshot::channel();
    drop(io.spawn(async move {
        let place = REMOVALS.acquire().await;
        let work = move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            drop(place);
            // Nobody may wait any more.
            drop(done.send(outcome));
            Ok::<_, RuntimeGone>(())
        };
        // Without a thread `done` is gone, which is told.
        let _ = at_low_priority("remove-tree", work).await;
    }));
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn slow_removals_hold_nothing_else_up_and_all_end() {
        let io = Handle::current();
        let (begun, begins) = mpsc::channel();
        let mut gates = Vec::new();
        let removals: Vec<_> = (0..100)
            .map(|number| {
                let (gate, opened) = mpsc::channel::<()>();
                gates.push(gate);
                let begun = begun.clone();
                removal(&io, move || {
                    let _ = begun.send(number);
                    // Until the gate is dropped.
                    let _ = opened.recv();
                    Ok::<_, RuntimeGone>(number)
                })
            })
            .collect();
        let begins = tokio::task::spawn_blocking(move || {
            let first: Vec<i32> = begins.iter().take(4).collect();
            (first, begins)
        });
        let (first, begins) = begins.await.unwrap();
        assert_eq!(first.len(), 4);
        // More than a place's time for slow work.
        tokio::time::sleep(SLOW + Duration::from_millis(200)).await;
        let name = offload(&io, || Ok::<_, RuntimeGone>(std::thread::current().name().map(str::to_owned)));
        let name = tokio::time::timeout(Duration::from_secs(30), name).await.unwrap().unwrap();
        assert_ne!(name.as_deref(), Some("remove-tree"));
        assert!(begins.try_recv().is_err(), "a place is kept to the end");
        drop(gates);
        let ended = futures::future::join_all(removals).await;
        assert_eq!(ended, (0..100).map(Ok).collect::<Vec<_>>());
    }
}
