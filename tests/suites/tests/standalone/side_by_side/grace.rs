//! How long a container has to end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::node::{Node, SOON};
use crate::pod::PodFile;
use crate::spec::{OBEDIENT, STUBBORN, containers, shell, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_container_that_ignores_sigterm_is_killed_after_its_grace", stubborn),
    ("without_grace_a_container_is_killed_soon", no_grace),
    ("a_container_that_obeys_sigterm_ends_at_once", obedient),
    ("containers_of_a_pod_end_side_by_side", together),
];

fn grace(seconds: u32, list: impl Into<Vec<Value>>) -> Value {
    with(containers(list), json!({"terminationGracePeriodSeconds": seconds, "gate": true}))
}

/// Removes the pod, and returns the time from then until none of its processes run.
fn time_to_end(file: &PodFile<'_>) -> Duration {
    let pod = file.ready();
    let begun = Instant::now();
    file.remove();
    eventually("all containers have ended", SOON, || match file.running(pod.uid()) {
        running if running.is_empty() => Ok(()),
        running => Err(format!("{running:?}")),
    });
    let took = begun.elapsed();
    file.stopped(pod.uid(), SOON);
    took
}

fn stubborn(node: &Node) {
    let took = time_to_end(&node.pod("stubborn", grace(6, [shell("main", STUBBORN)])));
    assert!(took >= Duration::from_millis(5500), "killed before its grace was over, after {took:?}");
    assert!(took <= Duration::from_secs(25), "killed long after its grace was over, after {took:?}");
}

fn no_grace(node: &Node) {
    let took = time_to_end(&node.pod("graceless", grace(0, [shell("main", STUBBORN)])));
    assert!(took <= Duration::from_secs(15), "killed after {took:?}");
}

fn obedient(node: &Node) {
    let script = format!(
        "trap 'echo told >>/gate/order; exit 0' TERM; {}",
        OBEDIENT.split_once("; ").expect("a trap").1
    );
    let file = node.pod("obedient", grace(120, [shell("main", &script)]));
    let took = time_to_end(&file);
    assert!(took <= Duration::from_secs(15), "ended after {took:?}");
    assert_eq!(file.written("order"), ["told"], "SIGTERM comes first");
}

fn together(node: &Node) {
    let names = ["one", "two", "three", "four"];
    let took = time_to_end(&node.pod("together", grace(5, names.map(|name| shell(name, STUBBORN)))));
    assert!(took >= Duration::from_millis(4500), "killed before the grace was over, after {took:?}");
    assert!(took <= Duration::from_secs(18), "one after another: {took:?}");
}
