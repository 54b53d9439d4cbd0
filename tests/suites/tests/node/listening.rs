//! NodeApi on ports in memory: what it serves, and a listener that breaks.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use k8s_openapi::api::core::v1::PodStatus;
use kubelet::wiring::Settings;
use node_api::NodeApiConfig;
use serde_json::Value;
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::sandbox;
use tower::ServiceExt;

use crate::life::world;
use crate::pods::web;

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

/// A pod whose image is nowhere.
const LATE: &str = "apiVersion: v1
kind: Pod
metadata: {name: late}
spec:
  containers: [{name: main, image: \"registry.test:5000/none:1\", imagePullPolicy: IfNotPresent, command: [serve]}]
";

#[test]
fn what_each_pod_waits_for_is_told_to_browsers() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(96);
        world.manifest("web.yaml", &web("web"));
        world.manifest("late.yaml", LATE);
        let node = FakeNode::start(sandbox, &world, &listening());
        let waits = |status: &PodStatus| {
            let states = status.container_statuses.iter().flatten().filter_map(|one| one.state.as_ref());
            let mut reasons = states.filter_map(|state| state.waiting.as_ref()?.reason.as_deref());
            reasons.any(|reason| ["ErrImagePull", "ImagePullBackOff"].contains(&reason))
        };
        node.until("one pod to be Ready and the other to wait", |pods| {
            pods.get("web").is_some_and(|pod| is_ready(pod)) && pods.get("late").is_some_and(|pod| waits(pod))
        })
        .await;
        let request = Request::get("/why").body(Body::empty()).expect("a request");
        let (status, text) = answer(&world, read_only_port(), request).await.expect("the port is open");
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &told["node"]["ready"]), (StatusCode::OK, &Value::Bool(true)), "{text}");
        let says = |name: &str| {
            let pods = told["pods"].as_array().expect("a list");
            let is_it = |pod: &&Value| pod["name"].as_str().is_some_and(|own| own.starts_with(name));
            let pod = pods.iter().find(is_it).expect("it is told");
            ["verdict", "sentence"].map(|field| pod[field].as_str().unwrap_or_default().to_owned())
        };
        let [verdict, sentence] = says("web");
        assert!(verdict == "ready" && sentence.contains(" runs and is Ready"), "{sentence}");
        let [verdict, sentence] = says("late");
        assert!(verdict == "waits" && sentence.contains(" waits for its image"), "{sentence}");
        assert_eq!(get(&world, read_only_port(), "/page").await, Some(StatusCode::OK));
        node.stop().await;
    });
}

#[test]
fn what_was_done_for_a_pod_is_told_also_after_a_crash_of_its_worker() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(97);
        world.manifest("web.yaml", &web("web"));
        let node = FakeNode::start(sandbox, &world, &listening());
        node.until("the pod to be Ready", |pods| pods.get("web").is_some_and(|pod| is_ready(pod))).await;
        let uid = node.statuses().await.into_keys().next().expect("the pod has a status");
        node.tree.kill(&format!("PodWorker/{uid}")).expect("its worker runs");
        sandbox.pass(Duration::from_secs(5)).await;
        let request = Request::get(format!("/timeline?pod={uid}")).body(Body::empty()).expect("a request");
        let (status, text) = answer(&world, read_only_port(), request).await.expect("the port is open");
        let told: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(status, StatusCode::OK, "{text}");
        let steps = told["steps"].as_array().expect("a list");
        let calls = steps.iter().filter(|step| step["kind"] == "call" && step["state"] == "done");
        let calls: Vec<_> = calls.filter_map(|step| step["what"].as_str()).collect();
        let of_three_containers = ["CreateContainer", "StartContainer"].repeat(3);
        assert_eq!(calls, [&["RunPodSandbox"][..], &of_three_containers].concat(), "{text}");
        let by = |by: &str| steps.iter().any(|step| step["by"] == by);
        assert!(["PodWorker", "StatusManager", "runtime"].into_iter().all(by), "{text}");
        assert_eq!(get(&world, read_only_port(), "/timeline?pod=none").await, Some(StatusCode::NOT_FOUND));
        assert_eq!(get(&world, read_only_port(), "/timeline").await, Some(StatusCode::BAD_REQUEST));
        node.stop().await;
    });
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
