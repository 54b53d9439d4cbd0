//! Work that lasts, so that no future waits for its end: its panic is not lost, and it does not end with it.

use std::time::Duration;

use bridge_pace::Backoff;
use bridge_pace::panics::{self, Carried};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// The waits after panics; the first one again after work that went well for longer than the last one.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// Work that no actor follows, until it ends. A panic is logged with its place, and the work begins anew after a wait.
pub fn lasting<W>(name: &'static str, mut begin: impl FnMut() -> W + Send + 'static) -> BoxFuture<'static, ()>
where
    W: Future<Output = ()> + Send + 'static,
{
    async move {
        let mut wait = BACKOFF.first();
        loop {
            let begun = Instant::now();
            // What makes the work is a part of it.
            let work = async { begin().await };
            let Err(panic) = panics::caught(work).await else { return };
            if begun.elapsed() > BACKOFF.longest() {
                wait = BACKOFF.first();
            }
            tracing::error!(work = name, %panic, wait_s = wait.as_secs(), "Work of the bridge has panicked; it begins anew");
            tokio::time::sleep(wait).await;
            wait = BACKOFF.following(wait);
        }
    }
    .boxed()
}

/// A stream of what `work` tells. The work is a task of the I/O runtime until the stream is dropped; its panic goes on in the
/// reader of the stream.
pub fn told_by<T: Send + 'static>(
    io: &Handle,
    work: impl Future<Output = ()> + Send + 'static,
    told: mpsc::Receiver<T>,
) -> BoxStream<'static, T> {
    let task = AbortOnDropHandle::new(io.spawn(panics::caught(work).boxed()));
    let next = async |(mut told, task): (mpsc::Receiver<T>, AbortOnDropHandle<Result<(), Carried>>)| {
        if let Some(next) = told.recv().await {
            return Some((next, (told, task)));
        }
        if let Ok(ended) = task.await {
            panics::resumed(ended);
        }
        None
    };
    futures::stream::unfold((told, task), next).boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lasting_work_begins_anew_after_a_panic_at_growing_waits_until_it_ends() {
        let begun = Arc::new(Mutex::new(Vec::new()));
        let begins = begun.clone();
        let work = lasting("test", move || {
            let mut begins = begins.lock().unwrap();
            begins.push(Instant::now());
            let times = begins.len();
            async move {
                match times {
                    9 => tokio::time::sleep(Duration::from_secs(61)).await,
                    11 => return,
                    _ => {}
                }
                panic!("in the work");
            }
        });
        work.await;
        let begun = begun.lock().unwrap();
        let waits: Vec<u64> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 61 + 1, 2]);
    }

    #[tokio::test]
    async fn a_panic_of_work_that_tells_goes_on_in_the_reader_after_what_was_told() {
        let (tell, told) = mpsc::channel(1);
        let work = async move {
            tell.send(1).await.unwrap();
            panics::note("there".to_owned());
            panic!("in the work");
        };
        let mut told = told_by(&Handle::current(), work, told);
        assert_eq!(told.next().await, Some(1));
        let panic = panics::caught(told.next()).await.unwrap_err();
        assert_eq!(panic.to_string(), "in the work at there");
    }
}
