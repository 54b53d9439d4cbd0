//! Clients over HTTP/2 that are slow, silent or many, on a clock that stands still.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use axum::routing::get;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::TokioExecutor;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const BOUNDS: Bounds = Bounds::SECURED;

type Sender = SendRequest<Empty<Bytes>>;

/// Serves one connection; its client's side, and the server's task.
fn served(routes: Router) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(64 * 1024);
    (client, tokio::spawn(converse(server, Connection::of_a_test(BOUNDS), routes, BOUNDS)))
}

/// A client on one connection, and the server's task.
async fn connected(routes: Router) -> (Sender, JoinHandle<()>) {
    let (client, server) = served(routes);
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    drop(tokio::spawn(connection));
    (sender, server)
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("https://kubelet{path}")).body(Empty::new()).unwrap()
}

fn is_about(lasted: Duration, expected: Duration) -> bool {
    lasted >= expected && lasted < expected + 2 * SECOND
}

/// Tells when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_ends_and_the_others_go_on() {
    let gone = Arc::new(Notify::new());
    let tell = gone.clone();
    let endless = move || {
        let told = Told(tell.clone());
        async move {
            let chunk = Bytes::from(vec![b'x'; 64 * 1024]);
            Body::from_stream(stream::repeat(chunk).map(move |chunk| {
                let _held = &told;
                Ok::<_, io::Error>(chunk)
            }))
        }
    };
    let routes = Router::new().route("/endless", get(endless)).route("/", get(|| async { "ok" }));
    let (mut sender, _server) = connected(routes).await;
    let begun = Instant::now();
    let _unread = sender.send_request(request("/endless")).await.unwrap();
    let ends = async {
        gone.notified().await;
        begun.elapsed()
    };
    let others = async {
        for _ in 0..60 {
            sleep(SECOND).await;
            let answer = sender.send_request(request("/")).await.unwrap();
            assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
        }
    };
    let (lasted, ()) = tokio::join!(ends, others);
    assert!(is_about(lasted, BOUNDS.write_deadline), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_ends_after_its_time() {
    let begins = || async {
        let begin = stream::iter([Ok::<_, io::Error>(Bytes::from("begin"))]);
        Body::from_stream(begin.chain(stream::pending()))
    };
    let never = || std::future::pending::<&'static str>();
    let routes = Router::new().route("/begins", get(begins)).route("/never", get(never));
    let (mut sender, _server) = connected(routes).await;
    let begun = Instant::now();
    let never = sender.send_request(request("/never"));
    let begins = sender.send_request(request("/begins"));
    let begins = async { begins.await.unwrap().into_body().collect().await };
    let (never, begins) = tokio::join!(never, begins);
    assert!(never.is_err());
    assert!(begins.is_err(), "what is cut off is not taken for whole");
    assert!(is_about(begun.elapsed(), BOUNDS.request_deadline), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn silent_and_idle_connections_end() {
    let routes = || Router::new().route("/", get(|| async { "ok" }));
    let begun = Instant::now();
    let (_silent, server) = served(routes());
    server.await.unwrap();
    assert!(is_about(begun.elapsed(), BOUNDS.head_deadline), "{:?}", begun.elapsed());

    let begun = Instant::now();
    let (mut sender, server) = connected(routes()).await;
    for _ in 0..3 {
        sleep(BOUNDS.head_deadline - SECOND).await;
        assert_eq!(sender.send_request(request("/")).await.unwrap().status(), StatusCode::OK);
    }
    server.await.unwrap();
    let (lasted, expected) = (begun.elapsed(), 4 * BOUNDS.head_deadline - 3 * SECOND);
    assert!(is_about(lasted, expected), "{lasted:?}");
    assert!(sender.send_request(request("/")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_closes_ends_the_connection() {
    let refused = || async { (StatusCode::UNAUTHORIZED, [(CONNECTION, "close")], "Unauthorized") };
    let (mut sender, server) = connected(Router::new().route("/", get(refused))).await;
    let begun = Instant::now();
    let answer = sender.send_request(request("/")).await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    assert!(!answer.headers().contains_key(CONNECTION));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "Unauthorized");
    server.await.unwrap();
    assert!(begun.elapsed() <= 2 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn heads_that_wait_hold_few_bytes() {
    let never = || std::future::pending::<&'static str>();
    let routes = Router::new().route("/never", get(never)).route("/", get(|| async { "ok" }));
    let (mut sender, _server) = connected(routes).await;
    // The client hears of the server's bounds with the first answer.
    assert_eq!(sender.send_request(request("/")).await.unwrap().status(), StatusCode::OK);
    let large = |path: &str| {
        let mut request = request(path);
        for n in 0..10 {
            let name = axum::http::HeaderName::try_from(format!("x-long-{n}")).unwrap();
            request.headers_mut().insert(name, "x".repeat(10_000).parse().unwrap());
        }
        request
    };
    let held = [sender.send_request(large("/never")), sender.send_request(large("/never"))];
    sleep(SECOND).await;
    assert!(sender.send_request(large("/")).await.is_err(), "a third head is too much");
    drop(held);
    sleep(SECOND).await;
    assert_eq!(sender.send_request(large("/")).await.unwrap().status(), StatusCode::OK);
}
