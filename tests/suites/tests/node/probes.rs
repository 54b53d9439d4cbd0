//! Probes and what statuses make of them.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodStatus;
use runtime_bridge::probes::{FakeAnswer, FakeHealth};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

fn condition(status: &PodStatus, kind: &str) -> (String, String, String) {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind);
    let found = found.unwrap_or_else(|| panic!("no {kind} in {status:?}")).clone();
    (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

fn health(health: FakeHealth) -> FakeAnswer {
    FakeAnswer::Health([("web".to_owned(), health)].into())
}

#[test]
fn a_grpc_probe_decides_over_ready() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.manifest(
            "grpc.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: grpc}}
spec:
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    readinessProbe: {{grpc: {{port: 5000, service: web}}, periodSeconds: 1, failureThreshold: 1}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("an address", |pods| pods.get("grpc").is_some_and(|status| status.pod_ip.is_some())).await;
        let ip = node.by_name().await["grpc"].pod_ip.clone().expect("it was there");
        sandbox.pass(Duration::from_secs(10)).await;
        assert!(!is_ready(&node.by_name().await["grpc"]), "nobody answers");
        let said = async |words: &str| node.events().await.iter().any(|event| event.message.contains(words));
        let words = format!("timeout: failed to connect service \"{ip}:5000\" within 1s");
        assert!(said(&words).await, "{words}");

        world.prober.set(&ip, 5000, health(FakeHealth::Serving));
        node.until("grpc to be Ready", |pods| is_ready(&pods["grpc"])).await;
        world.prober.set(&ip, 5000, health(FakeHealth::NotServing));
        node.until("grpc not to be Ready", |pods| !is_ready(&pods["grpc"])).await;
        assert!(said("Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")").await);
        node.stop().await;
    });
}

#[test]
fn a_readiness_gate_stays_shut_without_an_api_server() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(22);
        world.manifest(
            "gate.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: gate}}
spec:
  readinessGates: [{{conditionType: a/b}}]
  containers:
  - {{name: main, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve]}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("its containers to be ready", |pods| {
            pods.get("gate").is_some_and(|status| condition(status, "ContainersReady").0 == "True")
        })
        .await;
        let message = "corresponding condition of pod readiness gate \"a/b\" does not exist.".to_owned();
        let shut = ("False".to_owned(), "ReadinessGatesNotReady".to_owned(), message);
        assert_eq!(condition(&node.by_name().await["gate"], "Ready"), shut);
        node.stop().await;
    });
}
