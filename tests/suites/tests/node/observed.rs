//! What Pleg sees and what workers report travels pod by pod: absence like presence, whatever is lost on the way and whichever
//! end begins anew.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::ExecScript;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::Pod;
use messages::supervision::Fault;
use supervision::Policy;
use testkit::node::{FakeNode, World, settings};
use testkit::{Sandbox, sandbox};

use crate::cluster::{clustered, is_told_ready, pod, until, within};
use crate::desired::inject;
use crate::pods::web;

const NS: Option<&str> = Some("default");

/// The followers of Pleg.
const FOLLOWERS: [&str; 5] =
    ["PodWorkerPool", "StatusManager", "ProbeManager", "LogManager", "GarbageCollector"];

fn lose(message: &str, count: u32) -> Fault {
    Fault::Drop { message: message.to_owned(), count }
}

fn begun(world: &World) -> u64 {
    world.runtime.counts().get(&Rpc::RunPodSandbox).copied().unwrap_or(0)
}

async fn started(sandbox: &Sandbox, seed: u64) -> (FakeNode, World, FakeApi) {
    let (world, api) = clustered(seed);
    // A change is found by a relist alone.
    world.runtime.set_events(false);
    api.put(&pod("web", "serve"));
    let node = FakeNode::start(sandbox, &world, &settings());
    until("the pod to be Ready", || is_told_ready(&api, "web")).await;
    // The digests that follow the changes are over.
    sandbox.pass(Duration::from_secs(5)).await;
    (node, world, api)
}

#[test]
fn a_pod_that_vanishes_while_pleg_is_down_runs_again() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (node, world, api) = started(sandbox, 420).await;
        let before = begun(&world);
        // Its next incarnations do not begin for a time.
        inject(&node, "Pleg", Fault::PanicWhileStarting { times: 3 });
        inject(&node, "Pleg", Fault::PanicNow);
        sandbox.pass(Duration::from_millis(20)).await;
        world.runtime.wipe();
        within(30, "another sandbox", || begun(&world) > before).await;
        within(30, "the pod to be Ready again", || is_told_ready(&api, "web")).await;
        node.stop().await;
    });
}

#[test]
fn the_news_that_a_pod_has_vanished_may_be_lost_at_any_follower() {
    for actor in FOLLOWERS {
        sandbox(Policy::default(), async |sandbox| {
            let (node, world, api) = started(sandbox, 421).await;
            let before = begun(&world);
            inject(&node, actor, lose("PodObserved", 1));
            world.runtime.wipe();
            within(30, &format!("another sandbox, for all that {actor} lost"), || begun(&world) > before)
                .await;
            within(30, "the pod to be Ready again", || is_told_ready(&api, "web")).await;
            // Its end is seen by every follower, too: nothing of it stays.
            inject(&node, actor, lose("PodObserved", 1));
            api.delete::<Pod>(NS, "web", None);
            within(60, &format!("the end of which {actor} was not told"), || {
                api.get::<Pod>(NS, "web").is_none() && world.runtime.sandboxes().is_empty()
            })
            .await;
            node.stop().await;
        });
    }
}

#[test]
fn the_reports_of_a_worker_may_be_lost_at_any_follower() {
    for actor in ["PodManager", "StatusManager", "ProbeManager", "GarbageCollector", "EvictionManager"] {
        sandbox(Policy::default(), async |sandbox| {
            let (node, world, api) = started(sandbox, 424).await;
            for (lost, end) in [(1, 20), (4, 100)] {
                // A pod whose name waits for the end of its predecessor, and one that the server keeps until it has ended.
                world.manifest("fixed.yaml", &web("fixed"));
                let static_pods =
                    || api.get::<Pod>(NS, "fixed-node").is_some_and(|_| is_told_ready(&api, "fixed-node"));
                within(60, "the static pod", static_pods).await;
                let before = begun(&world);
                inject(&node, actor, lose("WorkerReported", lost));
                api.delete::<Pod>(NS, "web", None);
                world.manifest("fixed.yaml", &web("fixed").replace("serve", "serve, again"));
                within(end, &format!("the end of which {actor} did not hear"), || {
                    api.get::<Pod>(NS, "web").is_none() && begun(&world) > before && static_pods()
                })
                .await;
                api.put(&pod("web", "serve"));
                within(60, "another pod of its name", || is_told_ready(&api, "web")).await;
                world.remove_manifest("fixed.yaml");
                within(60, "the end of the static pod", || api.get::<Pod>(NS, "fixed-node").is_none()).await;
                sandbox.pass(Duration::from_secs(5)).await;
            }
            node.stop().await;
        });
    }
}

#[test]
fn a_verdict_may_be_lost_at_any_follower() {
    for (actor, lost) in
        [("PodWorkerPool", 1), ("StatusManager", 1), ("PodWorkerPool", 2), ("StatusManager", 2)]
    {
        sandbox(Policy::default(), async |sandbox| {
            let (node, world, api) = started(sandbox, 425).await;
            world.manifest("probed.yaml", &web("probed"));
            let is_ready = || is_told_ready(&api, "probed-node");
            within(60, "the static pod", is_ready).await;
            sandbox.pass(Duration::from_secs(5)).await;
            let fails = |probe: &str| {
                world.runtime.script_exec(probe, ExecScript { exit_code: 1, ..ExecScript::default() })
            };
            let restarts = || world.runtime.counts()[&Rpc::StartContainer];
            let before = restarts();
            inject(&node, actor, lose("ProbeVerdict", lost));
            if actor == "StatusManager" {
                fails("ready");
                within(100, "the pod not to be Ready", || !is_ready()).await;
            } else {
                fails("alive");
                within(120, "the container to be started again", || restarts() > before).await;
            }
            node.stop().await;
        });
    }
}

#[test]
fn a_pool_that_crashes_over_the_news_hears_it_again() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (node, world, api) = started(sandbox, 422).await;
        let before = begun(&world);
        inject(&node, "PodWorkerPool", Fault::PanicOn { message: "PodObserved".to_owned(), nth: 1 });
        world.runtime.wipe();
        within(30, "another sandbox", || begun(&world) > before).await;
        within(30, "the pod to be Ready again", || is_told_ready(&api, "web")).await;
        node.stop().await;
    });
}

#[test]
fn an_observer_without_room_hears_it_later() {
    for actor in FOLLOWERS {
        sandbox(Policy::default(), async |sandbox| {
            let (node, world, api) = started(sandbox, 423).await;
            inject(&node, actor, Fault::SqueezeMailbox { bound: 0 });
            let before = begun(&world);
            world.runtime.wipe();
            sandbox.pass(Duration::from_secs(15)).await;
            inject(&node, actor, Fault::SqueezeMailbox { bound: 4096 });
            within(60, &format!("another sandbox, once {actor} has room"), || begun(&world) > before).await;
            within(60, "the pod to be Ready again", || is_told_ready(&api, "web")).await;
            node.stop().await;
        });
    }
}
