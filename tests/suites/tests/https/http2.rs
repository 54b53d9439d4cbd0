//! HTTP/2 on the HTTPS port, and the longest time of a request (row 21.1).

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request};
use bridge_serve::Bounds;
use futures::future::join_all;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::client::Client;
use crate::server::{Options, SOON, Server, reviews};

const LOG: &str = "/containerLogs/default/web/main";
const FOLLOWED: &str = "/containerLogs/default/web/main?follow=true";

/// A connection of HTTP/2.
#[derive(Clone)]
struct Sender(SendRequest<Empty<Bytes>>);

impl Sender {
    async fn connect(client: &Client) -> Self {
        let stream = client.connect_http2().await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        drop(tokio::spawn(connection));
        Self(sender)
    }

    /// The head of the answer to a request, with its body to be read.
    async fn begin(&mut self, path: &str) -> hyper::Result<hyper::Response<hyper::body::Incoming>> {
        let request = Request::get(format!("https://kubelet{path}")).body(Empty::new()).unwrap();
        timeout(SOON, self.0.send_request(request)).await.expect("an answer or an end")
    }

    /// Status and body of one request.
    async fn ask(&mut self, method: &Method, path: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(format!("https://kubelet{path}"));
        let asked = async {
            let answer = self.0.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            (status, String::from_utf8(body.to_vec()).unwrap())
        };
        timeout(SOON, asked).await.unwrap_or_else(|_| panic!("{method} {path}: no answer"))
    }
}

#[tokio::test]
async fn the_answers_are_those_of_http_1() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let mut sender = Sender::connect(&client).await;
    for (method, path) in [
        (Method::GET, "/pods"),
        (Method::GET, "/healthz?verbose"),
        (Method::GET, "/nothing"),
        (Method::GET, LOG),
        (Method::GET, "/containerLogs/default/no/main"),
        (Method::GET, "/run/default/web/main?cmd=whoami"),
        (Method::POST, "/run/default/web/main?cmd=whoami"),
        (Method::POST, "/exec/default/web/main?command=sh&output=1"),
        (Method::POST, "/attach/default/web/main?output=1"),
        (Method::POST, "/portForward/default/web"),
        (Method::GET, "/metrics/../pods"),
        (Method::GET, "/metrics/%2e%2e/pods"),
        (Method::GET, "//pods"),
    ] {
        let expected = client.ask(method.as_str(), path, &[]).await;
        assert_eq!(sender.ask(&method, path).await, expected, "{method} {path}");
    }
    let (status, page) = sender.ask(&Method::GET, "/metrics").await;
    assert!(status == 200 && page.contains("kubelet_http_requests_total"), "{status} {page}");
    let refused = (500, "Upgrade request required\n".to_owned());
    let exec = "/exec/default/web/main?command=sh&output=1";
    assert_eq!(sender.ask(&Method::POST, exec).await, refused, "no stream switches protocols");
}

#[tokio::test]
async fn callers_are_told_apart() {
    let allowed = Some(reviews(&[("admin", "get", "proxy")]));
    let server = Server::start(Options { reviews: allowed, ..Options::default() }).await;
    let mut admin = Sender::connect(&server.client(Some(&server.admin))).await;
    assert_eq!(admin.ask(&Method::GET, LOG).await.0, 200);
    let run = "/run/default/web/main?cmd=whoami";
    for (method, path) in [(Method::POST, run), (Method::GET, "/metrics")] {
        assert_eq!(admin.ask(&method, path).await.0, 403, "{method} {path}");
    }
    assert_eq!(admin.ask(&Method::GET, LOG).await.0, 200, "a refusal does not end the connection");
    let mut stranger = Sender::connect(&server.client(None)).await;
    assert_eq!(stranger.ask(&Method::GET, LOG).await, (401, "Unauthorized".to_owned()));
    let closed = async {
        while stranger.0.ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, closed).await.expect("a stranger's connection ends with its first request");
}

#[tokio::test]
async fn requests_beyond_the_bound_wait() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let sender = Sender::connect(&client).await;
    let asked = (0..250).map(|_| {
        let mut sender = sender.clone();
        async move { sender.ask(&Method::GET, "/pods").await.0 }
    });
    assert_eq!(join_all(asked).await, vec![200; 250]);
    let followed = (0..100).map(|_| {
        let mut sender = sender.clone();
        async move { sender.begin(FOLLOWED).await.unwrap() }
    });
    let mut followed = join_all(followed).await;
    let mut further = sender.clone();
    let further = tokio::spawn(async move { further.ask(&Method::GET, "/pods").await.0 });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!further.is_finished(), "a hundred requests are under way");
    assert_eq!(Sender::connect(&client).await.ask(&Method::GET, "/pods").await.0, 200);
    drop(followed.pop());
    assert_eq!(timeout(SOON, further).await.expect("a place became free").unwrap(), 200);
}

#[tokio::test]
async fn large_answers_that_a_client_leaves_unread_are_few_and_none_to_another_client() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let jane = server.client(Some(&server.authority.client("jane", "system:masters")));
    let (mut admin, mut jane) =
        (Sender::connect(&server.client(Some(&server.admin))).await, Sender::connect(&jane).await);
    let large = "/run/default/web/main?cmd=large";
    let run = async |sender: &mut Sender| {
        let request = Request::post(format!("https://kubelet{large}")).body(Empty::new()).unwrap();
        timeout(SOON, sender.0.send_request(request)).await.expect("an answer").unwrap()
    };
    let unread = run(&mut admin).await;
    assert_eq!(unread.status().as_u16(), 200);
    assert_eq!(run(&mut admin).await.status().as_u16(), 429, "the first one holds its whole text");
    let whole = run(&mut jane).await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(whole.len(), 12 << 20);
    drop(unread);
    assert_eq!(admin.ask(&Method::GET, "/pods").await.0, 200);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn a_client_that_takes_back_its_requests_is_sent_away() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let mut stream = client.connect_http2().await.unwrap();
    // GET and https from the static table, and /pods and kubelet as they are.
    let head = [&[0x82_u8, 0x87, 0x04, 5][..], b"/pods", &[0x01, 7], b"kubelet"].concat();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    for n in 0..200 {
        let id = 2 * n + 1;
        // The head, whole and with no body, and at once its reset: CANCEL.
        bytes.extend(frame(1, 0x5, id, &head));
        bytes.extend(frame(3, 0, id, &[0, 0, 0, 8]));
    }
    // The server may have closed the connection before all is written.
    let _ = stream.write_all(&bytes).await;
    let mut rest = Vec::new();
    let ended = timeout(SOON / 2, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection ends");
    assert_eq!(client.get("/pods").await.0, 200);
}

#[tokio::test]
async fn a_followed_log_ends_after_the_longest_time_of_a_request() {
    let bounds = Bounds { request_deadline: Duration::from_secs(2), ..Bounds::SECURED };
    let server = Server::start(Options { always_allow: true, bounds, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let mut sender = Sender::connect(&client).await;
    let followed = sender.begin(FOLLOWED).await.unwrap();
    assert_eq!(followed.status().as_u16(), 200);
    let read = timeout(SOON, followed.into_body().collect()).await.expect("it ends");
    assert!(read.is_err(), "what is cut off is not taken for whole");
    assert_eq!(sender.ask(&Method::GET, "/pods").await.0, 200, "its connection goes on");

    let mut stream = client.connect().await.unwrap();
    let request = format!("GET {FOLLOWED} HTTP/1.1\r\nHost: kubelet\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.expect("it ends");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("three\n"), "{answer}");
    assert!(!answer.ends_with("0\r\n\r\n"), "what is cut off has no end: {answer}");
}
