//! Containers' own restart policies and rules, and the active deadline.

use serde_json::{Value, json};

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::spec::{OBEDIENT, containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_rule_restarts_what_the_policy_would_not", rule),
    ("one_exit_restarts_all_containers_in_place", restart_all),
    ("a_container_has_a_policy_of_its_own", own_policy),
    ("a_pod_that_is_active_for_too_long_fails", deadline),
];

fn rules(action: &str, codes: &[i32]) -> Value {
    json!({
        "restartPolicy": "Never",
        "restartPolicyRules": [{"action": action, "exitCodes": {"operator": "In", "values": codes}}],
    })
}

fn rule(node: &Node) {
    let script = "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1 && exit 1; exit 42";
    let main = with(shell("main", script), rules("Restart", &[42]));
    let file = node.pod("rule", with(containers([main]), json!({"restartPolicy": "Never", "gate": true})));
    let pod = file.phase("Failed");
    assert_eq!((pod.restarts("main"), file.written("runs").len()), (1, 2));
    assert_eq!(pod.terminated("main")["exitCode"], 1, "{}", pod.status());
}

fn restart_all(node: &Node) {
    let script = format!(
        "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1 || {{ sleep 3; exit 88; }}; {OBEDIENT}"
    );
    let watcher = with(shell("watcher", &script), rules("RestartAllContainers", &[88]));
    let main = shell("main", &format!("echo run >>/gate/mains; {OBEDIENT}"));
    let spec = with(
        containers([main, watcher]),
        json!({
            "restartPolicy": "Never",
            "gate": true,
            "initContainers": [shell("init", "echo run >>/gate/inits")],
        }),
    );
    let file = node.pod("restart-all", spec);
    let pod = file.wait("all restarted and Ready", LATER, |pod| {
        pod.is_ready() && ["main", "watcher"].iter().all(|name| pod.restarts(name) == 1)
    });
    for written in ["runs", "mains", "inits"] {
        assert_eq!(file.written(written).len(), 2, "{written}");
    }
    assert_eq!(pod.phase(), "Running");
    let last = &pod.container("main")["lastState"]["terminated"];
    assert_eq!(
        (&last["reason"], &last["exitCode"]),
        (&json!("RestartingAllContainers"), &json!(137)),
        "{last}"
    );
    assert_eq!(pod.condition("AllContainersRestarting")["status"], "False", "{}", pod.status());
    assert!(file.sandbox(pod.uid()).metadata.is_some_and(|metadata| metadata.attempt == 0), "in place");
    assert_eq!(file.running(pod.uid()).len(), 2);
}

fn own_policy(node: &Node) {
    let script = "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1 || exit 1; sleep 1000";
    let main = with(shell("main", script), json!({"restartPolicy": "Always"}));
    let spec = with(containers([main, sleeper("other")]), json!({"restartPolicy": "Never", "gate": true}));
    let file = node.pod("own-policy", spec);
    let pod = file.wait("restarted", SOON, |pod| pod.restarts("main") == 1 && pod.is_running("main"));
    assert_eq!((pod.phase(), pod.restarts("other")), ("Running", 0));
}

fn deadline(node: &Node) {
    let spec = with(containers([sleeper("main")]), json!({"activeDeadlineSeconds": 8}));
    let file = node.pod("deadline", spec);
    let pod = file.phase("Failed");
    let message = "Pod was active on the node longer than the specified deadline";
    let status = pod.status();
    assert_eq!((&status["reason"], &status["message"]), (&json!("DeadlineExceeded"), &json!(message)));
    file.event(&pod, "Normal", "DeadlineExceeded", message);
    assert!(file.running(pod.uid()).is_empty());
}
