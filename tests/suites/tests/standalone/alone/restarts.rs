//! Kubelets that end, and the state that the next one finds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Alone;
use crate::cri::{NAMESPACE_LABEL, UID_LABEL};
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, shell, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("a_second_kubelet_on_the_same_root_is_refused", second_kubelet),
    ("a_terminated_kubelet_leaves_the_pods_running", terminated),
    ("a_killed_kubelet_finds_all_its_pods_again", killed),
    ("a_kubelet_killed_while_pods_start_makes_none_twice", killed_early),
    ("started_and_ready_outlive_a_killed_kubelet", started_and_ready),
    ("a_container_lost_while_the_kubelet_was_away_is_told_of", lost),
    ("a_finished_job_does_not_run_again", finished_job),
    ("what_changed_while_the_kubelet_was_away_is_made_so", changed_meanwhile),
    ("a_crash_loop_goes_on_after_a_restart", crash_loop),
];

fn second_kubelet(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "second", Options::default());
    let file = node.pod("first", containers([sleeper("main")]));
    let before = file.ready();
    let command = node.other_kubelet(&node.root());
    let mut second = command.start().expect("the binary can be run");
    let ended = second.wait(Duration::from_secs(30)).expect("it ends by itself");
    let said = std::fs::read_to_string(&command.log).expect("its log");
    assert!(!ended.success(), "{ended}: {said}");
    let root = node.root().display().to_string();
    for words in ["in use", &root, &node.kubelet_pid().to_string()] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
    node.pod("after", containers([sleeper("main")])).ready();
    let after = file.look().expect("it is listed");
    assert_eq!((after.uid(), after.status()), (before.uid(), before.status()));
}

/// The runtime's objects of the node: sandboxes and containers with their states.
fn held(node: &Node) -> BTreeMap<String, i32> {
    let sandboxes = node.cri.sandboxes(NAMESPACE_LABEL, &node.namespace);
    let containers = node.cri.containers(NAMESPACE_LABEL, &node.namespace);
    let sandboxes = sandboxes.into_iter().map(|sandbox| (format!("sandbox {}", sandbox.id), sandbox.state));
    let containers = containers.into_iter().map(|one| (format!("container {}", one.id), one.state));
    sandboxes.chain(containers).collect()
}

fn statuses(node: &Node) -> Result<BTreeMap<String, Value>, String> {
    let pods = node.pods()?;
    Ok(pods.iter().map(|pod| (format!("{} {}", pod.name(), pod.uid()), pod.status().clone())).collect())
}

/// Waits until all statuses are as before. On the way a pod may be missing or Pending without any container, but never
/// unready, restarted or ended.
fn adopted(node: &Node, before: &BTreeMap<String, Value>) {
    eventually("all statuses are as they were", LATER, || {
        let now = statuses(node)?;
        let differing: Vec<&String> =
            before.keys().filter(|name| now.get(*name) != before.get(*name)).collect();
        for name in &differing {
            let Some(status) = now.get(*name) else { continue };
            let known = status["containerStatuses"].as_array().is_some_and(|all| !all.is_empty());
            assert!(!known, "{name} was {} and is said to be {status}", before[*name]);
        }
        match differing.first() {
            None => Ok(()),
            Some(name) => Err(format!(
                "{} pods differ, {name}: {:?} was {}",
                differing.len(),
                now.get(*name),
                before[*name]
            )),
        }
    });
    assert_eq!(statuses(node).expect("a list").len(), before.len());
}

fn terminated(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "terminated", Options::default());
    let probed = with(sleeper("main"), json!({"readinessProbe": exec_probe("true")}));
    let files = [node.pod("plain", containers([sleeper("main")])), node.pod("probed", containers([probed]))];
    for file in &files {
        file.ready();
    }
    let (before, there) = (statuses(&node).expect("a list"), held(&node));
    let ended = node.terminate_kubelet();
    assert_eq!(ended.code(), Some(0), "{ended}:\n{}", node.log_tail());
    assert_eq!(held(&node), there, "containers run on");
    node.start_kubelet_again();
    adopted(&node, &before);
    assert_eq!(held(&node), there);
}

