//! The runtime is stopped, killed and frozen under a running kubelet.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use testkit::process::{Port, eventually, has_ended, holds};

use crate::Alone;
use crate::cri::NAMESPACE_LABEL;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, server, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("a_stopped_runtime_harms_no_pod", stopped),
    ("a_killed_runtime_harms_no_pod", killed),
    ("a_frozen_runtime_harms_no_pod", frozen),
    ("a_kubelet_may_start_before_its_runtime", kubelet_first),
];

fn stopped(environment: &Arc<Environment>) {
    outage(environment, "stopped", |environment| {
        let pid = environment.containerd_pid();
        kill_process(pid_of(pid), Signal::TERM).expect("containerd runs");
        eventually("containerd has ended", SOON, || {
            has_ended(pid).then_some(()).ok_or_else(|| "it has not".to_owned())
        });
    });
}

fn killed(environment: &Arc<Environment>) {
    outage(environment, "killed", |environment| environment.containerd("kill"));
}

fn frozen(environment: &Arc<Environment>) {
    outage(environment, "frozen", |environment| environment.containerd("pause"));
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().expect("a process ID")).expect("a positive process ID")
}

/// Brings the runtime back, also when the case fails.
struct Back<'a>(&'a Environment);

impl Back<'_> {
    fn bring(&self) {
        // Resumes it if it is frozen, and starts it if it has ended.
        let pid = Pid::from_raw(self.0.containerd_pid().try_into().expect("a process ID"));
        let _gone = kill_process(pid.expect("a positive process ID"), Signal::CONT);
        self.0.containerd("start");
    }
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.bring();
        }
    }
}

