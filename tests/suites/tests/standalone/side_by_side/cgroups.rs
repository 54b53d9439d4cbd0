//! Cgroups of pods: their places, their values, and that none are left.

use std::fs;

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Shared;
use crate::cgroups;
use crate::node::{Node, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("a_guaranteed_pod_has_a_cgroup_with_its_limits", guaranteed),
    ("a_burstable_pod_has_a_cgroup_with_its_limits", burstable),
    ("a_best_effort_pod_has_a_cgroup_without_limits", best_effort),
    ("a_pods_own_resources_hold_for_all_its_containers", pod_level),
    ("what_another_kubelet_left_in_a_pods_cgroup_is_put_right", corrected),
    ("the_version_of_cgroups_is_told", version),
];

/// The expected values of a pod's cgroup.
struct Expected {
    class: &'static str,
    qos: &'static str,
    shares: &'static str,
    weight: &'static str,
    /// Microseconds in each 100 ms.
    quota: Option<&'static str>,
    memory: Option<&'static str>,
}

/// Whether this is memory without a limit, which in version 1 depends on the page size.
fn unlimited(text: &str) -> bool {
    text == "max" || text.parse::<u64>().is_ok_and(|bytes| bytes > 1 << 60)
}

/// The first difference from the expected values.
fn differs(cgroup: &str, expected: &Expected) -> Option<String> {
    let value = |file: &str| cgroups::value(cgroup, file).unwrap_or_else(|| format!("no {file}"));
    let (cpu, memory) = if cgroups::version_2() {
        let quota = format!("{} 100000", expected.quota.unwrap_or("max"));
        let cpu = (value("cpu.weight"), value("cpu.max")) == (expected.weight.to_owned(), quota);
        (cpu, value("memory.max"))
    } else {
        let quota = expected.quota.unwrap_or("-1").to_owned();
        let held = (value("cpu.shares"), value("cpu.cfs_quota_us"), value("cpu.cfs_period_us"));
        let cpu = held == (expected.shares.to_owned(), quota, "100000".to_owned());
        (cpu, value("memory.limit_in_bytes"))
    };
    let memory_holds = expected.memory.map_or_else(|| unlimited(&memory), |bytes| memory == bytes);
    if cpu && memory_holds {
        return None;
    }
    let all = ["cpu.shares", "cpu.cfs_quota_us", "cpu.weight", "cpu.max"].map(value);
    Some(format!("{cgroup}: {all:?}, memory {memory}"))
}

fn cgroup_of(node: &Node, pod: &PodView, class: &str) -> String {
    format!("{}/kubepods{class}/pod{}", node.cgroup(), pod.uid())
}

fn check(node: &Node, name: &str, spec: Value, expected: &Expected) {
    let file = node.pod(name, spec);
    let pod = file.ready();
    assert_eq!(pod.text("/status/qosClass"), expected.qos);
    let cgroup = cgroup_of(node, &pod, expected.class);
    assert_eq!(differs(&cgroup, expected), None);
    below(node, &pod, &cgroup);
    leaves_nothing(node, &file, &pod, &cgroup);
}

/// Asserts that the container's cgroup lies below that of its pod.
fn below(node: &Node, pod: &PodView, cgroup: &str) {
    let pid = node.cri.pid(pod.container_id("main"));
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its process is there");
    let paths = cgroups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let counts = if cgroups::version_2() { controllers.is_empty() } else { controllers.contains("cpu") };
        counts.then(|| fields.next()).flatten()
    });
    let paths: Vec<&str> = paths.collect();
    assert!(!paths.is_empty(), "{cgroups}");
    for path in paths {
        assert!(path.contains(&format!("{cgroup}/")), "{path} is not below {cgroup}");
    }
}

fn leaves_nothing(node: &Node, file: &PodFile<'_>, pod: &PodView, cgroup: &str) {
    file.remove();
    file.stopped(pod.uid(), SOON);
    eventually("the pod's cgroup is gone", SOON, || {
        node.assert_alive();
        if cgroups::exists(cgroup) { Err(format!("{cgroup} is there")) } else { Ok(()) }
    });
}

fn limited(requests: Value, limits: Value) -> Value {
    containers([with(sleeper("main"), json!({"resources": {"requests": requests, "limits": limits}}))])
}

fn guaranteed(node: &Node) {
    let spec = limited(json!({}), json!({"cpu": "100m", "memory": "64Mi"}));
    let expected = Expected {
        class: "",
        qos: "Guaranteed",
        shares: "102",
        weight: "4",
        quota: Some("10000"),
        memory: Some("67108864"),
    };
    check(node, "guaranteed", spec, &expected);
}

const BURSTABLE: Expected = Expected {
    class: "/burstable",
    qos: "Burstable",
    shares: "51",
    weight: "2",
    quota: Some("20000"),
    memory: Some("100663296"),
};

fn burstable(node: &Node) {
    let spec = limited(json!({"cpu": "50m", "memory": "32Mi"}), json!({"cpu": "200m", "memory": "96Mi"}));
    check(node, "burstable", spec, &BURSTABLE);
    // One container without limits leaves the pod without a limit.
    let mut spec = limited(json!({"cpu": "50m"}), json!({"cpu": "200m", "memory": "96Mi"}));
    spec["containers"].as_array_mut().expect("a list").push(sleeper("other"));
    check(node, "half-limited", spec, &Expected { quota: None, memory: None, ..BURSTABLE });
}

fn best_effort(node: &Node) {
    let expected = Expected {
        class: "/besteffort",
        qos: "BestEffort",
        shares: "2",
        weight: "1",
        quota: None,
        memory: None,
    };
    check(node, "best-effort", containers([sleeper("main")]), &expected);
}

fn pod_level(node: &Node) {
    let spec = containers([sleeper("main"), sleeper("other")]);
    let resources = json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "200m", "memory": "96Mi"}});
    check(node, "pod-level", with(spec, json!({"resources": resources})), &BURSTABLE);
}

fn corrected(node: &Node) {
    let spec = limited(json!({"cpu": "50m", "memory": "32Mi"}), json!({"cpu": "200m", "memory": "96Mi"}));
    let file = node.pod("adopted", spec);
    let pod = file.ready();
    let cgroup = cgroup_of(node, &pod, "/burstable");
    let (file_name, text) = if cgroups::version_2() { ("cpu.weight", "77") } else { ("cpu.shares", "777") };
    cgroups::write(&cgroup, file_name, text);
    assert_eq!(cgroups::value(&cgroup, file_name).as_deref(), Some(text));
    // A new sandbox is created in the existing cgroup.
    node.cri.stop_sandbox(&file.sandbox(pod.uid()).id);
    eventually("the cgroup holds its values again", SOON, || {
        differs(&cgroup, &BURSTABLE).map_or(Ok(()), Err)
    });
    file.ready();
}

fn version(node: &Node) {
    let told = node.metric("kubelet_cgroup_version");
    let events = node.events().expect("a list of events");
    let warned = events.iter().any(|event| event.reason == "CgroupV1" && event.kind == "Warning");
    assert_eq!((told, warned), if cgroups::version_2() { (Ok(2.0), false) } else { (Ok(1.0), true) });
}
