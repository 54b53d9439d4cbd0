//! The streams of a connection: each is a task of its own, which ends when its time is over or its client takes nothing.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::connection::Bounds;
use crate::moving::StallTimeout;

/// The most bytes of an answer that are handed over at once.
const PIECE_BYTES: usize = 16 * 1024;

tokio::task_local! {
    /// The progress of the stream whose task this is.
    pub static PROGRESS: Arc<Progress>;
}

/// Counts the streams that are open.
#[derive(Debug, Default)]
pub struct OpenStreams {
    count: AtomicUsize,
    changed: Notify,
}

/// One that is open.
struct OpenStream(Arc<OpenStreams>);

impl OpenStreams {
    fn begin(self: &Arc<Self>) -> OpenStream {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        OpenStream(self.clone())
    }

    /// Ends when none has been open for so long. One task waits at a time.
    pub async fn idle(&self, within: Duration) {
        loop {
            while self.count.load(Ordering::Relaxed) > 0 {
                self.changed.notified().await;
            }
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep(within) => return,
            }
        }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

/// How far a stream's answer is.
#[derive(Debug)]
pub struct Progress {
    /// How long the client may take nothing.
    pub patience: StallTimeout,
    /// Since when a part of the answer waits for the client to have room for it.
    waits: Mutex<Option<Instant>>,
}

impl Progress {
    fn new(patience: StallTimeout) -> Arc<Self> {
        Arc::new(Self { patience, waits: Mutex::new(None) })
    }

    fn set(&self, waits: Option<Instant>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    fn waits(&self) -> Option<Instant> {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the streams of a connection as tasks.
#[derive(Clone)]
pub struct StreamTasks {
    /// The streams that keep the connection open.
    pub open: Arc<OpenStreams>,
    /// Cancelled when the connection takes no more requests: those that come then do not keep it open.
    pub leaving: CancellationToken,
    /// Cancelled when the connection has ended: its streams end with it.
    pub ended: CancellationToken,
    /// The bounds of a stream.
    pub bounds: Bounds,
}

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let open = (!self.leaving.is_cancelled()).then(|| self.open.begin());
        let bounds = self.bounds;
        let progress = Progress::new(StallTimeout::new(bounds.write_deadline, bounds.stream_deadline));
        let work = bounded(stream, progress.clone(), bounds.request_deadline);
        let work = PROGRESS.scope(progress, work);
        drop(tokio::spawn(self.ended.clone().run_until_cancelled_owned(async move {
            let _open = open;
            work.await;
        })));
    }
}

/// Lasts as long as the stream; it is dropped, and so reset, when the request has taken too long or the client has taken
/// nothing of the answer for too long.
async fn bounded(stream: impl Future<Output = ()>, progress: Arc<Progress>, within: Duration) {
    let mut stream = pin!(stream);
    let mut stalled: Option<(Instant, Pin<Box<Sleep>>)> = None;
    let moving = poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let Some(since) = progress.waits() else {
            stalled = None;
            return Poll::Pending;
        };
        if stalled.as_ref().is_none_or(|(of, _)| *of != since) {
            stalled = Some((since, Box::pin(sleep_until(since + progress.patience.now()))));
        }
        if let Some((_, end)) = &mut stalled {
            ready!(end.as_mut().poll(cx));
        }
        tracing::debug!("A client takes nothing of an answer: its stream ends");
        Poll::Ready(())
    });
    if tokio::time::timeout(within, moving).await.is_err() {
        tracing::debug!("A request has taken too long: its stream ends");
    }
}

/// The body of an answer, in pieces that tell whether the client takes them: after a piece the next one is asked for when the client
/// has room for it.
pub struct StreamBody {
    body: Body,
    progress: Arc<Progress>,
    /// What has been read and not handed over.
    rest: Bytes,
}

impl StreamBody {
    pub fn new(body: Body, progress: Arc<Progress>) -> Self {
        Self { body, progress, rest: Bytes::new() }
    }
}

impl hyper::body::Body for StreamBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.progress.set(None);
        if this.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        this.progress.set(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece(&mut this.rest)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let of_body = self.body.size_hint();
        let mut all = SizeHint::new();
        if let Some(upper) = of_body.upper() {
            all.set_upper(upper.saturating_add(rest));
        }
        all.set_lower(of_body.lower().saturating_add(rest));
        all
    }
}

/// Takes the next piece. The last byte goes alone: a piece is taken over when the client has room for its first byte, so the end of an
/// answer is reached only when the client had room for all that came before, and no more than that byte can be left behind.
fn piece(rest: &mut Bytes) -> Bytes {
    match rest.len() {
        0 | 1 => std::mem::take(rest),
        length => rest.split_to(PIECE_BYTES.min(length - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_of_an_answer_goes_alone() {
        let lengths = |bytes: usize| {
            let mut rest = Bytes::from(vec![b'x'; bytes]);
            let mut lengths = vec![piece(&mut rest).len()];
            while !rest.is_empty() {
                lengths.push(piece(&mut rest).len());
            }
            lengths
        };
        assert_eq!(lengths(0), [0]);
        assert_eq!(lengths(1), [1]);
        assert_eq!(lengths(2), [1, 1]);
        assert_eq!(lengths(PIECE_BYTES), [PIECE_BYTES - 1, 1]);
        assert_eq!(lengths(2 * PIECE_BYTES + 5), [PIECE_BYTES, PIECE_BYTES, 4, 1]);
    }
}
