//! A connection of a listener, its place, and the listener's bounds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bridge_tls::serving::Chain;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::moving::StallTimeout;
use super::places::PeerUser;

/// The longest silence on a stream.
const STREAM_DEADLINE: Duration = Duration::from_secs(4 * 60 * 60);
/// The longest time of a request (row 21.1).
const REQUEST_DEADLINE: Duration = Duration::from_secs(4 * 60 * 60);
/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most connections at once, upgraded ones included; further ones wait in the kernel's backlog. A new
    /// connection replaces one on which no request was allowed yet, or one beyond the half of the places that a user or
    /// a peer may have.
    pub connections_max: usize,
    /// The time for a client to send the head of a request, counted from the start of the connection or the end of the
    /// last answer. A connection of HTTP/2 ends after it unless a request is under way.
    pub head_deadline: Duration,
    /// The time for a client to take some bytes of its answer.
    pub write_deadline: Duration,
    /// The longest silence on a stream.
    pub stream_deadline: Duration,
    /// The longest time of a request, from its head to the end of its answer: what is not answered by then is cut off. A stream
    /// into a container is no answer, and lasts on, as upstream.
    pub request_deadline: Duration,
}

impl Bounds {
    /// The bounds of a listener for people and probes.
    pub const PLAIN: Self = Self {
        connections_max: 256,
        head_deadline: Duration::from_secs(10),
        write_deadline: Duration::from_secs(30),
        stream_deadline: STREAM_DEADLINE,
        request_deadline: REQUEST_DEADLINE,
    };
    /// The bounds of the listener for the API server, whose connections may be idle for a while (row 21.1).
    pub const SECURED: Self =
        Self { connections_max: 1024, head_deadline: Duration::from_secs(90), ..Self::PLAIN };
}

/// A connection's place, held as long as bytes pass over the connection, also after it was upgraded.
#[derive(Debug)]
pub struct Place {
    /// The record of the connection's user.
    pub card: Arc<PeerUser>,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// The place of this user's connection.
    pub(crate) fn new(card: Arc<PeerUser>, permit: OwnedSemaphorePermit) -> Self {
        Self { card, _permit: permit }
    }
}

/// A connection, as each of its requests sees it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's certificates.
    pub chain: Chain,
    /// The client's address.
    pub peer: Option<SocketAddr>,
    /// The connection's place among those of the listener.
    pub place: Arc<Place>,
    /// How long the server waits for the client to read.
    pub patience: StallTimeout,
    /// Cancelled when the connection's place went to another connection, or the listener has ended: every stream over
    /// the connection ends with it.
    pub ended: CancellationToken,
}

#[cfg(any(test, feature = "fake"))]
impl Connection {
    /// The only connection of its listener, from an unknown address.
    ///
    /// # Panics
    /// Never: the place is free.
    #[must_use]
    pub fn of_a_test(bounds: Bounds) -> Self {
        let permit = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned();
        Self {
            chain: Arc::from([]),
            peer: None,
            place: Arc::new(Place::new(Arc::default(), permit.expect("the place is free"))),
            patience: StallTimeout::new(bounds.write_deadline, bounds.stream_deadline),
            ended: CancellationToken::new(),
        }
    }
}
