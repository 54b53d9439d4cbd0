//! NodeApi on ports in memory: what it serves, and a listener that breaks.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use kubelet::wiring::Settings;
use node_api::NodeApiConfig;
use supervision::Policy;
use testkit::node::{FakeNode, World, settings};
use testkit::sandbox;
use tower::ServiceExt;

use crate::life::world;

pub fn read_only_port() -> SocketAddr {
    "127.0.0.1:10255".parse().expect("an address")
}

/// The settings of a node with a read-only port.
pub fn listening() -> Settings {
    let api = NodeApiConfig { read_only: Some(read_only_port()), ..NodeApiConfig::default() };
    Settings { api, ..settings() }
}

/// The status and the text of a port's answer; `None` if nothing listens.
pub async fn answer(world: &World, port: SocketAddr, request: Request<Body>) -> Option<(StatusCode, String)> {
    let answer = world.listeners.routes(port)?.oneshot(request).await.expect("routes always answer");
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    Some((status, String::from_utf8(body.to_vec()).expect("text")))
}

/// The status of a port's answer; `None` if nothing listens.
async fn get(world: &World, port: SocketAddr, path: &str) -> Option<StatusCode> {
    let request = Request::get(path).body(Body::empty()).expect("a request");
    answer(world, port, request).await.map(|(status, _)| status)
}

#[test]
fn a_listener_that_breaks_opens_again_and_the_others_stay() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(95);
        let health: SocketAddr = "127.0.0.1:10248".parse().expect("an address");
        let read_only = read_only_port();
        let api =
            NodeApiConfig { health: Some(health), read_only: Some(read_only), ..NodeApiConfig::default() };
        let node = FakeNode::start(sandbox, &world, &Settings { api, ..settings() });
        sandbox.pass(Duration::from_secs(1)).await;
        assert_eq!(get(&world, health, "/healthz/ping").await, Some(StatusCode::OK));
        assert_eq!(get(&world, read_only, "/pods").await, Some(StatusCode::OK));
        assert!(world.listeners.fail(health), "it was open");
        sandbox.pass(Duration::from_secs(1)).await;
        assert_eq!(get(&world, health, "/healthz/ping").await, None, "nothing listens there for now");
        assert_eq!(get(&world, read_only, "/pods").await, Some(StatusCode::OK));
        sandbox.pass(Duration::from_secs(5)).await;
        assert_eq!(get(&world, health, "/healthz/ping").await, Some(StatusCode::OK));
        node.stop().await;
        assert_eq!(get(&world, health, "/healthz/ping").await, None, "ports close with the node");
    });
}
