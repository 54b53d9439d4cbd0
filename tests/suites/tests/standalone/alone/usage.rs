//! What the kubelet tells about usage, beside what the kernel's files say, for pods on a real runtime.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Alone;
use crate::cgroups;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[("figures_are_those_of_the_kernel", figures)];

const MIB: u64 = 1 << 20;
/// A little longer than figures are good.
const FRESH_FOR: Duration = Duration::from_millis(1100);

fn number(cgroup: &str, file: &str) -> u64 {
    let text = cgroups::value(cgroup, file).unwrap_or_else(|| panic!("{cgroup} has no {file}"));
    text.parse().unwrap_or_else(|_| panic!("{file}: {text}"))
}

/// The figure of a line of a file of keys and numbers.
fn keyed(cgroup: &str, file: &str, key: &str) -> u64 {
    let text = cgroups::value(cgroup, file).unwrap_or_else(|| panic!("{cgroup} has no {file}"));
    let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("{file} has no {key}: {text}"))
}

/// Nanoseconds of CPU time of a cgroup.
fn cpu_ns(cgroup: &str) -> u64 {
    match cgroups::version_2() {
        true => keyed(cgroup, "cpu.stat", "usage_usec ") * 1000,
        false => number(cgroup, "cpuacct.usage"),
    }
}

/// The working set of a cgroup, bytes.
fn working_set(cgroup: &str) -> u64 {
    let (usage, inactive) = match cgroups::version_2() {
        true => ("memory.current", "inactive_file "),
        false => ("memory.usage_in_bytes", "total_inactive_file "),
    };
    number(cgroup, usage).saturating_sub(keyed(cgroup, "memory.stat", inactive))
}

fn summary(node: &Node) -> Value {
    serde_json::from_str(&node.told("/stats/summary").expect("an answer")).expect("JSON")
}

/// A container of the only pod of the summary.
fn container<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let all = summary["pods"][0]["containers"].as_array();
    all.into_iter()
        .flatten()
        .find(|one| one["name"] == name)
        .unwrap_or_else(|| panic!("no {name}: {summary}"))
}

/// A reading of CPU time between two readings of the kernel's file.
struct Read {
    before: Instant,
    told_ns: u64,
    after: Instant,
}

fn read(node: &Node, name: &str, cgroup: &str) -> (Read, Value) {
    // What was read before for another page is good no longer.
    std::thread::sleep(FRESH_FOR);
    let (before, least) = (Instant::now(), cpu_ns(cgroup));
    let summary = summary(node);
    let (most, after) = (cpu_ns(cgroup), Instant::now());
    let told_ns = container(&summary, name)["cpu"]["usageCoreNanoSeconds"].as_u64().expect("CPU time");
    assert!(least <= told_ns && told_ns <= most, "{least} {told_ns} {most}");
    (Read { before, told_ns, after }, summary)
}

fn rate(used_ns: u64, over: Duration) -> f64 {
    used_ns as f64 / over.as_secs_f64()
}

fn figures(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "usage", Options::default());
    let limited = |container, cpu: &str| {
        with(container, json!({"resources": {"limits": {"cpu": cpu, "memory": "128Mi"}}}))
    };
    let burns = shell("burns", "trap 'exit 0' TERM; while :; do :; done");
    let keeps = format!(
        "x=$(head -c 20000000 /dev/zero | tr '\\0' x); head -c 8388608 /dev/zero > /file; \
         head -c 200000 /dev/zero | tr '\\0' 'y\\n' ; echo kept; {OBEDIENT}"
    );
    let file =
        node.pod("usage", containers([limited(burns, "200m"), limited(shell("keeps", &keeps), "500m")]));
    let pod = file.ready();
    let own = format!("{}/kubepods/pod{}", node.cgroup(), pod.uid());
    let cgroup = |name: &str| {
        let id = pod.container_id(name);
        format!("{own}/{}", id.rsplit('/').next().expect("an ID"))
    };
    eventually("the log to be written", SOON, || {
        let lines = file.log(&pod, "keeps", 0)?;
        lines
            .iter()
            .any(|line| line.contains("kept"))
            .then_some(())
            .ok_or_else(|| format!("{} lines", lines.len()))
    });

    let burns = cgroup("burns");
    let (first, _) = read(&node, "burns", &burns);
    std::thread::sleep(Duration::from_secs(6));
    let (second, found) = read(&node, "burns", &burns);
    let used = second.told_ns - first.told_ns;
    let (least, most) = (
        rate(used, second.after - first.before),
        rate(used, second.before.saturating_duration_since(first.after)),
    );
    let told = container(&found, "burns")["cpu"]["usageNanoCores"].as_u64().expect("a second reading") as f64;
    assert!(least * 0.99 <= told && told <= most * 1.01, "{least} {told} {most}");
    let of_pod = found["pods"][0]["cpu"]["usageNanoCores"].as_u64().expect("the pod, too") as f64;
    assert!(of_pod >= told * 0.9, "{of_pod} {told}");

    // The container keeps 20 MB and does nothing, so that two readings are alike.
    let keeps = cgroup("keeps");
    eventually("the memory that the kernel tells of", SOON, || {
        let (kernel, found) = (working_set(&keeps), summary(&node));
        let told = container(&found, "keeps")["memory"]["workingSetBytes"].as_u64().ok_or("no figure")?;
        let alike = kernel.abs_diff(told) < MIB && told > 19 * MIB;
        alike.then_some(()).ok_or_else(|| format!("{kernel} {told}"))
    });
    let memory = &container(&found, "keeps")["memory"];
    let (left, set) = (memory["availableBytes"].as_u64(), memory["workingSetBytes"].as_u64());
    assert_eq!(left.zip(set).map(|(left, set)| left + set), Some(128 * MIB), "{memory}");
    let swap = &container(&found, "keeps")["swap"];
    assert!(swap["swapUsageBytes"].is_null() || swap["swapUsageBytes"] == 0, "{swap}");
    let logs = container(&found, "keeps")["logs"]["usedBytes"].as_u64().expect("its log");
    assert!((200_000..1_000_000).contains(&logs), "{logs}");
    assert!(found["pods"][0]["process_stats"]["process_count"].as_u64() >= Some(2), "{found}");
    network(&found, &keeps);
    // The runtime looks at its layers every ten seconds.
    eventually("the writable layer and with it the pod's share of the disk", LATER, || {
        let found = summary(&node);
        let layer = container(&found, "keeps")["rootfs"]["usedBytes"].as_u64().unwrap_or(0);
        let all = found["pods"][0]["ephemeral-storage"]["usedBytes"].as_u64().unwrap_or(0);
        let told = layer >= 8 * MIB && all >= layer + logs;
        told.then_some(()).ok_or_else(|| format!("{layer} {all}"))
    });
    node_itself(&found);
    pages(&node, &pod.container_id("burns").replace("containerd://", ""));
    file.remove();
    file.gone(&pod);
    // A page may be a second old.
    eventually("the pod to be forgotten", SOON, || {
        let found = summary(&node);
        (found["pods"] == json!([])).then_some(()).ok_or_else(|| found["pods"].to_string())
    });
}

