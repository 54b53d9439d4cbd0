//! Changes by other writers at the API server, and state that cannot be read, neither keep a pod out nor let one in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::{CriErrorKind, Rpc, wire};
use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Verb};
use bridge_node::checkpoint::FakeCheckpoints;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

use crate::cluster::{clustered, pod, until};
use crate::life::world;
use crate::pods::web;

const NS: Option<&str> = Some("default");

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn selecting(name: &str, zone: &str) -> Pod {
    let mut pod = pod(name, "serve");
    pod.spec.as_mut().expect("a spec").node_selector = Some([("zone".to_owned(), zone.to_owned())].into());
    pod
}

/// Labels the Node with a zone, or removes the label.
fn zone(api: &FakeApi, zone: Value) {
    let patch = Patch::Strategic(json!({ "metadata": { "labels": { "zone": zone } } }));
    api.change::<Node>(None, "node", None, &patch);
}

#[test]
fn a_status_that_others_wrote_lets_no_pod_in_and_a_restart_ends_none_that_runs() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(65);
        zone(&api, json!("a"));
        api.put(&selecting("runs", "a"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("it to run", || is_ready(&status(&api, "runs"))).await;
        zone(&api, Value::Null);
        node.stop().await;
        let mut forged = selecting("forged", "a");
        forged.status = serde_json::from_value(json!({
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{ "name": "main", "containerID": "containerd://c", "image": "i", "imageID": "i",
                "ready": true, "restartCount": 0, "state": { "running": {} } }]
        }))
        .expect("a status");
        api.put(&forged);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("it to be refused", || status(&api, "forged").phase.as_deref() == Some("Failed")).await;
        assert_eq!(status(&api, "forged").reason.as_deref(), Some("NodeAffinity"));
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(is_ready(&status(&api, "runs")));
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&1));
        node.stop().await;
    });
}

#[test]
fn pods_that_the_nodes_labels_keep_out_share_one_look_at_the_node() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(66);
        let node = FakeNode::start(sandbox, &world, &settings());
        api.put(&pod("first", "serve"));
        until("it to run", || is_ready(&status(&api, "first"))).await;
        // The kubelet has no NodeStatus here, so no actor tells PodManager of the new label.
        zone(&api, json!("a"));
        let names: Vec<String> = (0..20).map(|number| format!("pod{number}")).collect();
        for name in &names {
            api.put(&selecting(name, "a"));
        }
        until("all to run", || names.iter().all(|name| is_ready(&status(&api, name)))).await;
        api.forget_log();
        let names: Vec<String> = (0..20).map(|number| format!("other{number}")).collect();
        for name in &names {
            api.put(&selecting(name, "b"));
        }
        let refused = |name: &String| status(&api, name).reason.as_deref() == Some("NodeAffinity");
        until("all to be refused", || names.iter().all(refused)).await;
        let looks = api.count(Verb::Get, "nodes");
        assert!((1..=3).contains(&looks), "{looks} for 20 pods");
        node.stop().await;
    });
}

#[test]
fn a_pod_that_has_a_static_pods_name_does_not_keep_it_out() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(67);
        let mut mirror = pod("marked-node", "serve");
        let mark = [("kubernetes.io/config.mirror".to_owned(), "x".to_owned())];
        mirror.metadata.annotations = Some(mark.into());
        api.put(&mirror);
        api.put(&pod("web-node", "serve"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the one with the name to run", || is_ready(&status(&api, "web-node"))).await;
        let theirs = api.get::<Pod>(NS, "web-node").and_then(|pod| pod.metadata.uid).expect("a UID");
        world.manifest("web.yaml", &web("web"));
        world.manifest("marked.yaml", &web("marked"));
        let all_run = async |node: &FakeNode| {
            let statuses = node.statuses().await;
            let others = statuses.iter().filter(|(uid, _)| uid.as_str() != theirs);
            others.filter(|(_, status)| is_ready(status)).count() == 2 && statuses.len() == 3
        };
        let end = tokio::time::Instant::now() + Duration::from_secs(300);
        while !all_run(&node).await {
            assert!(tokio::time::Instant::now() < end, "{:?}", node.statuses().await);
            sandbox.pass(Duration::from_secs(1)).await;
        }
        node.stop().await;
    });
}

