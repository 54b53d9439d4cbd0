//! The bodies of answers that are being sent: each exists once however many answers send it. Clients that take their answers slowly
//! hold few of them: when too many different ones are being sent, the client that holds most gives up its oldest, and those of its
//! answers that still sent it are cut off. Answers to other clients go on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bridge_metrics::Page;
use bridge_serve::{Connection, Peer};
use tokio_stream::StreamExt;

/// The most different bodies that are being sent, and the most bytes of them; two may be larger.
const BODIES_MAX: usize = 16;
const BYTES_MAX: usize = 64 << 20;
const BODIES_MIN: usize = 2;
/// Bytes of a body that an answer has in hand at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The client that a request comes from; requests without an address are one client's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client(Option<Peer>);

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let address = parts.extensions.get::<Connection>().and_then(|connection| connection.peer);
        Ok(Self(address.map(|address| address.ip().into())))
    }
}

/// What can be sent.
pub(crate) trait Content: Send + Sync + 'static {
    fn bytes(&self) -> &[u8];
}

impl Content for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Content for Page {
    fn bytes(&self) -> &[u8] {
        &self.body
    }
}

/// A body that some answers to one client send; `None` once the client had to give it up.
struct Share {
    client: Client,
    content: Mutex<Option<Arc<dyn Content>>>,
}

impl Share {
    fn content(&self) -> MutexGuard<'_, Option<Arc<dyn Content>>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of a chunk; `None` once the body was given up.
    fn chunk(&self, at: usize) -> Option<Bytes> {
        let content = self.content().clone()?;
        let bytes = content.bytes();
        let end = bytes.len().min(at + CHUNK_BYTES);
        // A copy, since the caller holds it for as long as it likes.
        bytes.get(at..end).map(Bytes::copy_from_slice)
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Share").field(&self.client).field(&self.content().is_some()).finish()
    }
}

/// A share that has its body.
struct Held {
    share: Arc<Share>,
    content: Arc<dyn Content>,
}

impl Held {
    fn of(share: Arc<Share>) -> Option<Self> {
        let content = share.content().clone()?;
        Some(Self { share, content })
    }
}

/// Tells bodies apart.
fn place(content: &Arc<dyn Content>) -> usize {
    Arc::as_ptr(content).cast::<()>().addr()
}

/// The shares of the bodies that are being sent, the oldest first: of each body one for each client that takes it.
#[derive(Debug, Default)]
pub(crate) struct Sending(Mutex<Vec<Weak<Share>>>);

impl Sending {
    /// An answer to this client with this body.
    pub(crate) fn answer(&self, client: Client, content: Arc<dyn Content>) -> Response {
        let length = content.bytes().len();
        let share = self.share(client, content);
        let chunks = tokio_stream::iter((0..length).step_by(CHUNK_BYTES)).map(move |at| {
            share.chunk(at).ok_or_else(|| io::Error::other("the answer was taken too slowly"))
        });
        ([(header::CONTENT_LENGTH, length)], Body::from_stream(chunks)).into_response()
    }

    fn share(&self, client: Client, content: Arc<dyn Content>) -> Arc<Share> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held: Vec<Held> = all.iter().filter_map(Weak::upgrade).filter_map(Held::of).collect();
        let content = being_sent(&held, &content).unwrap_or(content);
        let its_own = |held: &&Held| held.share.client == client && place(&held.content) == place(&content);
        if let Some(held) = held.iter().find(its_own) {
            return held.share.clone();
        }
        let share = Arc::new(Share { client, content: Mutex::new(Some(content.clone())) });
        held.push(Held { share: share.clone(), content });
        while let Some(at) = gives_up(&held) {
            *held.remove(at).share.content() = None;
        }
        *all = held.iter().map(|held| Arc::downgrade(&held.share)).collect();
        share
    }
}

/// The body among those that are being sent that is this one, or says the same.
fn being_sent(held: &[Held], content: &Arc<dyn Content>) -> Option<Arc<dyn Content>> {
    let bodies: BTreeMap<usize, &Arc<dyn Content>> =
        held.iter().map(|held| (place(&held.content), &held.content)).collect();
    let it = bodies.get(&place(content));
    it.or_else(|| bodies.values().find(|body| body.bytes() == content.bytes())).copied().cloned()
}

