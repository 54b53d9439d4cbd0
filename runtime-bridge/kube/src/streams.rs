//! A connection to the API server takes a bounded number of calls and watches; when all are full, another is opened.
//!
//! A server lets a connection have a bounded number of streams, and a call beyond them waits until one of them ends.
//! A watch is such a stream for minutes, so that watches alone could hold up every call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// As many streams as kube-apiserver lets a connection have.
const STREAMS_MAX: usize = 100;

/// The place of a call or watch on a connection, given up on drop.
pub(super) type Place = Arc<()>;

/// The clients of one server and one identity. Each has a connection of its own, which is closed when it has been idle.
#[derive(Debug)]
pub(super) struct Clients<C>(Vec<(C, Place)>);

impl<C: Clone> Clients<C> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// The first client with a place; makes one when all are full.
    pub fn place(&mut self, make: impl FnOnce() -> C) -> (C, Place) {
        // One more holds a place: this list.
        let free = self.0.iter().find(|(_, places)| Arc::strong_count(places) <= STREAMS_MAX);
        if let Some((client, places)) = free {
            return (client.clone(), places.clone());
        }
        let made = (make(), Place::default());
        self.0.push(made.clone());
        made
    }
}

/// The body of an answer, which holds a place on its connection until it has been read or is given up.
#[derive(Debug)]
pub(super) struct Streamed {
    body: Incoming,
    _place: Place,
}

impl Streamed {
    pub fn new(body: Incoming, place: Place) -> Self {
        Self { body, _place: place }
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_client_is_followed_by_another_and_used_again_when_it_has_room() {
        let mut clients = Clients::new();
        let mut made = 0..;
        let mut place = |clients: &mut Clients<usize>| clients.place(|| made.next().expect("a number"));
        let mut places: Vec<_> = (0..=2 * STREAMS_MAX).map(|_| place(&mut clients)).collect();
        let used = |client: usize| (0..=2 * STREAMS_MAX).filter(|n| n / STREAMS_MAX == client).count();
        for client in 0..3 {
            assert_eq!(places.iter().filter(|(one, _)| *one == client).count(), used(client));
        }
        drop(places.remove(STREAMS_MAX));
        assert_eq!(place(&mut clients).0, 1, "the place that was given up");
        drop(places);
        assert_eq!(place(&mut clients).0, 0);
    }
}
