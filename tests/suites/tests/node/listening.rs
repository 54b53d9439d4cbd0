//! NodeApi on ports in memory: what it serves, and a listener that breaks.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use node_api::NodeApiConfig;
use supervision::Policy;
use testkit::node::{FakeNode, World, settings};
use testkit::sandbox;
use tower::ServiceExt;

use crate::life::world;

/// The status of a port's answer; `None` if nothing listens.
async fn get(world: &World, port: SocketAddr, path: &str) -> Option<StatusCode> {
    let routes = world.listeners.routes(port)?;
    let request = Request::get(path).body(Body::empty()).expect("a request");
    Some(routes.oneshot(request).await.expect("routes always answer").status())
}

#[test]
fn a_listener_that_breaks_opens_again_and_the_others_stay() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(95);
        let health: SocketAddr = "127.0.0.1:10248".parse().expect("an address");
        let read_only: SocketAddr = "127.0.0.1:10255".parse().expect("an address");
        let api =
            NodeApiConfig { health: Some(health), read_only: Some(read_only), ..NodeApiConfig::default() };
        let node = FakeNode::start(sandbox, &world, &kubelet::wiring::Settings { api, ..settings() });
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
