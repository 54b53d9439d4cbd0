//! Clients that send too much, too slowly, or come in crowds.

use std::time::Duration;

use node_api::Bounds;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{Options, SOON, Server};

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
    let bounds = Bounds { connections_max: 2, head_deadline: Duration::from_millis(500) };
    let server = Server::start(Options { always_allow: true, bounds, ..Options::default() }).await;
    let client = server.client(Some(&server.admin));
    // Both places are taken by clients that never end their head.
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
