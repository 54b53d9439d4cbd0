//! NodeApi alone: all pods and their statuses over HTTP, one request after another, and its health.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bench::alone::{Stage, Subject, Traffic, desired_pods, wait};
use bridge_io::Io;
use bridge_io::clock::{Clock, SystemClock};
use bridge_serve::System;
use node_api::{Answers, ApiMetrics, NodeApi, NodeApiConfig, NodeApiDeps, Registries, SharedAnswers};
use supervision::{AskPort, Place, Supervised, Vitality};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Requests of one round.
const REQUESTS: u64 = 50;

struct Alone {
    _actor: Supervised<NodeApi>,
    health: SocketAddr,
    read_only: SocketAddr,
}

async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    listener.local_addr().expect("a bound listener has an address")
}

/// Bytes of the answer's body; `None` without a good answer.
async fn get(address: SocketAddr, path: &str) -> Option<usize> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    answer.starts_with(b"HTTP/1.1 200").then_some(answer.len())
}

impl Subject for Alone {
    const NAME: &'static str = "NodeApi";
    const TRAFFIC: Traffic = Traffic::Asks;

    async fn start(stage: &Stage, count: usize) -> Self {
        let (health, read_only) = (free_port().await, free_port().await);
        let statuses: BTreeMap<_, _> =
            desired_pods(count).pods.keys().map(|uid| (uid.clone(), Arc::default())).collect();
        let deps = NodeApiDeps {
            config: NodeApiConfig { health: Some(health), read_only: Some(read_only), secured: None },
            listeners: Arc::new(System::new(Io::current())),
            answers: Answers {
                tree: stage.tree.clone(),
                metrics: ApiMetrics::new(Registries::default(), SystemClock.now())
                    .expect("every metric is defined once"),
                pods: AskPort::answering("PodManager", move |_| Some(desired_pods(count))),
                statuses: AskPort::answering("StatusManager", move |_| Some(statuses.clone())),
                events: AskPort::answering("EventRecorder", |_| Some(Vec::new())),
                summary: AskPort::answering("StatsProvider", |_| Some(Err("none".to_owned()))),
                usage: AskPort::answering("StatsProvider", |_| Some(Arc::default())),
                configuration: AskPort::answering("ConfigManager", |_| None),
                kubernetes: "1.36.2",
                clock: Arc::new(SystemClock),
                shared: SharedAnswers::default(),
            },
            secured: None,
        };
        let seat = stage.tree.seat::<NodeApi>(Vitality::Degradable);
        let actor = seat.start(&Place::Here, move || NodeApi::new(deps.clone()));
        let alone = Self { _actor: actor, health, read_only };
        wait("the listeners", async || alone.whole().await).await;
        alone
    }

    async fn round(&self, _: u64) -> u64 {
        for _ in 0..REQUESTS {
            assert!(get(self.read_only, "/pods").await.is_some(), "the pods are given");
        }
        REQUESTS
    }

    async fn ask(&self) -> bool {
        get(self.health, "/healthz/ping").await.is_some()
    }

    async fn whole(&self) -> bool {
        get(self.health, "/healthz/ping").await.is_some() && get(self.read_only, "/pods").await.is_some()
    }
}

fn main() {
    bench::alone::run::<Alone>();
}
