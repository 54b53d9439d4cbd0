//! The values of the cgroups of classes and of the node, which other cases' pods must not change.

use std::fs;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use crate::Alone;
use crate::cgroups;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::{containers, sleeper, with};

pub const ALL: &[(&str, Alone)] = &[("classes_and_the_node_hold_what_their_pods_may_have", sums)];

fn shares(cgroup: &str) -> String {
    let file = if cgroups::version_2() { "cpu.weight" } else { "cpu.shares" };
    cgroups::value(cgroup, file).unwrap_or_else(|| format!("no {file}"))
}

/// Waits for these shares in version 1, or for this weight in version 2.
#[track_caller]
fn until_shares(cgroup: &str, shares_1: &str, weight_2: &str) {
    let expected = if cgroups::version_2() { weight_2 } else { shares_1 };
    eventually(&format!("{cgroup} has {expected}"), LATER, || match shares(cgroup) {
        found if found == expected => Ok(()),
        found => Err(found),
    });
}

fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("the kernel tells");
    let kib = text.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    kib.expect("MemTotal comes first") * 1024
}

fn sums(environment: &Arc<Environment>) {
    let kubelet = json!({
        "podPidsLimit": 77,
        "cpuCFSQuota": false,
        "kubeReserved": {"memory": "128Mi"},
        "systemReserved": {"memory": "64Mi"},
        "evictionHard": {"memory.available": "32Mi"},
    });
    let node = Node::alone(environment, "cgroups", Options { kubelet, ..Options::default() });
    let kubepods = format!("{}/kubepods", node.cgroup());
    let (burstable, best_effort) = (format!("{kubepods}/burstable"), format!("{kubepods}/besteffort"));
    until_shares(&burstable, "2", "1");
    until_shares(&best_effort, "2", "1");
    eventually("node allocatable is enforced", SOON, || {
        let events = node.events()?;
        let found = events.iter().find(|event| event.reason == "NodeAllocatableEnforced");
        found.map(drop).ok_or_else(|| format!("{events:?}"))
    });
    let file = if cgroups::version_2() { "memory.max" } else { "memory.limit_in_bytes" };
    let held = cgroups::value(&kubepods, file).and_then(|text| text.parse::<u64>().ok());
    let expected = memory_bytes() - (192 << 20);
    let held = held.expect("a number of bytes");
    assert!(held <= expected && expected - held < 1 << 20, "{held}, not {expected}");

    let pod = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}, "limits": {"cpu": "1", "memory": "64Mi"}});
        containers([with(sleeper("main"), json!({"resources": resources}))])
    };
    let files = [node.pod("one", pod("100m")), node.pod("two", pod("150m"))];
    let pods = [files[0].ready(), files[1].ready()];
    until_shares(&burstable, "256", "10");
    let cgroup = format!("{burstable}/pod{}", pods[0].uid());
    if let Some(pids) = cgroups::value(&cgroup, "pids.max") {
        assert_eq!(pids, "77");
    }
    // Quotas are switched off.
    let quota = if cgroups::version_2() { "cpu.max" } else { "cpu.cfs_quota_us" };
    let quota = cgroups::value(&cgroup, quota).expect("a quota");
    assert!(["-1", "max 100000"].contains(&quota.as_str()), "{quota}");

    // Another kubelet counts the pods that exist.
    node.kill_kubelet();
    node.start_kubelet_again();
    files[1].remove();
    files[1].stopped(pods[1].uid(), SOON);
    until_shares(&burstable, "102", "4");
    files[0].remove();
    files[0].stopped(pods[0].uid(), SOON);
    until_shares(&burstable, "2", "1");
    eventually("no pod's cgroup is left", SOON, || {
        let left = cgroups::named(&kubepods, "pod");
        let left: Vec<_> = left.iter().filter(|dir| !dir.ends_with("kubepods")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}
