//! The cost of a node on which nothing happens.

use std::sync::Arc;
use std::time::Duration;

use testkit::process::holds;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper};

pub const ALL: &[(&str, Alone)] = &[("idle_pods_cost_few_calls", idle)];

const PODS: usize = 10;
const OPERATIONS: &str = "kubelet_runtime_operations_total";
/// Two lists every 10 s and a status every 5 s are 24 calls in a minute, and a sync of each pod may be another. A poll
/// each second would be 60 for the node alone, and one of each pod 600.
const CALLS_PER_MINUTE_MAX: f64 = 55.0;

fn idle(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "idle", Options::default());
    let files: Vec<PodFile<'_>> =
        (0..PODS).map(|_| node.pod("idle", containers([sleeper("main")]))).collect();
    for file in &files {
        file.wait("Running and Ready", LATER, |pod| pod.is_ready());
    }
    let calls = || node.metric(OPERATIONS).expect("the kubelet counts its calls");
    let before = calls();
    assert!(before >= PODS as f64 * 3.0, "{before} calls for {PODS} pods: they are not counted");
    holds("nothing happens", Duration::from_secs(60), || {
        node.assert_alive();
        Ok(())
    });
    let made = calls() - before;
    println!("{made} calls in a minute for {PODS} idle pods");
    assert!(made <= CALLS_PER_MINUTE_MAX, "{made} calls in a minute for {PODS} idle pods");
    assert!(made > 0.0, "the runtime is still looked at");
}