/// The share that is given up; `None` while the bodies are within their bounds. It is the oldest one of the client with the most
/// bytes, or bodies where these are too many; a client's only body goes when no client has another, the newest of all never.
fn gives_up(held: &[Held]) -> Option<usize> {
    let bodies: BTreeMap<usize, usize> =
        held.iter().map(|held| (place(&held.content), held.content.bytes().len())).collect();
    let too_large = bodies.values().sum::<usize>() > BYTES_MAX;
    if bodies.len() <= BODIES_MIN || !(too_large || bodies.len() > BODIES_MAX) {
        return None;
    }
    let mut clients: BTreeMap<Client, (usize, usize)> = BTreeMap::new();
    for held in held {
        let (count, bytes) = clients.entry(held.share.client).or_default();
        *count += 1;
        *bytes += held.content.bytes().len();
    }
    let (_, older) = held.split_last()?;
    let rank = |(at, held): &(usize, &Held)| {
        let (count, bytes) = clients.get(&held.share.client).copied().unwrap_or_default();
        (count > 1, if too_large { bytes } else { count }, Reverse(*at))
    };
    older.iter().enumerate().max_by_key(rank).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::body::to_bytes;

    use super::*;

    /// Any client.
    const ONE: Client = Client(None);

    fn client(address: &str) -> Client {
        Client(Some(address.parse::<IpAddr>().unwrap().into()))
    }

    fn body(bytes: usize) -> Arc<Vec<u8>> {
        Arc::new(vec![b'x'; bytes])
    }

    async fn taken(answer: Response) -> Option<usize> {
        to_bytes(answer.into_body(), usize::MAX).await.ok().map(|bytes| bytes.len())
    }

    async fn all_taken(answers: impl IntoIterator<Item = Response>) -> Vec<Option<usize>> {
        let mut sizes = Vec::new();
        for answer in answers {
            sizes.push(taken(answer).await);
        }
        sizes
    }

    #[tokio::test]
    async fn a_body_is_sent_whole_and_slow_callers_hold_few_of_them() {
        let sending = Sending::default();
        let one = body(3 * CHUNK_BYTES + 5);
        let answers = [sending.answer(ONE, one.clone()), sending.answer(ONE, one.clone())];
        assert_eq!(answers[0].headers()[header::CONTENT_LENGTH], (3 * CHUNK_BYTES + 5).to_string());
        assert_eq!(sending.0.lock().unwrap().len(), 1, "both send the same");
        for answer in answers {
            assert_eq!(taken(answer).await, Some(3 * CHUNK_BYTES + 5));
        }
        assert_eq!(taken(sending.answer(ONE, body(0))).await, Some(0));
        assert_eq!(Arc::strong_count(&one), 1, "it is gone with its answers");
        let same = [sending.answer(ONE, body(10)), sending.answer(ONE, body(10))];
        assert_eq!(sending.0.lock().unwrap().len(), 1, "what says the same exists once");
        drop(same);

        let slow: Vec<Response> = (0..BODIES_MAX + 4).map(|n| sending.answer(ONE, body(10 + n))).collect();
        let sizes = all_taken(slow).await;
        assert_eq!(sizes.iter().filter(|size| size.is_none()).count(), 4);
        assert!(sizes[..4].iter().all(Option::is_none), "the oldest were given up: {sizes:?}");
        let large = [0, 1, 2].map(|more| sending.answer(ONE, body(BYTES_MAX + more)));
        assert_eq!(
            all_taken(large).await,
            [None, Some(BYTES_MAX + 1), Some(BYTES_MAX + 2)],
            "two may be as large as they are"
        );
    }

    #[tokio::test]
    async fn a_client_with_many_slow_answers_ends_those_to_no_other_client() {
        let sending = Sending::default();
        let (quiet, greedy) = (client("10.0.0.1"), client("10.0.0.2"));
        let mut quiet_ones = vec![sending.answer(quiet, body(5))];
        let mut greedy_ones: Vec<Response> =
            (0..4 * BODIES_MAX).map(|n| sending.answer(greedy, body(10 + n))).collect();
        quiet_ones.push(sending.answer(quiet, body(6)));
        greedy_ones.extend((0..4).map(|n| sending.answer(greedy, body(1000 + n))));
        assert!(sending.0.lock().unwrap().len() <= BODIES_MAX, "what was given up is not kept in mind");
        assert_eq!(all_taken(quiet_ones).await, [Some(5), Some(6)]);
        let sizes = all_taken(greedy_ones).await;
        assert_eq!(sizes.iter().flatten().count(), BODIES_MAX - 2, "{sizes:?}");

        // A single large body of one client outlasts many of another, whatever their bytes.
        let large = sending.answer(quiet, body(BYTES_MAX));
        let small: Vec<Response> = (0..4).map(|n| sending.answer(greedy, body(10 + n))).collect();
        assert_eq!(taken(large).await, Some(BYTES_MAX));
        assert_eq!(all_taken(small).await, [None, None, None, Some(13)]);
    }

    #[tokio::test]
    async fn a_body_that_one_client_gave_up_goes_on_to_another() {
        let sending = Sending::default();
        let (quiet, greedy) = (client("10.0.0.1"), client("10.0.0.2"));
        let both = body(7);
        let (cut, whole) = (sending.answer(greedy, both.clone()), sending.answer(quiet, body(7)));
        assert_eq!(Arc::strong_count(&both), 3, "what says the same exists once for both");
        let more: Vec<Response> = (0..BODIES_MAX).map(|n| sending.answer(greedy, body(10 + n))).collect();
        assert_eq!((taken(cut).await, taken(whole).await), (None, Some(7)));
        assert_eq!(Arc::strong_count(&both), 1);
        drop(more);
    }

    #[tokio::test]
    async fn clients_with_one_body_each_lose_the_oldest() {
        let sending = Sending::default();
        let answers: Vec<Response> =
            (0..=BODIES_MAX).map(|n| sending.answer(client(&format!("10.0.0.{n}")), body(10 + n))).collect();
        let sizes = all_taken(answers).await;
        assert_eq!(sizes.iter().filter(|size| size.is_none()).count(), 1);
        assert_eq!(sizes[0], None, "{sizes:?}");
    }
}
