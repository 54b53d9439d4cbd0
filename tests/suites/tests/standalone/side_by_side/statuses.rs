//! Containers' ends in statuses, and readiness gates that are never opened.

use serde_json::{Value, json};

use crate::Shared;
use crate::node::{Node, SOON};
use crate::spec::{containers, shell, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("the_end_of_the_log_stands_for_a_message", fallback_to_logs),
    ("a_termination_message_may_be_written_anywhere", other_paths),
    ("long_termination_messages_are_cut", cut),
    ("a_readiness_gate_that_nobody_opens_stays_shut", gate),
    ("the_user_is_told_where_the_runtime_tells_it", user),
];

/// A pod of containers that run once.
fn once(list: impl Into<Vec<Value>>) -> Value {
    with(containers(list), json!({"restartPolicy": "Never"}))
}

fn message<'a>(pod: &'a PodView, container: &str) -> &'a str {
    pod.terminated(container)["message"].as_str().unwrap_or_default()
}

fn fallback_to_logs(node: &Node) {
    let fallback = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let falls = |name: &str, script: &str| with(shell(name, script), fallback.clone());
    let file = node.pod(
        "fallback",
        once([
            falls("failed", "echo one; echo two; exit 3"),
            falls("well", "echo one; exit 0"),
            falls("wrote", "echo one; echo why >/dev/termination-log; exit 3"),
            falls("lines", "seq 1 1000; exit 1"),
            falls("bytes", "head -c 5000 /dev/zero | tr '\\0' x; echo; exit 1"),
            shell("file", "echo one; exit 3"),
        ]),
    );
    let pod = file.phase("Failed");
    assert_eq!(message(&pod, "failed"), "one\ntwo\n");
    assert_eq!(message(&pod, "well"), "");
    assert_eq!(message(&pod, "wrote"), "why\n");
    let lines: String = (921..=1000).map(|number| format!("{number}\n")).collect();
    assert_eq!(message(&pod, "lines"), lines);
    assert_eq!(message(&pod, "bytes"), format!("{}\n", "x".repeat(2047)));
    assert_eq!(message(&pod, "file"), "");
}

fn other_paths(node: &Node) {
    let writes = |name: &str, path: &str| {
        let script = format!("echo {name} >{path}; exit 1");
        with(shell(name, &script), json!({"terminationMessagePath": path}))
    };
    let relative = json!({"terminationMessagePath": "run/why"});
    let relative = with(shell("relative", "echo relative >/run/why; exit 1"), relative);
    let pod = node.pod("paths", once([writes("absolute", "/tmp/my/why"), relative])).phase("Failed");
    assert_eq!(message(&pod, "absolute"), "absolute\n");
    assert_eq!(message(&pod, "relative"), "relative\n");
}

fn cut(node: &Node) {
    // Of 8 KiB the last 4 are read; of those each of four containers may show 3.
    let script = "{ head -c 4096 /dev/zero | tr '\\0' a; head -c 4096 /dev/zero | tr '\\0' b; } >/dev/termination-log; exit 1";
    let pod = node.pod("long", once(["a", "b", "c", "d"].map(|name| shell(name, script)))).phase("Failed");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(message(&pod, name), "b".repeat(3072), "{name}");
    }
}

fn gate(node: &Node) {
    let gates = json!({"readinessGates": [{"conditionType": "example.org/open"}]});
    let file = node.pod("gate", with(containers([sleeper("main")]), gates));
    let pod = file.wait("containers ready", SOON, |pod| pod.condition("ContainersReady")["status"] == "True");
    let ready = pod.condition("Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("ReadinessGatesNotReady")));
    let words = "corresponding condition of pod readiness gate \"example.org/open\" does not exist.";
    assert_eq!(ready["message"], words);
    assert_eq!((pod.phase(), &pod.container("main")["ready"]), ("Running", &json!(true)));
}

fn user(node: &Node) {
    let pod = node.pod("user", containers([sleeper("main")])).ready();
    let told = node.cri.status(pod.container_id("main")).expect("it runs").user.and_then(|user| user.linux);
    let shown = &pod.container("main")["user"];
    match told {
        Some(linux) => {
            let shown = &shown["linux"];
            assert_eq!((shown["uid"].as_i64(), shown["gid"].as_i64()), (Some(linux.uid), Some(linux.gid)));
        }
        None => assert_eq!(shown, &Value::Null),
    }
}
