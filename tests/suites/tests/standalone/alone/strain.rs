//! Many manifests at once, and a kubelet that is stopped for a while.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Alone;
use crate::cri::NAMESPACE_LABEL;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("forty_manifests_come_change_and_go_at_once", crowd),
    ("a_stopped_kubelet_goes_on_as_if_nothing_had_been", frozen),
];

const CROWD: usize = 40;
/// In KiB. A debug build with forty pods has about a hundred thousand; a leak or an unbounded queue has no bound.
const RSS_KIB_MAX: u64 = 400_000;

fn version(version: &str) -> Value {
    containers([with(sleeper("main"), json!({"env": [{"name": "VERSION", "value": version}]}))])
}

fn rss_kib(node: &Node) -> u64 {
    let status =
        fs::read_to_string(format!("/proc/{}/status", node.kubelet_pid())).expect("the kubelet runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has one");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Asserts that no actor has crashed, and no mailbox is fuller than its bound.
fn actors_are_well(node: &Node) {
    let tree = node.read_only.json("/supervision").expect("a tree");
    for actor in tree["actors"].as_array().expect("actors") {
        assert_eq!(actor["restarts"], 0, "{actor}");
        assert!(actor["mailboxDepth"].as_u64() <= actor["mailboxBound"].as_u64(), "{actor}");
    }
}

fn crowd(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "crowd", Options::default());
    let quiet: Vec<PodFile<'_>> = (0..2).map(|_| node.pod("quiet", version("1"))).collect();
    let before: Vec<PodView> = quiet.iter().map(PodFile::ready).collect();
    let mut files: Vec<PodFile<'_>> = (0..CROWD).map(|_| node.pod("crowd", version("1"))).collect();
    let all_ready = |files: &[PodFile<'_>], old: &BTreeMap<String, String>| {
        let mut uids = BTreeMap::new();
        for file in files {
            let pod = file.wait("Running and Ready", LATER, |pod| {
                pod.is_ready() && old.get(&file.base).is_none_or(|uid| uid != pod.uid())
            });
            uids.insert(file.base.clone(), pod.uid().to_owned());
        }
        uids
    };
    let first = all_ready(&files, &BTreeMap::new());
    actors_are_well(&node);
    // All at once: half of the pods are removed, half are changed, and as many are added as removed.
    let changed = files.split_off(CROWD / 2);
    let mut old = BTreeMap::new();
    for file in &changed {
        file.write(version("2"));
        old.insert(file.base.clone(), first[&file.base].clone());
    }
    drop(files);
    let come: Vec<PodFile<'_>> = (0..CROWD / 2).map(|_| node.pod("new", version("1"))).collect();
    all_ready(&changed, &old);
    all_ready(&come, &BTreeMap::new());
    eventually("nothing else runs", LATER, || {
        let running = node.cri.running(NAMESPACE_LABEL, &node.namespace).len();
        if running == CROWD + quiet.len() { Ok(()) } else { Err(format!("{running} containers run")) }
    });
    actors_are_well(&node);
    let rss = rss_kib(&node);
    assert!(rss < RSS_KIB_MAX, "{rss} KiB");
    drop((changed, come));
    eventually("nothing of them is left", LATER, || {
        let pods = node.pods()?.len();
        let sandboxes = node.cri.sandboxes(NAMESPACE_LABEL, &node.namespace).len();
        let (dirs, logs) = (entries(&node.root().join("pods")), entries(&node.logs()));
        match (pods, sandboxes, dirs, logs) {
            (2, 2, 2, 2) => Ok(()),
            other => Err(format!("pods, sandboxes, directories, logs: {other:?}")),
        }
    });
    for (file, before) in quiet.iter().zip(&before) {
        let now = file.look().expect("it is listed");
        assert_eq!((now.uid(), now.status()), (before.uid(), before.status()), "nobody has touched it");
    }
    actors_are_well(&node);
}

fn entries(dir: &std::path::Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

fn freeze() -> Duration {
    let asked = std::env::var("UNDERSTUDY_FREEZE_SECONDS").ok().and_then(|text| text.parse().ok());
    // Longer than the watchdog tolerates a thread that does not answer.
    Duration::from_secs(asked.unwrap_or(33))
}

/// Lets the kubelet go on, also when the case fails: a stopped process would keep everything that it holds.
struct Stopped<'a>(&'a Node);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal_kubelet(Signal::CONT);
    }
}

fn frozen(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "frozen-kubelet", Options::default());
    // One failure would settle these probes, and lead to a restart.
    let probes = json!({"readinessProbe": exec_probe("true"), "livenessProbe": exec_probe("true")});
    let probed: Vec<PodFile<'_>> =
        (0..4).map(|_| node.pod("probed", containers([with(sleeper("main"), probes.clone())]))).collect();
    let [victim, leaves] = ["victim", "leaves"].map(|name| node.pod(name, containers([sleeper("main")])));
    let before: Vec<PodView> = probed.iter().map(PodFile::ready).collect();
    let (victim_pod, leaving) = (victim.ready(), leaves.ready());
    let pid = node.cri.pid(victim_pod.container_id("main"));
    let stopped = Stopped(&node);
    node.signal_kubelet(Signal::STOP);
    let comes = node.pod("comes", containers([sleeper("main")]));
    leaves.remove();
    let pid = Pid::from_raw(pid.try_into().expect("a process ID")).expect("a positive process ID");
    kill_process(pid, Signal::KILL).expect("its process is there");
    holds("pods run without their kubelet", freeze(), || {
        let running = probed.iter().zip(&before).filter(|(file, pod)| file.running(pod.uid()).len() == 1);
        if running.count() == probed.len() { Ok(()) } else { Err("one has ended".to_owned()) }
    });
    drop(stopped);
    comes.ready();
    leaves.stopped(leaving.uid(), LATER);
    let again = victim.wait("restarted", LATER, |pod| pod.restarts("main") == 1 && pod.is_ready());
    assert_eq!(victim.running(again.uid()).len(), 1);
    holds("nothing else has changed", Duration::from_secs(5), || {
        for (file, before) in probed.iter().zip(&before) {
            let now = file.look()?;
            if now.status() != before.status() {
                return Err(format!("{} was {}", now.status(), before.status()));
            }
        }
        node.assert_alive();
        Ok(())
    });
    assert_eq!(victim.look().expect("it is listed").restarts("main"), 1);
    leaves.gone(&leaving);
    actors_are_well(&node);
}