/// The pod was deleted by force while no kubelet ran, and its containers do not end.
#[test]
fn nor_does_one_that_has_gone_and_still_ends() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(69);
        api.put(&pod("web-node", "serve"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("it to run", || is_ready(&status(&api, "web-node"))).await;
        node.stop().await;
        api.delete::<Pod>(NS, "web-node", Some(0));
        world.manifest("web.yaml", &web("web"));
        world.runtime.fault(Rpc::StopContainer, 10_000, Fault::Hang);
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the static pod to run", |pods| pods.get("web").is_some_and(|status| is_ready(status)))
            .await;
        assert_eq!(world.runtime.sandboxes().len(), 2, "the other one still ends");
        world.runtime.clear_faults();
        node.stop().await;
    });
}

/// Pods that have a running container, by UID.
fn running(world: &World) -> BTreeSet<String> {
    let (containers, sandboxes) = (world.runtime.containers(), world.runtime.sandboxes());
    let uid = |labels: &BTreeMap<String, String>| labels.get("io.kubernetes.pod.uid").cloned();
    let run = containers
        .iter()
        .filter(|container| container.state == wire::ContainerState::ContainerRunning as i32);
    let ready =
        sandboxes.iter().filter(|sandbox| sandbox.state == wire::PodSandboxState::SandboxReady as i32);
    run.filter_map(|it| uid(&it.labels)).chain(ready.filter_map(|it| uid(&it.labels))).collect()
}

/// The API server may itself be the pod that waits.
async fn takes_over(sandbox: &Sandbox, seed: u64, is_dead: bool) {
    let (mut world, api) = clustered(seed);
    api.set_paused(true);
    world.manifest("api.yaml", &web("kube-apiserver"));
    let node = FakeNode::start(sandbox, &world, &settings());
    node.until("the old one to be Ready", |pods| pods.values().any(|status| is_ready(status))).await;
    node.stop().await;
    let old = running(&world);
    assert_eq!(old.len(), 1);
    if is_dead {
        for made in world.runtime.sandboxes() {
            assert_eq!(made.annotations.get("kubernetes.io/config.source").map(String::as_str), Some("file"));
            world.runtime.kill_sandbox(&made.id);
        }
        assert!(running(&world).is_empty());
    }
    // Another kubelet or version gives the pod another UID, and has left nothing else.
    world.checkpoints = FakeCheckpoints::new();
    world.manifest("api.yaml", &web("kube-apiserver").replace("spec:", "spec:\n  hostname: other"));
    let node = FakeNode::start(sandbox, &world, &settings());
    let end = tokio::time::Instant::now() + Duration::from_secs(120);
    let is_new_ready = async || {
        let statuses = node.statuses().await;
        statuses.iter().any(|(uid, status)| !old.contains(uid.as_str()) && is_ready(status))
    };
    while !is_new_ready().await {
        assert!(running(&world).len() <= 1, "two at once");
        assert!(tokio::time::Instant::now() < end, "{:?}", node.statuses().await);
        sandbox.pass(Duration::from_millis(50)).await;
    }
    assert!(running(&world).is_disjoint(&old));
    node.stop().await;
}

#[test]
fn a_static_pod_takes_the_place_of_a_dead_one_without_an_api_server() {
    sandbox(Policy::default(), async |sandbox| takes_over(sandbox, 70, true).await);
}

#[test]
fn a_static_pod_takes_the_place_of_a_running_one_without_an_api_server() {
    sandbox(Policy::default(), async |sandbox| takes_over(sandbox, 71, false).await);
}

#[test]
fn a_container_that_cannot_be_read_keeps_no_other_pod_waiting() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(68);
        world.manifest("old.yaml", &web("old"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to be Ready", |pods| pods.get("old").is_some_and(|status| is_ready(status))).await;
        node.stop().await;
        let broken = Fault::Error(CriErrorKind::Other, "no such shim".to_owned());
        world.runtime.fault(Rpc::ContainerStatus, 10_000, broken);
        world.manifest("new.yaml", &web("new"));
        world.manifest("old.yaml", &web("old").replace("spec:", "spec:\n  hostname: other"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let begun = tokio::time::Instant::now();
        node.until("the new pod to have a sandbox", |_| {
            world.runtime.counts().get(&Rpc::RunPodSandbox) == Some(&2)
        })
        .await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        let made = world.runtime.sandboxes();
        let named = |name: &str| {
            let metadata = made.iter().filter_map(|sandbox| sandbox.metadata.as_ref());
            metadata.filter(|metadata| metadata.name == name).count()
        };
        assert_eq!((named("new-node"), named("old-node")), (1, 1), "one of its own name waits");
        world.runtime.clear_faults();
        node.until("both to run", |pods| {
            ["new", "old"].iter().all(|name| pods.get(*name).is_some_and(|status| is_ready(status)))
        })
        .await;
        node.stop().await;
    });
}
