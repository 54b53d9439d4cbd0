//! Bodies that a task of their own sends.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use bridge_io::Io;
use bridge_pace::panics;
use tokio::sync::mpsc;

/// Where the chunks of a body go. Sending fails once the body is dropped.
pub(crate) type Chunks = mpsc::Sender<io::Result<Bytes>>;

/// A body that `work` sends, for so long at most; so many chunks wait for a slow reader. After a panic the body ends with an error:
/// it is not whole.
pub(crate) fn body_of<W>(io: &Io, chunks_max: usize, within: Duration, work: impl FnOnce(Chunks) -> W) -> Body
where
    W: Future<Output = ()> + Send + 'static,
{
    let (chunks, body) = mpsc::channel(chunks_max);
    let work = tokio::time::timeout(within, work(chunks.clone()));
    drop(io.spawn(async move {
        if let Err(panic) = panics::caught(work).await {
            tracing::error!(%panic, "An answer ended before its end");
            // Its reader may have gone.
            let _ = chunks.send(Err(io::Error::other("the answer ended before its end"))).await;
        }
    }));
    Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(body))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_body_after_a_panic_is_not_taken_for_whole() {
        let io = Io::current();
        let whole = body_of(&io, 1, LONG, |chunks| async move {
            for text in ["a", "b"] {
                chunks.send(Ok(Bytes::from(text))).await.expect("the body is read");
            }
        });
        assert_eq!(&to_bytes(whole, 10).await.expect("it is whole")[..], b"ab");
        let cut = body_of(&io, 1, LONG, |chunks| async move {
            chunks.send(Ok(Bytes::from("a"))).await.expect("the body is read");
            panic!("for the test");
        });
        assert!(to_bytes(cut, 10).await.is_err());
    }
}
