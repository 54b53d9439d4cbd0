//! Places for what reaches into containers: readers of logs, and commands. Clients share them, and of each client the namespaces of
//! the pods: the API server is one client for all its callers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bridge_io::{SharedPlace, SharedPlaces};
use tokio::sync::oneshot;

use crate::sending::Chunks;

/// At most so many logs are read at once: each has a file, a block of it, and a task.
const LOGS_MAX: usize = 1024;
/// At most so many commands of `/run` are run at once: each holds what its command has written.
const COMMANDS_MAX: usize = 32;
/// Work waits so long for its place. The reader of a log that is cut off has as long to take that it was.
const WITHIN: Duration = Duration::from_secs(5);
/// After so many seconds a request that found no place may be sent again.
const RETRY_SECONDS: &str = "5";

/// What a place in the half of a client counts against.
#[derive(Debug)]
struct OfClient {
    _place: SharedPlace,
    /// Set for a place of the reserve: it is the only one there of its namespace.
    first: Option<SharedPlace>,
}

/// A place among those of the client, and among those of all.
#[derive(Debug)]
struct Share {
    of_client: OfClient,
    _of_all: SharedPlace,
}

/// A place that is held.
#[derive(Debug)]
struct Held {
    client: Arc<str>,
    namespace: Arc<str>,
    /// Dropped when the place is given up; `None` for what is never cut off.
    follower: Option<oneshot::Sender<()>>,
    share: Share,
    _of_namespace: SharedPlace,
}

/// The places that are held, the oldest first.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: BTreeMap<u64, Held>,
}

impl Table {
    /// How many places this client holds at the pods of this namespace.
    fn count(&self, client: &str, namespace: &str) -> usize {
        self.held.values().filter(|held| &*held.client == client && &*held.namespace == namespace).count()
    }

    /// The oldest follower of the client's namespace that has most, if that has more than this one has with one more. Places of the
    /// reserve stay with their namespaces.
    fn of_another_namespace(&self, client: &str, namespace: &str) -> Option<u64> {
        let of_client = || self.held.iter().filter(move |(_, held)| &*held.client == client);
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, held) in of_client() {
            *counts.entry(&*held.namespace).or_default() += 1;
        }
        let count = |namespace: &str| counts.get(namespace).copied().unwrap_or_default();
        let least = count(namespace) + 1;
        let followers = of_client()
            .filter(|(_, held)| held.follower.is_some() && held.share.of_client.first.is_none())
            .filter(|(_, held)| count(&held.namespace) > least);
        followers.max_by_key(|(id, held)| (count(&held.namespace), Reverse(**id))).map(|(id, _)| *id)
    }

    /// The oldest follower of the client that has most, there of the namespace that has most, if the client has more than this one
    /// has with one more.
    fn of_another_client(&self, client: &str) -> Option<u64> {
        let mut clients: BTreeMap<&str, usize> = BTreeMap::new();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for held in self.held.values() {
            *clients.entry(&*held.client).or_default() += 1;
            *counts.entry((&*held.client, &*held.namespace)).or_default() += 1;
        }
        let count = |client: &str| clients.get(client).copied().unwrap_or_default();
        let least = count(client) + 1;
        let rank = |id: u64, held: &Held| {
            let there = counts.get(&(&*held.client, &*held.namespace)).copied().unwrap_or_default();
            (count(&held.client), there, Reverse(id))
        };
        let followers =
            self.held.iter().filter(|(_, held)| held.follower.is_some() && count(&held.client) > least);
        followers.max_by_key(|(id, held)| rank(**id, held)).map(|(id, _)| *id)
    }
}

/// The table, which all clones of the places share.
#[derive(Debug, Default)]
struct HeldPlaces(Mutex<Table>);

/// Places of which one client has at most half, and one client at the pods of one namespace an eighth. A quarter of a client's is a
/// reserve for namespaces that have none. What follows gives its place up to a namespace, or a client, that has fewer.
#[derive(Clone, Debug)]
struct PodPlaces {
    of_all: SharedPlaces,
    of_namespaces: SharedPlaces,
    /// Of each client, what is not its reserve.
    open: SharedPlaces,
    /// Of each client; `None` if there are too few places for one.
    reserve: Option<SharedPlaces>,
    /// Of each client and namespace, the only place in the reserve.
    firsts: SharedPlaces,
    table: Arc<HeldPlaces>,
}

/// A place, given back on drop.
#[derive(Debug)]
pub(crate) struct PodPlace {
    places: PodPlaces,
    id: u64,
    /// Ends when the place was given up; `None` for what is never cut off.
    given_up: Option<oneshot::Receiver<()>>,
}

