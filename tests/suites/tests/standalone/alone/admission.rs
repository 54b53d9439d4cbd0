//! Pods that the node refuses, and pods that are preempted for others.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::process::eventually;

use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, shell, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("a_pod_that_asks_for_too_much_fails_and_others_run", too_much),
    ("places_ports_and_labels_decide_who_is_admitted", misfits),
    ("only_allowed_sysctls_are_set", sysctls),
    ("a_critical_pod_finds_room", preemption),
    ("what_runs_is_not_judged_again", restarts),
];

/// A static pod is critical: the kubelet looks for pods to preempt for it, and here there are none.
const UNEXPECTED: &str = "UnexpectedAdmissionError";
const NO_PLACE: &str = "no set of running pods found to reclaim resources: [(res: pods, q: 1), ]";

/// Waits until the pod is refused, and asserts that status and event have this reason and message.
#[track_caller]
fn refused(file: &PodFile<'_>, reason: &str, message: &str) -> PodView {
    let pod = file.phase("Failed");
    assert_eq!(pod.text("/status/reason"), reason);
    let told = pod.text("/status/message");
    assert!(told.starts_with("Pod was rejected: ") && told.contains(message), "{told}");
    let event = eventually(&format!("event {reason}"), SOON, || {
        let events = file.events(pod.uid())?;
        events.iter().find(|event| event.reason == reason).cloned().ok_or_else(|| format!("{events:?}"))
    });
    assert_eq!(event.kind, "Warning");
    assert_eq!(format!("Pod was rejected: {}", event.message), told);
    assert!(file.sandboxes(pod.uid()).is_empty(), "nothing was made for it");
    pod
}

fn requesting(cpu: &str) -> Value {
    containers([with(sleeper("main"), json!({"resources": {"requests": {"cpu": cpu}}}))])
}

fn too_much(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "too-much", Options::default());
    let other = node.pod("other", requesting("10m"));
    let before = other.ready();
    let greedy = node.pod("greedy", requesting("100000"));
    refused(&greedy, UNEXPECTED, "no set of running pods found to reclaim resources: [(res: cpu, q: ");
    assert!(node.metric("kubelet_admission_rejections_total").expect("it is counted") >= 1.0);
    node.pod("after", requesting("10m")).ready();
    assert_eq!(other.look().expect("it is listed").status(), before.status());
    // With a smaller request it is another pod.
    greedy.write(requesting("10m"));
    greedy.ready();
}

fn misfits(environment: &Arc<Environment>) {
    let options = Options { kubelet: json!({"maxPods": 2}), ..Options::default() };
    let node = Node::alone(environment, "misfits", options);
    let on_port = || with(sleeper("main"), json!({"ports": [{"containerPort": 80, "hostPort": 41987}]}));
    let first = node.pod("first", containers([on_port()]));
    first.ready();
    refused(
        &node.pod("rival", containers([on_port()])),
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports",
    );
    let elsewhere =
        with(containers([sleeper("main")]), json!({"nodeSelector": {"kubernetes.io/arch": "other"}}));
    refused(
        &node.pod("elsewhere", elsewhere),
        "NodeAffinity",
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
    );
    let here = with(containers([sleeper("main")]), json!({"nodeSelector": {"kubernetes.io/os": "linux"}}));
    // It keeps its place while its file is there.
    let here = node.pod("here", here);
    here.ready();
    let third = node.pod("third", containers([sleeper("main")]));
    refused(&third, UNEXPECTED, NO_PLACE);
    first.look().expect("it is listed");
}

fn sysctls(environment: &Arc<Environment>) {
    let options = Options { kubelet: json!({"allowedUnsafeSysctls": ["kernel.msg*"]}), ..Options::default() };
    let node = Node::alone(environment, "sysctls", options);
    let setting = |name: &str, value: &str| {
        let sysctls = json!([{"name": name, "value": value}]);
        let script =
            format!("cat /proc/sys/{} > /gate/value; {}", name.replace('.', "/"), crate::spec::OBEDIENT);
        with(
            containers([shell("main", &script)]),
            json!({"gate": true, "securityContext": {"sysctls": sysctls}}),
        )
    };
    for (name, value) in [("kernel.msgmax", "16384"), ("net.ipv4.ip_unprivileged_port_start", "81")] {
        let pod = node.pod("allowed", setting(name, value));
        pod.ready();
        eventually("its value is set", SOON, || {
            let written = pod.written("value");
            if written == [value] { Ok(()) } else { Err(format!("{written:?}")) }
        });
    }
    let forbidden = node.pod("forbidden", setting("net.core.somaxconn", "100"));
    refused(&forbidden, "SysctlForbidden", "forbidden sysctl: \"net.core.somaxconn\" not allowlisted");
}

fn critical() -> Value {
    with(containers([sleeper("main")]), json!({"priorityClassName": "system-node-critical"}))
}

fn preemption(environment: &Arc<Environment>) {
    let options = Options { kubelet: json!({"maxPods": 2}), ..Options::default() };
    let node = Node::alone(environment, "preemption", options);
    let vital = node.pod("vital", critical());
    let before = vital.ready();
    let plain = node.pod("plain", containers([sleeper("main")]));
    let victim = plain.ready();
    let more = node.pod("more", critical());
    more.ready();
    let ended = plain.phase("Failed");
    assert_eq!(ended.text("/status/reason"), "Preempting");
    assert_eq!(ended.text("/status/message"), "Preempted in order to admit critical pod");
    assert_eq!(ended.condition("DisruptionTarget")["reason"], "TerminationByKubelet");
    assert!(plain.running(victim.uid()).is_empty(), "it has ended");
    let events = plain.events(victim.uid()).expect("a list");
    let told = events.iter().find(|event| event.reason == "Preempting").expect("an event");
    assert_eq!(told.message, "Preempted in order to admit critical pod");
    assert_eq!(vital.look().expect("it is listed").status(), before.status());
}

/// After a restart the order of the files would give the places to other pods.
fn restarts(environment: &Arc<Environment>) {
    let options = Options { kubelet: json!({"maxPods": 2}), ..Options::default() };
    let node = Node::alone(environment, "judged", options);
    let files =
        [node.pod("one", containers([sleeper("main")])), node.pod("two", containers([sleeper("main")]))];
    let before: Vec<PodView> = files.iter().map(PodFile::ready).collect();
    node.written_down();
    node.kill_kubelet();
    let late = node.pod("a-late", containers([sleeper("main")]));
    node.start_kubelet_again();
    refused(&late, UNEXPECTED, NO_PLACE);
    for (file, before) in files.iter().zip(&before) {
        let now = file.ready();
        assert_eq!((now.uid(), now.status()), (before.uid(), before.status()));
    }
}
