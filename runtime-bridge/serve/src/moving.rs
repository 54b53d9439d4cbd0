//! Streams that must make progress: a client that does not read is not waited for without end.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// How long the other side may be silent once one side has ended: such a connection only has to pass on what is under
/// way.
const AFTER_END: Duration = Duration::from_secs(30);

/// How long a client may leave its answer unread: longer for a stream, which people may pause.
#[derive(Clone, Debug)]
pub struct StallTimeout {
    answers: Duration,
    streams: Duration,
    is_stream: Arc<AtomicBool>,
}

impl StallTimeout {
    /// A time for answers, and a time for streams.
    pub fn new(answers: Duration, streams: Duration) -> Self {
        Self { answers, streams, is_stream: Arc::default() }
    }

    /// Sets whether the answer from now on is a stream.
    pub fn streaming(&self, is_stream: bool) {
        self.is_stream.store(is_stream, Ordering::Relaxed);
    }

    /// The time for streams.
    pub fn streams(&self) -> Duration {
        self.streams
    }

    /// The time for the present answer.
    pub(crate) fn now(&self) -> Duration {
        if self.is_stream.load(Ordering::Relaxed) { self.streams } else { self.answers }
    }
}

/// A stream on which a write fails when no byte of it is taken for too long.
pub struct StallGuard<S> {
    stream: S,
    patience: StallTimeout,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub fn new(stream: S, patience: StallTimeout) -> Self {
        Self { stream, patience, stalled: None }
    }
}

impl<S: Unpin> StallGuard<S> {
    fn moved<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.stream), cx) {
            self.stalled = None;
            return Poll::Ready(done);
        }
        let patience = &self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience.now())));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().moved(cx, |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().moved(cx, |stream, cx| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().moved(cx, |stream, cx| stream.poll_shutdown(cx))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().moved(cx, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// When bytes passed last, and whether one side has ended.
struct Heard {
    begun: Instant,
    last_ms: AtomicU64,
    ended: AtomicBool,
    end: Notify,
}

impl Heard {
    fn now(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_ms.store(ms, Ordering::Relaxed);
    }

    fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_ms.load(Ordering::Relaxed))
    }

    fn ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.end.notify_one();
    }

    /// Ends when no byte has passed for `idle`, or for the shorter time after one side has ended.
    async fn silence(&self, idle: Duration) {
        loop {
            let ended = self.ended.load(Ordering::Relaxed);
            let end = self.last() + if ended { idle.min(AFTER_END) } else { idle };
            if end <= Instant::now() {
                return;
            }
            tokio::select! {
                biased;
                () = sleep_until(end) => {}
                () = self.end.notified() => {}
            }
        }
    }
}

/// A stream that records when bytes are read from it or written to it.
pub struct Noted<S> {
    stream: S,
    heard: Arc<Heard>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let done = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        self.heard.now();
        if buf.filled().len() == before {
            self.heard.ended();
        }
        Poll::Ready(done)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let done = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.heard.now();
        Poll::Ready(done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Lets both sides talk until that ends, or until no byte has passed for `idle`; that time is shorter once one side has
/// ended.
pub async fn watched<A, B, F>(
    one: A,
    other: B,
    idle: Duration,
    talk: impl FnOnce(Noted<A>, Noted<B>) -> F,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    let heard = Arc::new(Heard {
        begun: Instant::now(),
        last_ms: AtomicU64::new(0),
        ended: AtomicBool::new(false),
        end: Notify::new(),
    });
    let one = Noted { stream: one, heard: heard.clone() };
    let other = Noted { stream: other, heard: heard.clone() };
    let talk = talk(one, other);
    tokio::select! {
        biased;
        done = talk => done,
        () = heard.silence(idle) => Err(io::Error::new(io::ErrorKind::TimedOut, "nothing was said for too long")),
    }
}

/// Passes bytes both ways until both sides have ended, or until no byte has passed for `idle`; that time is shorter
/// once one side has ended.
pub async fn joined<A, B>(one: A, other: B, idle: Duration) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    watched(one, other, idle, |mut one, mut other| async move {
        copy_bidirectional(&mut one, &mut other).await.map(|_| ())
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_does_not_move_fails() {
        let (ours, mut theirs) = duplex(4);
        let patience = StallTimeout::new(SECOND, 60 * SECOND);
        let mut ours = StallGuard::new(ours, patience.clone());
        let begun = Instant::now();
        let reading = async {
            let mut bytes = [0; 4];
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(900)).await;
                theirs.read_exact(&mut bytes).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[7; 100]), reading);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), Duration::from_millis(3700), "as long as something moves it goes on");
        patience.streaming(true);
        let mut ours = StallGuard::new(duplex(4).0, patience);
        let (far, mut near) = duplex(4);
        ours.stream = far;
        let begun = Instant::now();
        assert!(ours.write_all(&[7; 100]).await.is_err());
        assert_eq!(begun.elapsed(), 60 * SECOND);
        assert_eq!(near.read(&mut [0; 9]).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_join_ends_when_nothing_is_said_by_either() {
        let (client, ours) = duplex(64);
        let (theirs, runtime) = duplex(64);
        let begun = Instant::now();
        let talk = async {
            let (mut client, mut runtime) = (client, runtime);
            for _ in 0..5 {
                tokio::time::sleep(9 * SECOND).await;
                client.write_all(b"x").await.unwrap();
                assert_eq!(runtime.read_u8().await.unwrap(), b'x');
                tokio::time::sleep(9 * SECOND).await;
                runtime.write_all(b"y").await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'y');
            }
            (client, runtime)
        };
        let (ended, _) = tokio::join!(joined(ours, theirs, 10 * SECOND), talk);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), 100 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_ended_is_sent_what_still_flows() {
        let (mut client, ours) = duplex(64);
        let (theirs, mut runtime) = duplex(64);
        let begun = Instant::now();
        let talk = async {
            client.write_all(b"in").await.unwrap();
            client.shutdown().await.unwrap();
            let mut input = Vec::new();
            runtime.read_to_end(&mut input).await.unwrap();
            assert_eq!(input, b"in", "and the runtime is told of the end");
            for _ in 0..5 {
                tokio::time::sleep(29 * SECOND).await;
                runtime.write_all(b"y").await.unwrap();
                assert_eq!(client.read_u8().await.unwrap(), b'y');
            }
            // From here on the stream is as silent as if it hung.
        };
        let (ended, ()) = tokio::join!(joined(ours, theirs, 14_400 * SECOND), talk);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), 5 * 29 * SECOND + AFTER_END);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_keeps_no_place_after_the_runtimes_end() {
        let (mut client, ours) = duplex(64);
        let (theirs, mut runtime) = duplex(64);
        let begun = Instant::now();
        let talk = async {
            tokio::time::sleep(60 * SECOND).await;
            runtime.write_all(b"bye").await.unwrap();
            drop(runtime);
            let mut output = Vec::new();
            client.read_to_end(&mut output).await.unwrap();
            assert_eq!((&*output, begun.elapsed()), (&b"bye"[..], 60 * SECOND), "the end comes at once");
        };
        let (ended, ()) = tokio::join!(joined(ours, theirs, 14_400 * SECOND), talk);
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed(), 60 * SECOND + AFTER_END);
    }
}
