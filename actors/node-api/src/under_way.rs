//! Answers under way over HTTP/2: a connection has many of them, so that places for connections bound neither their number nor what
//! they hold. Clients share both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::Version;
use axum::middleware::Next;
use axum::response::Response;
use bridge_io::SharedPlaces;
use http_body_util::BodyExt;

use crate::access::client;
use crate::places::too_many;

/// At most so many answers are under way at once, half of them to one client.
const ANSWERS_MAX: usize = 2048;
/// The most bytes that answers hold whose whole text was made, and of those to one client; a client's only one may be larger.
const BYTES_MAX: u64 = 128 << 20;
const CLIENT_BYTES_MAX: u64 = 16 << 20;

/// The answers that are under way. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct UnderWay {
    answers: SharedPlaces,
    bytes: Arc<BytesByClient>,
}

/// What the texts of answers hold, by client.
#[derive(Debug, Default)]
struct BytesByClient(Mutex<BTreeMap<Arc<str>, u64>>);

/// The bytes of an answer's text, for as long as it is sent.
#[derive(Debug)]
struct HeldBytes {
    all: Arc<BytesByClient>,
    client: Arc<str>,
    bytes: u64,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let mut all = self.all.locked();
        if let Some(of_client) = all.get_mut(&self.client) {
            *of_client = of_client.saturating_sub(self.bytes);
            if *of_client == 0 {
                all.remove(&self.client);
            }
        }
    }
}

impl BytesByClient {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for UnderWay {
    fn default() -> Self {
        Self::new(ANSWERS_MAX)
    }
}

impl UnderWay {
    /// Places for so many answers.
    fn new(answers: usize) -> Self {
        Self { answers: SharedPlaces::new(answers), bytes: Arc::default() }
    }

    /// Counts the bytes of an answer to this client; `None` if they are too many.
    fn hold(&self, client: &str, bytes: u64) -> Option<HeldBytes> {
        let mut all = self.bytes.locked();
        let of_client = all.get(client).copied().unwrap_or(0);
        let is_much = of_client.saturating_add(bytes) > CLIENT_BYTES_MAX
            || all.values().sum::<u64>().saturating_add(bytes) > BYTES_MAX;
        if of_client > 0 && is_much {
            return None;
        }
        let client: Arc<str> = Arc::from(client);
        if bytes > 0 {
            all.insert(client.clone(), of_client.saturating_add(bytes));
        }
        drop(all);
        Some(HeldBytes { all: self.bytes.clone(), client, bytes })
    }
}

/// Passes a request on that came over HTTP/2, if its client has room for one more answer; it counts to the end of its answer. Requests
/// over HTTP/1.1 have a connection each.
pub(crate) async fn bounded(State(under_way): State<UnderWay>, request: Request, next: Next) -> Response {
    if request.version() != Version::HTTP_2 {
        return next.run(request).await;
    }
    let client = client(request.extensions());
    let Some(place) = under_way.answers.try_place(&client) else {
        return too_many("too many answers are under way over HTTP/2\n");
    };
    let answer = next.run(request).await;
    let Some(held) = under_way.hold(&client, answer.body().size_hint().lower()) else {
        return too_many("the answers that are under way over HTTP/2 are too large\n");
    };
    answer.map(|body| {
        Body::new(body.map_err(move |error| {
            let _last = (&place, &held);
            error
        }))
    })
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use bridge_serve::{Bounds, Connection};
    use tower::ServiceExt;

    use super::*;

    struct Served(Router);

    impl Served {
        fn new(answers: usize) -> Self {
            let large = || async { vec![b'x'; 10 << 20] };
            let routes = Router::new().route("/", get(|| async { "ok" })).route("/large", get(large));
            Self(routes.layer(from_fn_with_state(UnderWay::new(answers), bounded)))
        }

        async fn ask(&self, version: Version, address: &str, path: &str) -> Response {
            let peer = Some(format!("{address}:5").parse().expect("an address"));
            let connection = Connection { peer, ..Connection::of_a_test(Bounds::SECURED) };
            let request = Request::get(path).version(version).extension(connection);
            let request = request.body(Body::empty()).expect("a request");
            self.0.clone().oneshot(request).await.expect("routes do not fail")
        }
    }

    #[tokio::test]
    async fn a_client_with_many_answers_leaves_half_to_others() {
        let served = Served::new(8);
        let mut slow = Vec::new();
        for _ in 0..4 {
            slow.push(served.ask(Version::HTTP_2, "10.0.0.1", "/").await);
        }
        assert!(slow.iter().all(|answer| answer.status() == StatusCode::OK));
        let status = async |version, address| served.ask(version, address, "/").await.status();
        assert_eq!(status(Version::HTTP_2, "10.0.0.1").await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            status(Version::HTTP_11, "10.0.0.1").await,
            StatusCode::OK,
            "it has a connection of its own"
        );
        assert_eq!(status(Version::HTTP_2, "10.0.0.2").await, StatusCode::OK);
        drop(slow.pop());
        assert_eq!(status(Version::HTTP_2, "10.0.0.1").await, StatusCode::OK);
        assert_eq!(status(Version::HTTP_2, "10.0.0.1").await, StatusCode::OK, "what was answered is over");
    }

    #[tokio::test]
    async fn what_answers_to_a_client_hold_is_bounded_until_they_are_sent() {
        let served = Served::new(100);
        let ask = async |address| served.ask(Version::HTTP_2, address, "/large").await;
        let first = ask("10.0.0.1").await;
        assert_eq!((first.status(), first.body().size_hint().exact()), (StatusCode::OK, Some(10 << 20)));
        assert_eq!(ask("10.0.0.1").await.status(), StatusCode::TOO_MANY_REQUESTS);
        let other = ask("10.0.0.2").await;
        assert_eq!(other.status(), StatusCode::OK);
        let sent = axum::body::to_bytes(first.into_body(), usize::MAX).await.expect("it is whole");
        assert_eq!(sent.len(), 10 << 20);
        assert_eq!(ask("10.0.0.1").await.status(), StatusCode::OK);
    }
}
