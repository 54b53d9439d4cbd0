//! The longest time of a request on a connection that has one at a time.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// When the request on a connection is to have ended.
#[derive(Debug)]
pub struct RequestLimit {
    within: Duration,
    until: Mutex<Option<Instant>>,
    changed: Notify,
}

impl RequestLimit {
    /// No request yet; each may take this long.
    pub fn new(within: Duration) -> Arc<Self> {
        Arc::new(Self { within, until: Mutex::new(None), changed: Notify::new() })
    }

    fn until(&self) -> MutexGuard<'_, Option<Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request begins; it lasts as long as the value.
    pub fn begin(self: &Arc<Self>) -> RunningRequest {
        let until = Instant::now() + self.within;
        *self.until() = Some(until);
        self.changed.notify_one();
        RunningRequest { limit: self.clone(), until }
    }

    /// Ends when a request has taken too long.
    pub async fn expired(&self) {
        loop {
            let until = *self.until();
            let Some(until) = until else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = sleep_until(until) => return,
            }
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub struct RunningRequest {
    limit: Arc<RequestLimit>,
    until: Instant,
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let mut until = self.limit.until();
        // The next request may have begun.
        if *until == Some(self.until) {
            *until = None;
            self.limit.changed.notify_one();
        }
    }
}

/// The body of an answer, to the end of which its request lasts.
pub struct LastingBody {
    body: Body,
    _running: RunningRequest,
}

impl LastingBody {
    pub fn new(body: Body, running: RunningRequest) -> Self {
        Self { body, _running: running }
    }
}

impl hyper::body::Body for LastingBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
