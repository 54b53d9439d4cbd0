//! Clients that send too much, too slowly, or come in crowds.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use bridge_serve::{Bounds, serve_on};
use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;

use crate::client::Client;
use crate::server::{Options, SOON, Server, reviews};

#[tokio::test]
async fn a_body_is_not_waited_for() {
    let server = Server::start(Options { always_allow: true, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    let huge = ["Content-Length: 1000000000000"];
    assert_eq!(client.ask("POST", "/run/default/web/main?cmd=whoami", &huge).await.0, 200);
    let long = format!("/pods?{}", "x".repeat(1 << 20));
    let (status, _) = client.get(&long).await;
    assert!(status == 414 || status == 431 || status == 0, "a head without end is not read: {status}");
}

#[tokio::test]
async fn a_crowd_waits_and_a_silent_client_goes() {
    let bounds = Bounds { connections_max: 2, head_deadline: Duration::from_millis(500), ..Bounds::SECURED };
    let server = Server::start(Options { always_allow: true, bounds, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    // Clients that never end the head of their request hold both places.
    let mut silent = Vec::new();
    for _ in 0..2 {
        let mut stream = client.connect().await.unwrap();
        stream.write_all(b"GET /pods HTTP/1.1\r\nX: ").await.unwrap();
        silent.push(stream);
    }
    assert_eq!(client.get("/pods").await.0, 200, "the next one is answered when they are gone");
    for mut stream in silent {
        let mut rest = Vec::new();
        let gone = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(gone.is_ok(), "the silent client's connection has ended");
    }
}

/// A connection with one request that was answered with `status`, kept open.
async fn held(client: &Client, path: &str, status: u16) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut stream = client.connect().await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: kubelet\r\n\r\n").as_bytes()).await.unwrap();
    let mut head = [0; 12];
    let read = tokio::time::timeout(SOON, stream.read_exact(&mut head)).await;
    read.expect("an answer").expect("a connection");
    assert_eq!(String::from_utf8_lossy(&head), format!("HTTP/1.1 {status}"));
    stream
}

/// Whether the server still answers a request on the connection.
async fn is_there(stream: &mut tokio_rustls::client::TlsStream<TcpStream>) -> bool {
    let ask = b"GET /pods HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n";
    let mut rest = Vec::new();
    let _ = stream.write_all(ask).await;
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await.expect("an answer or an end");
    String::from_utf8_lossy(&rest).contains("HTTP/1.1 ")
}

#[tokio::test]
async fn a_name_that_may_do_nothing_holds_no_place() {
    let bounds = Bounds { connections_max: 8, ..Bounds::SECURED };
    let reviews = Some(reviews(&[("admin", "get", "pods")]));
    let server = Server::start(Options { reviews, bounds, ..Options::default() }).await;
    let admin = server.client(Some(&server.admin));
    let nobody = server.client(Some(&server.authority.client("nobody", "system:authenticated")));
    let mut patient = held(&admin, "/pods", 200).await;
    let mut crowd = Vec::new();
    for _ in 0..20 {
        crowd.push(held(&nobody, "/pods", 403).await);
    }
    assert_eq!(admin.get("/pods").await.0, 200, "no place is waited for");
    assert!(is_there(&mut patient).await, "who may keeps the place");
}

#[tokio::test]
async fn one_user_does_not_have_all_places() {
    let bounds = Bounds { connections_max: 8, ..Bounds::SECURED };
    let reviews = Some(reviews(&[("admin", "get", "pods"), ("jane", "get", "pods")]));
    let server = Server::start(Options { reviews, bounds, ..Options::default() }).await;
    let admin = server.client(Some(&server.admin));
    let mut of_admin = Vec::new();
    for _ in 0..8 {
        of_admin.push(held(&admin, "/pods", 200).await);
    }
    let jane = server.client(None);
    let (status, _) = jane.ask("GET", "/pods", &["Authorization: Bearer token-jane"]).await;
    assert_eq!(status, 200, "another one is answered at once");
    let mut there = Vec::new();
    for stream in &mut of_admin {
        there.push(is_there(stream).await);
    }
    assert_eq!(there, [true, true, true, true, false, true, true, true], "the oldest beyond the share went");
}

/// A plain listener with these routes.
async fn plain(routes: Router, bounds: Bounds) -> (std::net::SocketAddr, AbortOnDropHandle<std::io::Error>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (address, AbortOnDropHandle::new(tokio::spawn(serve_on(listener, routes, None, bounds))))
}

#[tokio::test]
async fn silent_clients_keep_nobody_from_the_plain_ports() {
    let bounds = Bounds { connections_max: 4, head_deadline: 10 * SOON, ..Bounds::PLAIN };
    let (address, _serving) = plain(Router::new().route("/healthz", get(|| async { "ok" })), bounds).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: kubelet\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(SOON, stream.read_to_string(&mut answer)).await.expect("an answer").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let bounds = Bounds { write_deadline: Duration::from_secs(1), ..Bounds::PLAIN };
    let gone = Arc::new(Notify::new());
    let told = gone.clone();
    let endless = move || {
        // Cancelled when the answer is dropped.
        let token = tokio_util::sync::CancellationToken::new();
        let (told, ended) = (told.clone(), token.clone());
        tokio::spawn(async move {
            ended.cancelled().await;
            told.notify_one();
        });
        let guard: DropGuard = token.drop_guard();
        async move {
            let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
            let chunks = futures::stream::repeat(chunk).map(move |chunk| {
                let _held = &guard;
                Ok::<_, std::io::Error>(chunk)
            });
            Body::from_stream(chunks)
        }
    };
    let (address, _serving) = plain(Router::new().route("/endless", get(endless)), bounds).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /endless HTTP/1.1\r\nHost: kubelet\r\n\r\n").await.unwrap();
    tokio::time::timeout(SOON, gone.notified()).await.expect("the answer is given up");
    drop(stream);
}
