//! A seed replays a whole node: every call to the API server and the runtime, with its time and its content.

use std::fmt::Write as _;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::Fault as RuntimeFault;
use bridge_kube::fake::{Fault, On, Verb};
use supervision::Policy;
use testkit::node::{FakeNode, World, member};
use testkit::{Random, sandbox};

use crate::pods::job;

use super::api_outages::{NS, clustered, pod};

const PODS: usize = 6;

/// Everything that the node has asked for, a line each.
fn trace(world: &World) -> String {
    let mut trace = String::new();
    for call in world.api.iter().flat_map(bridge_kube::fake::FakeApi::log) {
        let _ = writeln!(trace, "{call:?}");
    }
    for call in world.runtime.calls() {
        let _ = writeln!(trace, "{call:?}");
    }
    trace
}

/// A node whose API server and runtime fail, with pods that come, end and go.
fn run(seed: u64) -> String {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(seed);
        world.manifest("job.yaml", &job("job"));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let mut random = Random::new(seed);
        let mut pass = async || sandbox.pass(Duration::from_millis(random.below(20_000))).await;
        for number in 0..PODS {
            api.put(&pod(&format!("pod-{number}")));
            match number % 6 {
                0 => api.cut_watches(),
                1 => api.fault_always(Some(Fault::Latency(Duration::from_secs(40)))),
                2 => world.runtime.set_down(true),
                3 => world.runtime.fault(Rpc::CreateContainer, 2, RuntimeFault::LostReply),
                4 => api.fault(On::call(Verb::Patch, "pods/status"), 5, Fault::Unreachable),
                _ => drop(sandbox.tree.kill("StatusManager")),
            }
            pass().await;
            if number % 2 == 1 {
                api.delete::<k8s_openapi::api::core::v1::Pod>(NS, &format!("pod-{}", number / 2), None);
            }
            pass().await;
            world.runtime.set_down(false);
            api.fault_always(None);
            api.cut_watches();
        }
        sandbox.pass(Duration::from_secs(120)).await;
        node.stop().await;
        trace(&world)
    })
}

#[test]
fn a_seed_replays_a_node() {
    for seed in [1, 2] {
        let first = run(seed);
        assert!(first.lines().count() > 200, "{first}");
        for _ in 0..2 {
            let again = run(seed);
            let differ = first.lines().zip(again.lines()).position(|(first, again)| first != again);
            if let Some(line) = differ {
                let shown = |trace: &str| {
                    trace.lines().skip(line.saturating_sub(3)).take(6).collect::<Vec<_>>().join("\n")
                };
                panic!("seed {seed}, call {line}:\n{}\n\nand again:\n{}", shown(&first), shown(&again));
            }
            assert_eq!(first.lines().count(), again.lines().count(), "seed {seed}");
        }
    }
}