impl Drop for PodPlace {
    fn drop(&mut self) {
        let held = self.places.table().held.remove(&self.id);
        drop(held);
    }
}

impl PodPlace {
    /// Does the work while it has its place. When that was given up, the work is dropped, and the body of `chunks` ends with an error:
    /// it is not whole.
    pub(crate) async fn hold(mut self, work: impl Future<Output = ()>, chunks: &Chunks) {
        let given_up = async {
            match &mut self.given_up {
                // Nothing is ever sent.
                Some(given_up) => {
                    let _ = given_up.await;
                }
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = given_up => {}
            () = work => return,
        }
        drop(self);
        tracing::info!(
            "The log that was followed is cut off: another namespace or client waited for its place"
        );
        let cut = io::Error::other("the log is cut off: too many are followed");
        // A reader that takes nothing learns of it when its connection ends.
        drop(tokio::time::timeout(WITHIN, chunks.send(Err(cut))).await);
    }
}

/// The outcome of work that has it at once.
async fn at_once<T>(work: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    tokio::select! {
        biased;
        done = tokio::task::unconstrained(work) => Some(done),
        () = std::future::ready(()) => None,
    }
}

impl PodPlaces {
    fn new(count: usize) -> Self {
        let half = count.div_ceil(2).max(1);
        let reserve = half / 4;
        Self {
            of_all: SharedPlaces::new(count),
            of_namespaces: SharedPlaces::of_each(count.div_ceil(8)),
            open: SharedPlaces::of_each(half - reserve),
            reserve: (reserve > 0).then(|| SharedPlaces::of_each(reserve)),
            firsts: SharedPlaces::of_each(1),
            table: Arc::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for work at a pod of this namespace; `None` if there was none for a while. A namespace that waits for its own places
    /// holds none of its client's. With `follows`, the work may have to give its place up.
    async fn place(&self, client: &str, namespace: &str, follows: bool) -> Option<PodPlace> {
        let place = async {
            let of_namespace = self.of_namespaces.place(&of(client, namespace)).await?;
            let share = self.share(client, namespace).await?;
            let (follower, given_up) = follows.then(oneshot::channel::<()>).unzip();
            let (client, namespace) = (Arc::from(client), Arc::from(namespace));
            let held = Held { client, namespace, follower, share, _of_namespace: of_namespace };
            let mut table = self.table();
            let id = table.next;
            table.next += 1;
            table.held.insert(id, held);
            drop(table);
            Some(PodPlace { places: self.clone(), id, given_up })
        };
        tokio::time::timeout(WITHIN, place).await.ok()?
    }

    /// A place among the client's and among all; at most one follower is cut off for it.
    async fn share(&self, client: &str, namespace: &str) -> Option<Share> {
        let of_client = {
            let mut waiting = pin!(self.of_client(client, namespace));
            match at_once(waiting.as_mut()).await {
                Some(place) => place?,
                None => match self.handed_over(client, namespace) {
                    Some(share) => return Some(share),
                    None => waiting.await?,
                },
            }
        };
        let mut waiting = pin!(self.of_all.place(client));
        if let Some(place) = at_once(waiting.as_mut()).await {
            return Some(Share { of_client, _of_all: place? });
        }
        // Its place goes to the client that has fewest of those that wait.
        if !self.cut_off_another_client(client)
            && let Some(share) = self.handed_over(client, namespace)
        {
            return Some(share);
        }
        Some(Share { of_client, _of_all: waiting.await? })
    }

    /// A place of the client's; one of its reserve only for a namespace without any.
    async fn of_client(&self, client: &str, namespace: &str) -> Option<OfClient> {
        let open = async { Some(OfClient { _place: self.open.place(client).await?, first: None }) };
        let reserve = self.reserve.as_ref().filter(|_| self.table().count(client, namespace) == 0);
        let reserved = async {
            let first = self.firsts.place(&of(client, namespace)).await?;
            Some(OfClient { _place: reserve?.place(client).await?, first: Some(first) })
        };
        tokio::select! {
            biased;
            place = open => place,
            place = reserved, if reserve.is_some() => place,
        }
    }

    /// What a follower of the client in another namespace had, which is cut off.
    fn handed_over(&self, client: &str, namespace: &str) -> Option<Share> {
        let mut table = self.table();
        let id = table.of_another_namespace(client, namespace)?;
        let held = table.held.remove(&id);
        drop(table);
        held.map(|held| held.share)
    }

    /// Cuts a follower of another client off; whether there was one.
    fn cut_off_another_client(&self, client: &str) -> bool {
        let mut table = self.table();
        let held = table.of_another_client(client).and_then(|id| table.held.remove(&id));
        drop(table);
        held.is_some()
    }
}

/// What a client's work at the pods of a namespace counts against. No namespace has a space in its name.
pub(crate) fn of(client: &str, namespace: &str) -> String {
    format!("{namespace} {client}")
}

/// The places of all that reaches into containers. Clones share them.
#[derive(Clone, Debug)]
pub struct ContainerPlaces {
    logs: PodPlaces,
    commands: PodPlaces,
}

impl Default for ContainerPlaces {
    fn default() -> Self {
        Self::new(LOGS_MAX, COMMANDS_MAX)
    }
}

impl ContainerPlaces {
    /// Places for so many readers of logs and so many commands.
    #[must_use]
    pub fn new(logs: usize, commands: usize) -> Self {
        Self { logs: PodPlaces::new(logs), commands: PodPlaces::new(commands) }
    }

    /// A place for the reader of a log, which may have to give it up if it follows; else the answer that there is none.
    pub(crate) async fn log(
        &self,
        client: &str,
        namespace: &str,
        follows: bool,
    ) -> Result<PodPlace, Response> {
        let place = self.logs.place(client, namespace, follows).await;
        place.ok_or_else(|| too_many("too many logs of containers are read at once\n"))
    }

    /// A place for a command; else the answer that there is none.
    pub(crate) async fn command(&self, client: &str, namespace: &str) -> Result<PodPlace, Response> {
        let place = self.commands.place(client, namespace, false).await;
        place.ok_or_else(|| too_many("too many commands are run in containers at once\n"))
    }
}

/// The answer to a request for which there is no place.
pub(crate) fn too_many(text: &'static str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, RETRY_SECONDS)], text).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, Bytes, to_bytes};
    use bridge_io::Io;
    use tokio::time::Instant;

    use super::*;
    use crate::sending::body_of;

    /// The API server, which is one client for all its callers.
    const SERVER: &str = "user apiserver";

    /// As many places as there are; how long the first took that there was not.
    async fn taken(
        places: &PodPlaces,
        client: &str,
        namespace: &str,
        follows: bool,
    ) -> (Vec<PodPlace>, Duration) {
        let mut taken = Vec::new();
        loop {
            let begun = Instant::now();
            match places.place(client, namespace, follows).await {
                Some(place) => taken.push(place),
                None => return (taken, begun.elapsed()),
            }
        }
    }

    /// How long a place took, if there was one.
    async fn waited(places: &PodPlaces, client: &str, namespace: &str) -> (Option<PodPlace>, Duration) {
        let begun = Instant::now();
        let place = places.place(client, namespace, false).await;
        (place, begun.elapsed())
    }

    fn counts(places: &PodPlaces, client: &str, namespaces: &[&str]) -> Vec<usize> {
        let table = places.table();
        namespaces.iter().map(|namespace| table.count(client, namespace)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_half_of_the_places_and_an_eighth_for_the_pods_of_one_namespace() {
        let places = PodPlaces::new(16);
        let (first, waited) = taken(&places, SERVER, "crowd", false).await;
        assert_eq!(first.len(), 2);
        assert!(waited >= WITHIN && waited < 2 * WITHIN, "{waited:?}");
        let mut held = Vec::new();
        for namespace in ["a", "b", "c", "d"] {
            held.push(taken(&places, SERVER, namespace, false).await.0.len());
        }
        assert_eq!(held, [2; 4], "places are given back");
        let mut all = vec![first];
        for namespace in ["a", "b", "c", "d", "e"] {
            all.push(taken(&places, SERVER, namespace, false).await.0);
        }
        let held: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(
            held,
            [2, 2, 2, 1, 1, 0],
            "the client has its half, a quarter of it for those without any"
        );
        let begun = Instant::now();
        assert!(places.place("user jane", "crowd", false).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(all);
        assert_eq!(taken(&places, SERVER, "e", false).await.0.len(), 2);
        assert!(places.table().held.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_waits_for_its_places_holds_up_no_other_of_its_client() {
        let places = PodPlaces::new(16);
        let held = taken(&places, SERVER, "crowd", false).await.0;
        let crowd = futures::future::join_all((0..100).map(|_| places.place(SERVER, "crowd", true)));
        let other = async {
            let (place, waited) = waited(&places, SERVER, "quiet").await;
            (place.is_some(), waited)
        };
        let (crowd, other) = tokio::join!(crowd, other);
        assert_eq!(other, (true, Duration::ZERO));
        assert_eq!((crowd.iter().flatten().count(), held.len()), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_with_many_commands_leave_places_for_others() {
        let places = PodPlaces::new(COMMANDS_MAX);
        let mut crowds = Vec::new();
        for namespace in ["a", "b", "c", "d"] {
            crowds.push(taken(&places, SERVER, namespace, false).await.0);
        }
        let mut others = Vec::new();
        for namespace in ["e", "f", "g"] {
            let (place, waited) = waited(&places, SERVER, namespace).await;
            assert!(place.is_some() && waited == Duration::ZERO, "{namespace}");
            others.push(place);
            assert!(places.place(SERVER, namespace, false).await.is_none(), "{namespace} has a place");
        }
        let held: Vec<usize> = crowds.iter().map(Vec::len).collect();
        assert_eq!(held, [4, 4, 4, 1]);
        crowds[0].pop();
        assert!(waited(&places, SERVER, "h").await.0.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn followers_of_crowded_namespaces_give_way_to_another_namespace_and_no_other_reader_does() {
        let places = PodPlaces::new(LOGS_MAX);
        let names = ["a", "b", "c", "d"];
        let mut crowds = Vec::new();
        for namespace in names {
            crowds.push(taken(&places, SERVER, namespace, true).await.0);
        }
        let before: usize = counts(&places, SERVER, &names).iter().sum();
        assert!(before >= LOGS_MAX / 2 - LOGS_MAX / 8, "{before}");
        // More than the reserve has, each in a namespace of its own.
        let mut others = Vec::new();
        for number in 0..LOGS_MAX / 4 {
            let (place, waited) = waited(&places, SERVER, &format!("quiet-{number}")).await;
            assert!(place.is_some() && waited == Duration::ZERO, "{number}");
            others.push(place);
        }
        let left = counts(&places, SERVER, &names);
        assert_eq!(left.iter().sum::<usize>() + others.len(), LOGS_MAX / 2);
        assert!(
            left.iter().max().zip(left.iter().min()).is_some_and(|(most, least)| most - least <= 2),
            "{left:?}"
        );
        // Of each namespace the oldest had to go.
        let is_held = |place: &PodPlace| places.table().held.contains_key(&place.id);
        for crowd in &crowds[..3] {
            assert!(crowd.first().is_some_and(|first| !is_held(first)));
            assert!(crowd.last().is_some_and(is_held));
        }

        let places = PodPlaces::new(16);
        let mut readers = Vec::new();
        for namespace in ["a", "b", "c", "d", "e"] {
            readers.push(taken(&places, SERVER, namespace, false).await.0);
        }
        let (none, waited) = waited(&places, SERVER, "f").await;
        assert!(none.is_none() && waited >= WITHIN, "what does not follow is not cut off");
        assert_eq!(places.table().held.len(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn followers_of_clients_with_many_places_give_way_to_another_client() {
        let places = PodPlaces::new(16);
        let mut held = Vec::new();
        for client in ["user one", "user other"] {
            for namespace in ["a", "b", "c", "d"] {
                held.extend(taken(&places, client, namespace, true).await.0);
            }
            for namespace in ["e", "f"] {
                held.extend(places.place(client, namespace, true).await);
            }
        }
        assert_eq!(places.table().held.len(), 16);
        let mut third = Vec::new();
        for number in 0..4 {
            let (place, waited) = waited(&places, "user third", &number.to_string()).await;
            assert!(place.is_some() && waited == Duration::ZERO, "{number}");
            third.push(place);
        }
        let table = places.table();
        let of = |client: &str| table.held.values().filter(|held| &*held.client == client).count();
        assert_eq!([of("user one"), of("user other"), of("user third")], [6, 6, 4]);
    }

    fn followed(place: PodPlace) -> Body {
        body_of(&Io::current(), 1, 100 * WITHIN, |chunks| async move {
            let lines = async {
                let _ = chunks.send(Ok(Bytes::from("line\n"))).await;
                pending::<()>().await;
            };
            place.hold(lines, &chunks).await;
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_of_a_follower_that_gave_way_is_not_taken_for_whole() {
        let places = PodPlaces::new(4);
        let mut bodies = Vec::new();
        for namespace in ["a", "b"] {
            bodies.push(followed(places.place("user one", namespace, true).await.expect("a place")));
        }
        let whole = places.place("user other", "a", false).await.expect("a place");
        let other = places.place("user other", "b", true).await.expect("a place");
        bodies.push(followed(other));
        let third = places.place("user third", "a", true).await.expect("a place");
        let (first, mut others) = (bodies.remove(0), bodies);
        assert!(to_bytes(first, 100).await.is_err(), "the oldest is cut off");
        let (chunks, mut body) = tokio::sync::mpsc::channel(1);
        whole.hold(async {}, &chunks).await;
        drop(chunks);
        assert!(body.recv().await.is_none(), "what has ended by itself has no error");
        let mut next = others.remove(0).into_data_stream();
        let line = tokio_stream::StreamExt::next(&mut next).await;
        assert!(line.is_some_and(|line| line.is_ok()), "the others go on");
        drop(third);
    }
}