fn outage(environment: &Arc<Environment>, name: &str, begin: impl Fn(&Environment)) {
    let node = Node::alone(environment, name, Options::default());
    let back = Back(environment);
    let probed =
        with(server("main"), json!({"readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 2}}));
    // The pod's probe needs the runtime, whose absence must not count as the container's failure.
    // The outage is long enough for many periods; a single answer that comes late on a busy machine settles nothing.
    let alive =
        with(exec_probe("true"), json!({"timeoutSeconds": 3, "periodSeconds": 1, "failureThreshold": 3}));
    let live = with(sleeper("main"), json!({"livenessProbe": alive}));
    let web = node.pod("web", containers([probed]));
    let others = [node.pod("plain", containers([sleeper("main")])), node.pod("live", containers([live]))];
    let victim = node.pod("victim", containers([sleeper("main")]));
    let leaves = node.pod("leaves", containers([sleeper("main")]));
    let web_pod = web.ready();
    let quiet: Vec<(&PodFile<'_>, PodView)> = others.iter().map(|file| (file, file.ready())).collect();
    let (victim_pod, leaving) = (victim.ready(), leaves.ready());
    let victim_pid = node.cri.pid(victim_pod.container_id("main"));
    let processes: BTreeMap<String, u32> =
        [(&web, &web_pod), (quiet[0].0, &quiet[0].1), (quiet[1].0, &quiet[1].1)]
            .iter()
            .map(|(file, pod)| (file.base.clone(), node.cri.pid(pod.container_id("main"))))
            .collect();

    begin(environment);
    let begun = Instant::now();
    // Meanwhile one manifest is added, one is removed, and one container dies.
    let comes = node.pod("comes", containers([sleeper("main")]));
    leaves.remove();
    kill_process(pid_of(victim_pid), Signal::KILL).expect("its process is there");
    let address: IpAddr = web_pod.ip().parse().expect("an address");
    let told = |pid: u32| test_kill_process(pid_of(pid)).map_err(|error| error.to_string());
    let runs_on = || {
        for (name, pid) in &processes {
            told(*pid).map_err(|error| format!("the process of {name}: {error}"))?;
        }
        Port(SocketAddr::new(address, 8080)).text("/index.html")?;
        let known = [(&web, &web_pod), (quiet[0].0, &quiet[0].1), (quiet[1].0, &quiet[1].1)];
        for (file, before) in known {
            let now = file.look()?;
            if now.status() != before.status() {
                return Err(format!(
                    "{}: {}, before the outage {}",
                    file.base,
                    now.status(),
                    before.status()
                ));
            }
        }
        Ok(())
    };
    eventually("the node says what is wrong", Duration::from_secs(60).max(environment.outage), || {
        runs_on().expect("pods run on");
        runtime_problem(&node)
    });
    holds("pods run on", environment.outage.saturating_sub(begun.elapsed()), runs_on);
    assert!(runtime_problem(&node).is_ok(), "it says so to the end: {:?}", runtime_problem(&node));

    back.bring();
    comes.ready();
    leaves.stopped(leaving.uid(), LATER);
    let restarted = victim.wait("restarted", LATER, |pod| pod.restarts("main") == 1 && pod.is_ready());
    assert_ne!(restarted.container_id("main"), victim_pod.container_id("main"));
    eventually("nothing is said to be wrong any more", LATER, || match runtime_problem(&node) {
        Err(_) => Ok(()),
        Ok(problem) => Err(problem),
    });
    runs_on().expect("pods run on");
    no_duplicates(&node);
    restarts_of_actors(&node);
}

fn kubelet_first(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "kubelet-first", Options::default());
    let back = Back(environment);
    let files =
        [node.pod("one", containers([sleeper("main")])), node.pod("other", containers([server("main")]))];
    let before: Vec<PodView> = files.iter().map(PodFile::ready).collect();
    node.written_down();
    node.kill_kubelet();
    environment.containerd("kill");
    let comes = node.pod("comes", containers([sleeper("main")]));
    node.start_kubelet();
    eventually("the node says what is wrong", SOON, || runtime_problem(&node));
    // A runtime that does not answer does not mean that nothing runs: the last known state of a pod stays.
    let as_before = || {
        for (file, before) in files.iter().zip(&before) {
            let pod = file.look()?;
            if pod.status() != before.status() {
                return Err(format!("{}, before the outage {}", pod.status(), before.status()));
            }
        }
        Ok(())
    };
    // The runtime's failure may be seen before the manifests are read.
    eventually("the pods are listed", SOON, as_before);
    holds("the pods are as they were", Duration::from_secs(5), as_before);
    back.bring();
    eventually("the runtime answers", SOON, || match runtime_problem(&node) {
        Err(_) => Ok(()),
        Ok(problem) => Err(problem),
    });
    holds("the pods are as they were", Duration::from_secs(10), as_before);
    comes.ready();
    as_before().expect("the pods are as they were");
    no_duplicates(&node);
}

/// The problem of the runtime in `/supervision`, while there is one.
fn runtime_problem(node: &Node) -> Result<String, String> {
    node.assert_alive();
    let tree = node.read_only.json("/supervision")?;
    let actors = tree["actors"].as_array().into_iter().flatten();
    let pleg = actors.into_iter().find(|actor| actor["kind"] == "Pleg").ok_or("no Pleg in the tree")?;
    let runtime = &pleg["observed"]["runtime"];
    match runtime["problem"].as_str() {
        Some(problem) if !problem.is_empty() => Ok(problem.to_owned()),
        _ => Err(format!("no problem is told: {runtime}")),
    }
}

fn no_duplicates(node: &Node) {
    let mut ready: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for sandbox in node.cri.sandboxes(NAMESPACE_LABEL, &node.namespace) {
        if sandbox.state == 0 {
            ready.entry(sandbox.metadata.unwrap_or_default().uid).or_default().push(sandbox.id);
        }
    }
    let twice: Vec<_> = ready.iter().filter(|(_, ids)| ids.len() != 1).collect();
    assert!(twice.is_empty(), "more than one sandbox for a pod: {twice:?}");
    let running = node.cri.running(NAMESPACE_LABEL, &node.namespace);
    assert_eq!(running.len(), ready.len(), "one container each: {running:?}");
}

/// No subsystem crashes because the runtime is away.
fn restarts_of_actors(node: &Node) {
    let tree = node.read_only.json("/supervision").expect("the tree");
    let actors: Vec<&Value> = tree["actors"].as_array().into_iter().flatten().collect();
    let restarted: Vec<_> = actors.iter().filter(|actor| actor["restarts"] != 0).collect();
    assert!(restarted.is_empty(), "{restarted:?}");
}
