//! NodeApi alone, on real sockets of this machine and so in real time; the actors that it asks are recorded.
#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "real sockets need real time")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bridge_io::Io;
use messages::event_recorder::GetEvents;
use messages::pod_manager::GetPods;
use messages::status_manager::GetPodStatuses;
use node_api::{Answers, NodeApi, NodeApiConfig, NodeApiDeps};
use prometheus::Registry;
use stage::{Neighbour, desired};
use supervision::{Place, Policy, Tree, Vitality};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

struct Neighbours {
    tree: Tree,
    read_only: SocketAddr,
    pods: Neighbour<GetPods>,
    statuses: Neighbour<GetPodStatuses>,
    events: Neighbour<GetEvents>,
}

impl Neighbours {
    fn new(read_only: SocketAddr) -> Self {
        Self {
            tree: Tree::new(Policy::default()),
            read_only,
            pods: Neighbour::answering("PodManager", |_| desired(2)),
            statuses: Neighbour::answering("StatusManager", |_| BTreeMap::new()),
            events: Neighbour::answering("EventRecorder", |_| Vec::new()),
        }
    }

    fn start(&self) {
        let deps = self.deps();
        let seat = self.tree.seat::<NodeApi>(Vitality::Degradable);
        seat.start(&Place::Here, move || NodeApi::new(deps.clone()));
    }

    fn deps(&self) -> NodeApiDeps {
        NodeApiDeps {
            config: NodeApiConfig { health: None, read_only: Some(self.read_only), secured: None },
            io: Io::current(),
            answers: Answers {
                tree: self.tree.clone(),
                registry: Registry::new(),
                probes: Registry::new(),
                pods: self.pods.address(),
                statuses: self.statuses.address(),
                events: self.events.address(),
            },
            secured: None,
        }
    }

    /// Status line and body of an answer; `None` if no server listens.
    async fn get(&self, path: &str) -> Option<(String, String)> {
        let mut stream = TcpStream::connect(self.read_only).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?;
        Some((code.to_owned(), body.to_owned()))
    }

    /// Waits until the port answers, at most 30 seconds.
    async fn until_open(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.get("/healthz/ping").await.is_none() {
            assert!(Instant::now() < end, "nobody listens");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn end(&self) {
        self.tree.stop_all();
        tokio::task::yield_now().await;
    }
}

fn run(test: impl AsyncFnOnce(TcpListener)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        test(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()).await;
    });
}

/// A port that was free a moment ago.
fn free(listener: TcpListener) -> SocketAddr {
    listener.local_addr().unwrap()
}

#[test]
fn what_is_asked_over_http_is_asked_of_the_actors() {
    run(async |listener| {
        let near = Neighbours::new(free(listener));
        near.start();
        near.until_open().await;
        assert_eq!((near.pods.count(), near.statuses.count(), near.events.count()), (0, 0, 0));
        let (code, body) = near.get("/pods").await.unwrap();
        assert_eq!((code.as_str(), body.matches("\"uid\"").count()), ("200", 2), "{body}");
        assert_eq!((near.pods.count(), near.statuses.count(), near.events.count()), (1, 1, 0));
        near.end().await;
    });
}

#[test]
fn a_new_incarnation_opens_the_port_again() {
    run(async |listener| {
        let near = Neighbours::new(free(listener));
        near.start();
        near.until_open().await;
        near.tree.kill("NodeApi").unwrap();
        while near.tree.snapshot().await.actors[0].incarnation < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        near.until_open().await;
        assert_eq!(near.get("/pods").await.unwrap().0, "200");
        near.end().await;
    });
}

#[test]
fn an_actor_that_refuses_or_loses_the_question_is_named_with_503() {
    run(async |listener| {
        let near = Neighbours::new(free(listener));
        near.start();
        near.until_open().await;
        near.pods.refuse();
        let full = ("503".to_owned(), "PodManager: the mailbox is full\n".to_owned());
        assert_eq!(near.get("/pods").await, Some(full));
        near.pods.answer(|_| desired(1));
        near.statuses.lose_answers();
        let (code, body) = near.get("/pods").await.unwrap();
        assert_eq!((code.as_str(), body.starts_with("StatusManager: ")), ("503", true), "{body}");
        near.events.lose_answers();
        assert!(near.get("/events").await.unwrap().1.starts_with("EventRecorder: "));
        near.end().await;
    });
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    run(async |listener| {
        let near = Neighbours::new(listener.local_addr().unwrap());
        near.start();
        let taken = async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(stream);
        };
        // Another program holds the port and takes the connection.
        tokio::join!(taken, near.get("/healthz/ping"));
        drop(listener);
        near.until_open().await;
        near.end().await;
    });
}