fn lost(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "lost", Options::default());
    let file = node.pod("lost", containers([sleeper("main"), sleeper("other")]));
    let before = file.ready();
    node.written_down();
    node.kill_kubelet();
    node.cri.remove_container(before.container_id("main"));
    node.start_kubelet_again();
    let after = file.wait("a new container runs", SOON, |pod| {
        pod.is_running("main") && pod.container_id("main") != before.container_id("main") && pod.is_ready()
    });
    let last = &after.container("main")["lastState"]["terminated"];
    assert_eq!(
        (&last["reason"], &last["exitCode"]),
        (&json!("ContainerStatusUnknown"), &json!(137)),
        "{last}"
    );
    assert!(after.restarts("main") >= 1, "a lost instance counts: {}", after.status());
    assert_eq!(after.container("other"), before.container("other"));
}

/// A startup probe that ran again would not pass.
fn started_and_ready(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "started", Options::default());
    let probes = json!({
        "startupProbe": exec_probe("test -e /gate/starting"),
        "livenessProbe": exec_probe("true"),
        "readinessProbe": exec_probe("true"),
    });
    let startup = with(probes["startupProbe"].clone(), json!({"failureThreshold": 600}));
    let probes = with(probes, json!({"startupProbe": startup}));
    let list = containers([with(sleeper("main"), probes)]);
    let file = node.pod("started", with(list, json!({"gate": true})));
    file.wait("running", SOON, |pod| pod.is_running("main"));
    file.open_gate("starting");
    file.ready();
    file.close_gate("starting");
    node.written_down();
    let before = statuses(&node).expect("a list");
    node.kill_kubelet();
    node.start_kubelet_again();
    adopted(&node, &before);
    holds("it stays so", Duration::from_secs(5), || match statuses(&node)? {
        now if now == before => Ok(()),
        now => Err(format!("{now:?}")),
    });
}

fn killed(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "sigkill", Options::default());
    let number = environment.pods;
    let files: Vec<PodFile<'_>> = (0..number)
        .map(|index| match index % 5 {
            0 => {
                let main = with(sleeper("main"), json!({"readinessProbe": exec_probe("true")}));
                node.pod("probed", containers([main]))
            }
            1 => {
                let init =
                    [shell("setup", "true"), with(sleeper("helper"), json!({"restartPolicy": "Always"}))];
                node.pod("init", with(containers([sleeper("main")]), json!({"initContainers": init})))
            }
            2 => {
                let mount = json!({"volumeMounts": [{"name": "memory", "mountPath": "/memory"}]});
                let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
                let main = with(sleeper("main"), mount);
                node.pod("memory", with(containers([main]), json!({"volumes": volumes})))
            }
            _ => node.pod("plain", containers([sleeper("main"), sleeper("other")])),
        })
        .collect();
    for file in &files {
        file.wait("Running and Ready", LATER, |pod| pod.phase() == "Running" && pod.is_ready());
    }
    let (before, there) = (statuses(&node).expect("a list"), held(&node));
    assert_eq!(before.len(), number);
    node.written_down();
    node.kill_kubelet();
    assert_eq!(held(&node), there, "containers run on");
    node.start_kubelet_again();
    adopted(&node, &before);
    // Long enough for every pod to be synced and relisted at least once.
    holds("nothing is restarted, made or said anew", Duration::from_secs(15), || {
        let (now, holding) = (statuses(&node)?, held(&node));
        if now != before {
            let name = before.keys().find(|name| now.get(*name) != before.get(*name));
            return Err(format!("{name:?}: {:?}", name.map(|name| (&before[name], now.get(name)))));
        }
        if holding == there { Ok(()) } else { Err("other containers or sandboxes are there".to_owned()) }
    });
}

/// The kubelet is killed again and again while calls to the runtime are under way, so that their answers are lost.
fn killed_early(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "killed-early", Options::default());
    let files: Vec<PodFile<'_>> = (0..8)
        .map(|_| {
            let init = shell("setup", "echo setup >>/gate/order");
            let main = shell("main", &format!("echo main >>/gate/order; {}", crate::spec::OBEDIENT));
            node.pod("early", with(containers([main]), json!({"initContainers": [init], "gate": true})))
        })
        .collect();
    for wanted in [1, 6, 12, 18] {
        eventually(&format!("{wanted} sandboxes and containers"), SOON, || match held(&node).len() {
            there if there >= wanted => Ok(()),
            there => Err(format!("{there} are there")),
        });
        node.kill_kubelet();
        node.start_kubelet();
    }
    for file in &files {
        let pod = file.wait("Running and Ready", LATER, |pod| pod.phase() == "Running" && pod.is_ready());
        file.sandbox(pod.uid());
        assert_eq!(file.running(pod.uid()).len(), 1);
        // A container that was created and not started is created anew, as upstream does; a runtime may end one whose
        // caller went away during its start. Both count as restarts, and no instance runs uncounted. What runs may be a
        // moment before its first line.
        eventually("the container that runs has begun", SOON, || {
            let order = file.written("order");
            if order.iter().any(|line| line == "main") { Ok(()) } else { Err(format!("{order:?}")) }
        });
        let order = file.written("order");
        assert_eq!(order.first().map(String::as_str), Some("setup"));
        for name in ["setup", "main"] {
            let runs = order.iter().filter(|line| *line == name).count() as i64;
            assert!((1..=pod.restarts(name) + 1).contains(&runs), "{name}: {runs} runs, {}", pod.status());
        }
    }
}

