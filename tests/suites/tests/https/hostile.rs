//! Hostile clients: crowds of unknown callers, heads and bodies without an end, ambiguous requests.

use std::sync::Arc;
use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::SystemClock;
use bridge_kube::RateLimit;
use bridge_kube::fake::{FakeApi, Verb};
use bridge_reviews::{ClusterReviews, ReviewTtls};
use bridge_serve::Bounds;
use k8s_openapi::api::core::v1::Node;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use crate::client::{Authority, Client};
use crate::server::{Options, SOON, Server, reviews};

/// A crowd that is larger than the number of places.
const CROWD: usize = 1000;
const PLACES: usize = 600;
/// Bytes that a crowd may cost, client side included: both are in this process.
const CROWD_BYTES_MAX: u64 = 400 << 20;

fn allowed_to_run() -> Options {
    let reviews = reviews(&[("admin", "get", "pods"), ("admin", "create", "proxy")]);
    Options { reviews: Some(reviews), ..Options::default() }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Raises the limit of open files as far as possible; returns the limit.
fn raise_file_limit() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let now = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(now).unwrap_or(usize::MAX)
}

/// A connection that is kept open until the end.
enum Held {
    Raw(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Held {
    /// Whether the server has kept the connection so far.
    async fn stays(&mut self) -> bool {
        let mut rest = Vec::new();
        let moment = Duration::from_millis(2);
        let gone = match self {
            Held::Raw(stream) => tokio::time::timeout(moment, stream.read_to_end(&mut rest)).await.is_ok(),
            Held::Tls(stream) => tokio::time::timeout(moment, stream.read_to_end(&mut rest)).await.is_ok(),
        };
        assert!(!String::from_utf8_lossy(&rest).contains("200 OK"), "a stranger is answered nothing");
        !gone
    }
}

/// One client of a crowd: `n` selects what it does.
async fn nuisance(server: &Server, client: &Client, n: usize) -> Option<Held> {
    if n.is_multiple_of(4) {
        // No handshake.
        return TcpStream::connect(server.address).await.ok().map(Held::Raw);
    }
    let mut stream = client.connect().await.ok()?;
    let text = match n % 4 {
        // A head without end.
        1 => format!("GET /pods HTTP/1.1\r\nHost: kubelet\r\nX: {}", "x".repeat(8000)),
        // A body without end, from a caller that claims a name without proof.
        2 => "POST /run/default/web/main?cmd=whoami HTTP/1.1\r\nHost: kubelet\r\nX-Remote-User: admin\r\n\
              Content-Length: 1000000000000\r\n\r\nx"
            .to_owned(),
        // A request that is answered with 401, on a connection that stays open.
        _ => "GET /pods HTTP/1.1\r\nHost: kubelet\r\n\r\n".to_owned(),
    };
    stream.write_all(text.as_bytes()).await.ok()?;
    Some(Held::Tls(Box::new(stream)))
}

#[tokio::test]
async fn a_crowd_of_strangers_keeps_nobody_out_and_costs_little() {
    let crowd = CROWD.min(raise_file_limit().saturating_sub(200) / 2);
    let bounds = Bounds { connections_max: PLACES.min(crowd / 2), ..Bounds::SECURED };
    let server = Server::start(Options { bounds, ..allowed_to_run() }).await;
    let good = server.client(Some(&server.admin));
    // A known caller has connected before, and stays idle.
    let mut patient = good.connect().await.unwrap();
    let ask = b"GET /pods HTTP/1.1\r\nHost: kubelet\r\n\r\n";
    patient.write_all(ask).await.unwrap();
    let mut head = [0; 15];
    patient.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    let before = resident();
    let stranger = server.client(Some(&Authority::new().client("admin", "system:masters")));
    let mut held = Vec::new();
    for n in 0..crowd {
        held.extend(nuisance(&server, &stranger, n).await);
        if n % 100 == 99 {
            let begun = Instant::now();
            assert_eq!(good.get("/pods").await.0, 200, "among {n} strangers");
            println!("among {} strangers: answered after {:?}", n + 1, begun.elapsed());
        }
    }
    let cost = resident().saturating_sub(before);
    println!("{crowd} strangers: {} MiB, both sides", cost >> 20);
    assert!(cost < CROWD_BYTES_MAX, "{} MiB", cost >> 20);
    let (status, body) = good.ask("POST", "/run/default/web/main?cmd=whoami", &[]).await;
    assert_eq!((status, body.as_str()), (200, "root\n"));
    // Places are bounded: the server must have closed the other connections.
    let end = Instant::now() + SOON;
    loop {
        let mut staying = Vec::new();
        for mut one in held {
            if one.stays().await {
                staying.push(one);
            }
        }
        held = staying;
        if held.len() < bounds.connections_max {
            break;
        }
        assert!(Instant::now() < end, "{} strangers are still there", held.len());
    }
    println!("{} of {crowd} strangers are still there", held.len());
    patient.write_all(ask).await.unwrap();
    let mut more = [0; 1];
    let answered = tokio::time::timeout(SOON, patient.read_exact(&mut more)).await;
    assert!(answered.unwrap().is_ok(), "who is known keeps the place");
}

#[tokio::test]
async fn heads_end_in_time_and_within_bounds() {
    let bounds = Bounds { head_deadline: Duration::from_secs(1), ..Bounds::SECURED };
    let server = Server::start(Options { bounds, ..allowed_to_run() }).await;
    let client = server.client(Some(&server.admin));
    // A byte now and then does not keep a connection open.
    let mut slow = client.connect().await.unwrap();
    let trickling = async {
        slow.write_all(b"GET /pods HTTP/1.1\r\nX: ").await.unwrap();
        while slow.write_all(b"x").await.is_ok() && slow.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(SOON, trickling).await.expect("it is sent away");
    // A head that is too long, from a known and from an unknown caller.
    let lines = vec![format!("X-Long: {}", "x".repeat(4000)); 90];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let many = vec!["A: b"; 5000];
    for client in [client, server.client(None)] {
        for headers in [&lines, &many] {
            let (status, _) = client.ask("GET", "/pods", headers).await;
            assert!(matches!(status, 0 | 400 | 431), "{status}");
        }
    }
    assert_eq!(server.client(Some(&server.admin)).get("/pods").await.0, 200);
}

#[tokio::test]
async fn slow_bodies_hold_nothing_up() {
    let server = Server::start(allowed_to_run()).await;
    let client = server.client(Some(&server.admin));
    let mut slow = client.connect().await.unwrap();
    let head =
        "POST /run/default/web/main?cmd=whoami HTTP/1.1\r\nHost: kubelet\r\nContent-Length: 1000000\r\n\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let answered = async {
        while !String::from_utf8_lossy(&answer).contains("root") {
            let mut part = [0; 1024];
            let length = slow.read(&mut part).await.unwrap();
            assert!(length > 0, "the answer is not waited for by a body");
            answer.extend_from_slice(&part[..length]);
        }
    };
    tokio::time::timeout(SOON, answered).await.expect("an answer");
    assert_eq!(client.get("/pods").await.0, 200);
}

/// The answer to a raw request, and whether a command was run.
async fn said(client: &Client, request: &[u8]) -> String {
    let mut stream = client.connect().await.unwrap();
    stream.write_all(request).await.unwrap();
    // A server that waits for more bytes sees the end of the request.
    stream.shutdown().await.unwrap();
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut bytes)).await.expect("the end");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn no_path_means_two_things() {
    // The caller may read metrics, and nothing else.
    let metrics = reviews(&[("admin", "get", "metrics"), ("admin", "create", "metrics")]);
    let server = Server::start(Options { reviews: Some(metrics), ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let run = "run/default/web/main?cmd=whoami";
    for path in [
        format!("/metrics/../{run}"),
        format!("/metrics/./../{run}"),
        format!("/metrics/%2e%2e/{run}"),
        format!("/metrics/%252e%252e/{run}"),
        format!("/metrics/..%c0%af{run}"),
        format!("/metrics/..;/{run}"),
        format!("/metrics;a=b/../{run}"),
        format!("/metrics\\..\\{run}"),
        format!("/metrics//../{run}"),
        format!("//{run}"),
        "/%72un/default/web/main?cmd=whoami".to_owned(),
        format!("/metrics%00/../{run}"),
        format!("/metrics\0/../{run}"),
        format!("/metrics#/../{run}"),
        format!("http://kubelet/metrics/../{run}"),
        format!("http://kubelet/{run}"),
        format!("https://other:1/{run}"),
        run.to_owned(),
        "*".to_owned(),
        format!("/metrics?x=/../{run}&x=%2f{run}"),
    ] {
        for method in ["POST", "GET", "OPTIONS", "CONNECT", "PROPFIND"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n");
            let answer = said(&client, request.as_bytes()).await;
            assert!(!answer.contains("root"), "{method} {path:?}: {answer}");
            let is_metrics = path.starts_with("/metrics?") || path.starts_with("/metrics#");
            assert!(is_metrics || !answer.starts_with("HTTP/1.1 200"), "{method} {path:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn no_request_hides_in_another() {
    let metrics = reviews(&[("admin", "get", "metrics")]);
    let server = Server::start(Options { reviews: Some(metrics), ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let hidden = "POST /run/default/web/main?cmd=whoami HTTP/1.1\r\nHost: kubelet\r\n\r\n";
    let length = hidden.len();
    for heads in [
        format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Content-Length: +5\r\n".to_owned(),
        "X: a\r\n b\r\n".to_owned(),
        "X: a\0b\r\n".to_owned(),
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            .to_owned(),
    ] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: kubelet\r\n{heads}\r\n0\r\n\r\n{hidden}");
        let answer = said(&client, request.as_bytes()).await;
        assert!(!answer.contains("root") && !answer.contains("101 Switching"), "{heads:?}: {answer}");
    }
    for nonsense in [
        &b"\0\x01\x02\xff\xfe"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET\r\n\r\n",
    ] {
        let answer = said(&client, nonsense).await;
        assert!(!answer.starts_with("HTTP/1.1 200"), "{nonsense:?}: {answer}");
    }
    assert_eq!(client.get("/metrics").await.0, 200);
}

#[tokio::test]
async fn random_tokens_of_clients_that_hang_up_delay_nobody() {
    const REQUESTS: usize = 500;
    let api = FakeApi::new(Arc::new(SystemClock));
    api.accept_token("good", "jane", &[]);
    api.allow("jane", "get", "nodes/pods");
    let mut node = Node::default();
    node.metadata.name = Some("n1".to_owned());
    api.put(&node);
    let slow = RateLimit { per_second: 5.0, burst: 5 };
    let client = || api.limited_client(&Io::current(), slow, Duration::from_secs(30));
    let minute = Duration::from_secs(60);
    let ttls = ReviewTtls { token: minute, allowed: minute, refused: minute };
    let asked = Arc::new(ClusterReviews::new(&client(), ttls, bridge_reviews::ReviewMetrics::new().unwrap()));
    let server = Server::start(Options { asked: Some(asked), ..Options::default() }).await;
    raise_file_limit();
    let stranger = server.client(None);
    let mut flood = Vec::new();
    for n in 0..REQUESTS {
        let mut stream = stranger.connect().await.unwrap();
        let head = "GET /pods HTTP/1.1\r\nHost: kubelet\r\nAuthorization: Bearer";
        stream.write_all(format!("{head} random-{n}\r\n\r\n").as_bytes()).await.unwrap();
        flood.push(stream);
    }
    let reviews = || api.count(Verb::Create, "tokenreviews");
    let end = Instant::now() + SOON;
    while reviews() < 5 {
        assert!(Instant::now() < end, "the first ones are asked for");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let own = client();
    let begun = Instant::now();
    for _ in 0..5 {
        own.get::<Node>(None, "n1").await.unwrap();
    }
    let waited = begun.elapsed();
    drop(flood);
    // The debt of five hundred reviews would be a hundred seconds, ten times as long as a review may take.
    let (status, body) = stranger.ask("GET", "/pods", &["Authorization: Bearer good"]).await;
    assert_eq!(status, 200, "{body}");
    let reviews = reviews();
    println!("own calls waited {waited:?}; {reviews} reviews for {REQUESTS} requests");
    assert!(waited < Duration::from_secs(1), "the kubelet's own calls waited {waited:?}");
    assert!(reviews < 250, "{reviews} reviews: those who hung up are asked for");
}
