//! Places for what reaches into containers: readers of logs, and commands. Clients share them, and of each client the namespaces of
//! the pods: the API server is one client for all its callers.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bridge_io::{SharedPlace, SharedPlaces};

/// At most so many logs are read at once: each has a file, a block of it, and a task.
const LOGS_MAX: usize = 1024;
/// At most so many commands of `/run` are run at once: each holds what its command has written.
const COMMANDS_MAX: usize = 32;
/// Work waits so long for its place.
const WITHIN: Duration = Duration::from_secs(5);
/// After so many seconds a request that found no place may be sent again.
const RETRY_SECONDS: &str = "5";

/// Places of which one client has at most half, and one client at the pods of one namespace an eighth.
#[derive(Clone, Debug)]
struct PodPlaces {
    of_all: SharedPlaces,
    of_namespaces: SharedPlaces,
}

/// A place, given back on drop.
#[derive(Debug)]
pub(crate) struct PodPlace {
    _of_all: SharedPlace,
    _of_namespace: SharedPlace,
}

impl PodPlaces {
    fn new(count: usize) -> Self {
        Self { of_all: SharedPlaces::new(count), of_namespaces: SharedPlaces::of_each(count.div_ceil(8)) }
    }

    /// A place for work at a pod of this namespace; `None` if there was none for a while. A namespace that waits for its own places
    /// holds none of its client's.
    async fn place(&self, client: &str, namespace: &str) -> Option<PodPlace> {
        let place = async {
            let namespace = self.of_namespaces.place(&of(client, namespace)).await?;
            Some(PodPlace { _of_namespace: namespace, _of_all: self.of_all.place(client).await? })
        };
        tokio::time::timeout(WITHIN, place).await.ok()?
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

    /// A place for the reader of a log; else the answer that there is none.
    pub(crate) async fn log(&self, client: &str, namespace: &str) -> Result<PodPlace, Response> {
        let place = self.logs.place(client, namespace).await;
        place.ok_or_else(|| too_many("too many logs of containers are read at once\n"))
    }

    /// A place for a command; else the answer that there is none.
    pub(crate) async fn command(&self, client: &str, namespace: &str) -> Result<PodPlace, Response> {
        let place = self.commands.place(client, namespace).await;
        place.ok_or_else(|| too_many("too many commands are run in containers at once\n"))
    }
}

/// The answer to a request for which there is no place.
pub(crate) fn too_many(text: &'static str) -> Response {
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, RETRY_SECONDS)], text).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// As many places as there are; how long the first took that there was not.
    async fn taken(places: &PodPlaces, client: &str, namespace: &str) -> (Vec<PodPlace>, Duration) {
        let mut taken = Vec::new();
        loop {
            let begun = Instant::now();
            match places.place(client, namespace).await {
                Some(place) => taken.push(place),
                None => return (taken, begun.elapsed()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_has_half_of_the_places_and_an_eighth_for_the_pods_of_one_namespace() {
        let places = PodPlaces::new(16);
        let (first, waited) = taken(&places, "user apiserver", "crowd").await;
        assert_eq!(first.len(), 2);
        assert!(waited >= WITHIN && waited < 2 * WITHIN, "{waited:?}");
        let mut held = Vec::new();
        for namespace in ["a", "b", "c", "d"] {
            held.push(taken(&places, "user apiserver", namespace).await.0.len());
        }
        assert_eq!(held, [2; 4], "places are given back");
        let mut all = vec![first];
        for namespace in ["a", "b", "c"] {
            all.push(taken(&places, "user apiserver", namespace).await.0);
        }
        assert_eq!(taken(&places, "user apiserver", "d").await.0.len(), 0, "the client has its half");
        let begun = Instant::now();
        assert!(places.place("user jane", "crowd").await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(all);
        assert_eq!(taken(&places, "user apiserver", "d").await.0.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_waits_for_its_places_holds_up_no_other_of_its_client() {
        let places = PodPlaces::new(16);
        let held = taken(&places, "user apiserver", "crowd").await.0;
        let crowd = futures::future::join_all((0..100).map(|_| places.place("user apiserver", "crowd")));
        let other = async {
            let begun = Instant::now();
            (places.place("user apiserver", "quiet").await.is_some(), begun.elapsed())
        };
        let (crowd, other) = tokio::join!(crowd, other);
        assert_eq!(other, (true, Duration::ZERO));
        assert_eq!((crowd.iter().flatten().count(), held.len()), (0, 2));
    }
}