/// The interfaces are those of the namespace of a container's process.
fn network(found: &Value, cgroup: &str) {
    let pids = cgroups::value(cgroup, "cgroup.procs").expect("a process");
    let pid = pids.lines().next().expect("a process");
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).expect("it lives");
    let names = text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()));
    let ignored = |name: &String| ["lo", "veth", "docker", "nerdctl"].iter().any(|one| name.starts_with(one));
    let names: BTreeSet<String> = names.filter(|name| !ignored(name)).collect();
    let told = found["pods"][0]["network"]["interfaces"].as_array();
    let told = told.into_iter().flatten().filter_map(|one| Some(one["name"].as_str()?.to_owned()));
    assert_eq!(told.collect::<BTreeSet<_>>(), names);
}

fn node_itself(found: &Value) {
    let node = &found["node"];
    for figure in ["cpu", "memory", "fs", "network", "rlimit", "swap"] {
        assert!(node[figure]["time"].is_string(), "{figure}: {node}");
    }
    assert!(node["runtime"]["imageFs"]["capacityBytes"].as_u64() > Some(0), "{node}");
    let systems = node["systemContainers"].as_array().into_iter().flatten();
    assert!(
        systems.into_iter().any(|one| one["name"] == "pods" && one["cpu"]["usageCoreNanoSeconds"].is_u64())
    );
    let meminfo = fs::read_to_string("/proc/meminfo").expect("the kernel tells");
    let kib = meminfo.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let memory = &node["memory"];
    let sum = memory["availableBytes"].as_u64().zip(memory["workingSetBytes"].as_u64());
    assert_eq!(sum.map(|(left, set)| left + set), kib.map(|kib| kib * 1024), "{memory}");
}

fn pages(node: &Node, burns: &str) {
    let page = node.told("/metrics/resource").expect("a page");
    for name in [
        "node_cpu_usage_seconds_total ",
        "node_memory_working_set_bytes ",
        "container_cpu_usage_seconds_total{container=\"burns\",",
        "container_memory_working_set_bytes{container=\"keeps\",",
        "container_start_time_seconds{container=\"keeps\",",
        "pod_cpu_usage_seconds_total{namespace=",
        "resource_scrape_error 0",
    ] {
        assert!(page.lines().any(|line| line.starts_with(name)), "{name}: {page}");
    }
    let page = node.told("/metrics/cadvisor").expect("a page");
    let of_container = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(burns));
        line.unwrap_or_else(|| panic!("no {name} of {burns}: {page}"))
    };
    for name in [
        "container_cpu_cfs_periods_total",
        "container_cpu_cfs_throttled_periods_total",
        "container_cpu_usage_seconds_total",
        "container_memory_cache",
        "container_memory_rss",
        "container_memory_working_set_bytes",
        "container_processes",
        "container_spec_cpu_quota",
        "container_start_time_seconds",
    ] {
        let line = of_container(name);
        assert!(line.contains("image=\"") && !line.contains("image=\"\""), "{line}");
    }
    assert!(of_container("container_spec_cpu_quota").ends_with(" 20000"));
    assert!(page.contains("machine_cpu_cores{") && page.contains("container_scrape_error 0"));
}
