//! A runtime that holds more than one of its answers can tell.

use std::collections::BTreeSet;
use std::time::Duration;

use bridge_cri::Rpc;
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::web;

const PODS: usize = 12;
/// An answer holds the sandboxes of all pods, or the containers of a few.
const ANSWER: usize = 8 * 1024;

fn name(number: usize) -> String {
    format!("web{number}")
}

fn manifest(world: &World, number: usize) {
    world.manifest(&format!("{}.yaml", name(number)), &web(&name(number)));
}

async fn ready(node: &FakeNode, numbers: impl Iterator<Item = usize>) {
    let names: BTreeSet<String> = numbers.map(name).collect();
    node.until("these pods and no others to be ready", |pods| {
        pods.keys().eq(&names) && pods.values().all(|status| is_ready(status))
    })
    .await;
}

/// The IDs of all sandboxes and containers.
fn held(world: &World) -> BTreeSet<String> {
    let sandboxes = world.runtime.sandboxes().into_iter().map(|sandbox| sandbox.id);
    sandboxes.chain(world.runtime.containers().into_iter().map(|container| container.id)).collect()
}

#[test]
fn pods_come_go_and_are_taken_over_while_no_answer_holds_all_containers() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(73);
        world.runtime.set_message_bytes_max(ANSWER);
        // What happens is found by lists alone.
        world.runtime.set_events(false);
        (0..PODS).for_each(|number| manifest(&world, number));
        let node = FakeNode::start(sandbox, &world, &settings());
        ready(&node, 0..PODS).await;
        let failed = world.runtime.counts()[&Rpc::ListContainers];
        let before = held(&world);
        sandbox.tree.kill("Pleg").expect("it runs");
        sandbox.pass(Duration::from_secs(30)).await;
        assert_eq!(held(&world), before, "a new incarnation finds all");
        assert!(world.runtime.counts()[&Rpc::ListContainers] >= failed + PODS as u64, "pod by pod");

        world.remove_manifest("web0.yaml");
        ready(&node, 1..PODS).await;
        node.until("nothing to be left of it", |_| world.runtime.sandboxes().len() == PODS - 1).await;
        let ends = world
            .runtime
            .containers()
            .into_iter()
            .find(|one| one.state().as_str_name() == "CONTAINER_RUNNING");
        let ends = ends.expect("one that runs").id;
        assert!(world.runtime.exit_container(&ends, 1, false));
        node.until("a restart", |pods| {
            pods.values().any(|status| {
                status.container_statuses.iter().flatten().any(|container| container.restart_count == 1)
            })
        })
        .await;
        ready(&node, 1..PODS).await;

        // A pod whose manifest goes while no kubelet runs ends; the others are taken over.
        node.stop().await;
        let before = held(&world);
        world.remove_manifest("web1.yaml");
        let node = FakeNode::start(sandbox, &world, &settings());
        ready(&node, 2..PODS).await;
        node.until("nothing to be left of it", |_| world.runtime.sandboxes().len() == PODS - 2).await;
        let after = held(&world);
        assert!(after.is_subset(&before), "none was started anew: {:?}", after.difference(&before));
    });
}

#[test]
fn pods_that_are_known_are_looked_after_while_no_answer_holds_all_sandboxes() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(74);
        world.runtime.set_events(false);
        (0..PODS).for_each(|number| manifest(&world, number));
        let node = FakeNode::start(sandbox, &world, &settings());
        ready(&node, 0..PODS).await;
        let before = held(&world);
        world.runtime.set_message_bytes_max(ANSWER * 3 / 8);
        sandbox.pass(Duration::from_secs(60)).await;
        ready(&node, 0..PODS).await;
        assert_eq!(held(&world), before);
        world.remove_manifest("web0.yaml");
        manifest(&world, PODS);
        ready(&node, 1..=PODS).await;
        node.until("nothing to be left of it", |_| world.runtime.sandboxes().len() == PODS).await;
        world.runtime.set_message_bytes_max(bridge_cri::MESSAGE_BYTES_MAX);
        sandbox.pass(Duration::from_secs(60)).await;
        ready(&node, 1..=PODS).await;
    });
}