fn finished_job(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "job", Options::default());
    let job = |name: &str, policy: &str, code: u8| {
        let main = shell("main", &format!("echo run >>/gate/runs; exit {code}"));
        node.pod(name, with(containers([main]), json!({"restartPolicy": policy, "gate": true})))
    };
    let files = [
        (job("well", "OnFailure", 0), "Succeeded"),
        (job("ill", "Never", 5), "Failed"),
        (job("well-removed", "OnFailure", 0), "Succeeded"),
        (job("ill-removed", "Never", 5), "Failed"),
    ];
    let pods: Vec<PodView> = files.iter().map(|(file, phase)| file.phase(phase)).collect();
    let still = || {
        for (file, phase) in &files {
            let pod = file.look()?;
            let runs = file.written("runs").len();
            if pod.phase() != *phase || runs != 1 || !file.running(pod.uid()).is_empty() {
                return Err(format!("{}: {runs} runs, {}", file.base, pod.status()));
            }
        }
        Ok(())
    };
    let away_with = |pod: &PodView| {
        for sandbox in node.cri.sandboxes(UID_LABEL, pod.uid()) {
            node.cri.stop_sandbox(&sandbox.id);
            node.cri.remove_sandbox(&sandbox.id);
        }
    };
    // Removed while the kubelet runs, and while it does not.
    away_with(&pods[2]);
    node.kill_kubelet();
    away_with(&pods[3]);
    node.start_kubelet_again();
    eventually("the next kubelet knows how they ended", SOON, still);
    node.pod("after", containers([sleeper("main")])).ready();
    holds("they do not run again", Duration::from_secs(10), still);
    assert_eq!(node.terminate_kubelet().code(), Some(0));
    node.start_kubelet_again();
    eventually("and the one after it", SOON, still);
    node.pod("after", containers([sleeper("main")])).ready();
    still().expect("they did not run again");
}

fn changed_meanwhile(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "orphans", Options::default());
    let spec = |version: &str| {
        containers([with(sleeper("main"), json!({"env": [{"name": "VERSION", "value": version}]}))])
    };
    let [kept, changes, goes] = ["kept", "changes", "goes"].map(|name| node.pod(name, spec("1")));
    let [stays, old, orphan] = [&kept, &changes, &goes].map(PodFile::ready);
    node.written_down();
    node.kill_kubelet();
    goes.remove();
    changes.write(spec("2"));
    let comes = node.pod("comes", spec("1"));
    node.start_kubelet_again();
    comes.ready();
    goes.stopped(orphan.uid(), LATER);
    let new = changes.wait("the new version", LATER, |pod| pod.uid() != old.uid() && pod.is_ready());
    assert_eq!(changes.running(old.uid()).len(), 0);
    assert_eq!(changes.running(new.uid()).len(), 1);
    let now = kept.look().expect("it is listed");
    assert_eq!((now.uid(), now.status()), (stays.uid(), stays.status()));
    goes.gone(&orphan);
    changes.gone(&old);
}

fn crash_loop(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "crash-loop", Options::default());
    let main = shell("main", "echo run >>/gate/runs; exit 1");
    let file = node.pod("crash", with(containers([main]), json!({"gate": true})));
    let backs_off = |restarts: i64, delay: &str| {
        file.wait(&format!("restart {restarts} and back-off {delay}"), LATER, |pod| {
            let (reason, message) = pod.waiting("main");
            pod.restarts("main") == restarts
                && reason == "CrashLoopBackOff"
                && message.starts_with(&format!("back-off {delay} "))
        })
    };
    backs_off(2, "20s");
    node.kill_kubelet();
    node.start_kubelet_again();
    backs_off(3, "40s");
    assert_eq!(file.written("runs").len(), 4);
}
