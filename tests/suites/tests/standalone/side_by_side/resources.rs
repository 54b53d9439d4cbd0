//! Resources of containers, as the kernel has them.

use std::fs;

use serde_json::{Value, json};

use crate::Shared;
use crate::cgroups;
use crate::node::Node;
use crate::pod::PodFile;
use crate::spec::{containers, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("requests_and_limits_reach_the_containers_cgroup", values),
    ("the_kernel_kills_by_class_of_service", oom_scores),
];

/// A container with resources.
fn sized(name: &str, requests: Value, limits: Value) -> Value {
    with(sleeper(name), json!({"resources": {"requests": requests, "limits": limits}}))
}

/// Quota, period and memory limit of a container, from the kernel; -1 is no limit.
fn kernel_values(node: &Node, pod: &PodView, container: &str) -> [i64; 3] {
    let value = |file: &str| cgroups::value_of(&node.cgroup(), pod.container_id(container), file);
    let number = |text: &str| text.parse::<i64>().unwrap_or(-1);
    let read = |file: &str| number(&value(file).unwrap_or_else(|error| panic!("{error}")));
    if !cgroups::version_2() {
        let memory = read("memory.limit_in_bytes");
        // The kernel's largest number of pages.
        let memory = if memory > 1 << 60 { -1 } else { memory };
        return [read("cpu.cfs_quota_us"), read("cpu.cfs_period_us"), memory];
    }
    let max = value("cpu.max").unwrap_or_else(|error| panic!("{error}"));
    let (quota, period) = max.split_once(' ').expect("two words");
    [number(quota), number(period), read("memory.max")]
}

fn values(node: &Node) {
    let list = [
        sized("sized", json!({"cpu": "250m", "memory": "32Mi"}), json!({"cpu": "500m", "memory": "64Mi"})),
        sized("limited", json!({}), json!({"cpu": "1", "memory": "128Mi"})),
        sized("plain", json!({}), json!({})),
    ];
    let file = node.pod("sized", containers(list));
    let pod = file.ready();
    assert_eq!(pod.status()["qosClass"], "Burstable");
    for (name, shares, quota, memory) in
        [("sized", 256, 50_000, 64 << 20), ("limited", 1024, 100_000, 128 << 20), ("plain", 2, -1, -1)]
    {
        assert_eq!(kernel_values(node, &pod, name), [quota, 100_000, memory], "{name}");
        let id = pod.container_id(name);
        let asked = node.cri.config(id);
        assert_eq!(asked["linux"]["resources"]["cpu_shares"], shares, "{name}: {asked}");
        // How shares become weights of version 2 is up to the runtime.
        if !cgroups::version_2() {
            assert_eq!(cgroups::value_of(&node.cgroup(), id, "cpu.shares"), Ok(shares.to_string()), "{name}");
        }
    }
}

fn oom_scores(node: &Node) {
    let memory_kib = || {
        let text = fs::read_to_string("/proc/meminfo").expect("every machine has memory");
        text.split_whitespace().nth(1).and_then(|word| word.parse::<i64>().ok()).expect("MemTotal")
    };
    let eighth = format!("{}Ki", memory_kib() / 8);
    let full = || json!({"cpu": "50m", "memory": "32Mi"});
    let best_effort = node.pod("best-effort", containers([sleeper("main")]));
    let list = [sized("main", json!({"memory": eighth}), json!({})), sleeper("none")];
    let burstable = node.pod("burstable", containers(list));
    let guaranteed = node.pod("guaranteed", containers([sized("main", full(), full())]));
    expect(node, &best_effort, "BestEffort", &[("main", 1000)]);
    // Requests are whole numbers: the remainder of the division by eight counts for the container.
    let score = 1000 - 1000 * (memory_kib() / 8) / memory_kib();
    expect(node, &burstable, "Burstable", &[("main", score), ("none", 999)]);
    expect(node, &guaranteed, "Guaranteed", &[("main", -997)]);
}

fn expect(node: &Node, file: &PodFile<'_>, class: &str, scores: &[(&str, i64)]) {
    let pod = file.ready();
    assert_eq!(pod.status()["qosClass"], class);
    for &(name, score) in scores {
        let id = pod.container_id(name);
        let asked = &node.cri.config(id)["linux"]["resources"]["oom_score_adj"];
        assert_eq!(asked, &json!(score), "{class} {name}");
        // A runtime that may not lower a score leaves the container its own.
        let own = oom_score_adj(node.environment.containerd_pid());
        let found = oom_score_adj(node.cri.pid(id));
        assert!(found == score || score < own && found == own, "{class} {name}: {found} is not {score}");
    }
}

fn oom_score_adj(pid: u32) -> i64 {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("a process that runs");
    text.trim().parse().expect("a number")
}
