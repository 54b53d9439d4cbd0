//! The number of calls to the runtime in a pod's life.

use std::time::Duration;

use bridge_cri::Rpc;
use supervision::Policy;
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::job;

/// Calls that are made with and without pods.
const BACKGROUND: [Rpc; 4] = [Rpc::Version, Rpc::Status, Rpc::ListImages, Rpc::ImageFsInfo];

#[test]
fn a_pod_takes_few_calls_to_start_and_to_end() {
    for events in [true, false] {
        sandbox(Policy::default(), async |sandbox| {
            let world = world(41);
            world.runtime.set_events(events);
            let mut settings = settings();
            // The relist is not counted here.
            settings.pleg.relist = Duration::from_secs(3600);
            let node = FakeNode::start(sandbox, &world, &settings);
            sandbox.pass(Duration::from_secs(10)).await;
            let calls = || -> Vec<(Rpc, String)> {
                let calls = world.runtime.calls().into_iter().filter(|call| !BACKGROUND.contains(&call.rpc));
                calls.map(|call| (call.rpc, call.subject)).collect()
            };
            let before = calls().len();
            let manifest = job("p").replace("[job]", "[serve]").replace("OnFailure", "Always");
            world.manifest("p.yaml", &manifest);
            node.until("p to be Ready", |pods| pods.get("p").is_some_and(|status| is_ready(status))).await;
            sandbox.pass(Duration::from_secs(5)).await;
            let started = calls().split_off(before);
            // Two lists before anything is made, sandbox, its address, image, container, start, and one look.
            assert!(started.len() <= 12, "events {events}: {started:#?}");
            let before = calls().len();
            world.remove_manifest("p.yaml");
            node.until_empty().await;
            sandbox.pass(Duration::from_secs(5)).await;
            let ended = calls().split_off(before);
            // Four to stop and remove, one look between, one at the end.
            assert!(ended.len() <= 9, "events {events}: {ended:#?}");
            node.stop().await;
        });
    }
}
