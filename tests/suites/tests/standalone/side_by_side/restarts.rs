//! Restart policies and crash loops.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::spec::{containers, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_crash_loop_backs_off", crash_loop),
    ("always_restarts_what_ended_well", always),
    ("on_failure_restarts_what_failed_until_it_succeeds", on_failure),
    ("never_restarts_nothing", never),
    ("a_termination_message_is_told", termination_message),
    ("a_job_completes", job),
    ("one_container_of_two_is_restarted", one_of_two),
];

fn policy(name: &str, spec: Value) -> Value {
    with(spec, json!({"restartPolicy": name, "gate": true}))
}

/// Parses a time of a status.
pub fn time(value: &Value) -> Timestamp {
    let text = value.as_str().unwrap_or_else(|| panic!("a time: {value}"));
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn crash_loop(node: &Node) {
    let file =
        node.pod("crash", policy("Always", containers([shell("main", "echo run >>/gate/runs; exit 3")])));
    let backs_off = |restarts: i64, delay: &str| {
        let pod = file.wait(&format!("back-off {delay}"), LATER, |pod| {
            pod.restarts("main") == restarts && pod.waiting("main").0 == "CrashLoopBackOff"
        });
        assert_eq!(
            pod.waiting("main").1,
            format!("back-off {delay} restarting failed container=main pod={}", pod.reference())
        );
        let last = &pod.container("main")["lastState"]["terminated"];
        assert_eq!((&last["exitCode"], &last["reason"]), (&json!(3), &json!("Error")), "{last}");
        assert_eq!(pod.phase(), "Running");
        assert_eq!(pod.condition("Ready")["reason"], "ContainersNotReady");
        assert_eq!(file.written("runs").len() as i64, restarts + 1);
        pod
    };
    let first = backs_off(1, "10s");
    let ended = time(&first.container("main")["lastState"]["terminated"]["finishedAt"]);
    let second = backs_off(2, "20s");
    let begun = time(&second.container("main")["lastState"]["terminated"]["startedAt"]);
    let waited = begun.duration_since(ended).as_secs();
    // Times in a status are whole seconds.
    assert!((9..=40).contains(&waited), "waited {waited} s for the second restart, from {ended} to {begun}");
    let message = format!("Back-off restarting failed container main in pod {}", first.reference());
    let event = file.event(&first, "Warning", "BackOff", &message);
    assert_eq!((event.message, event.field.as_str()), (message, "spec.containers{main}"));
}

fn always(node: &Node) {
    let script = "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1 || exit 0; sleep 1000";
    let file = node.pod("always", policy("Always", containers([shell("main", script)])));
    let pod =
        file.wait("restarted and running", SOON, |pod| pod.restarts("main") == 1 && pod.is_running("main"));
    let main = pod.container("main");
    let last = &main["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&json!(0), &json!("Completed")), "{last}");
    let pause = time(&main["state"]["running"]["startedAt"]).duration_since(time(&last["finishedAt"]));
    assert!(pause.as_secs() <= 5, "the first restart comes at once, not after {pause:#}");
}

fn on_failure(node: &Node) {
    let script = "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1";
    let file = node.pod("on-failure", policy("OnFailure", containers([shell("main", script)])));
    let pod = file.phase("Succeeded");
    assert_eq!((pod.restarts("main"), file.written("runs").len()), (1, 2));
    assert_eq!(pod.terminated("main")["reason"], "Completed", "{}", pod.status());
}

fn never(node: &Node) {
    let script = "echo run >>/gate/runs; exit 9";
    let file = node.pod("never", policy("Never", containers([shell("main", script)])));
    let pod = file.phase("Failed");
    let ended = pod.terminated("main");
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(9), &json!("Error")), "{ended}");
    assert_eq!(pod.condition("Ready")["reason"], "PodFailed");
    assert_eq!((pod.restarts("main"), file.written("runs").len()), (0, 1));
}

fn termination_message(node: &Node) {
    let script = "echo the reason >/dev/termination-log; exit 9";
    let file = node.pod("message", policy("Never", containers([shell("main", script)])));
    let pod = file.phase("Failed");
    assert_eq!(pod.terminated("main")["message"], "the reason\n", "{}", pod.status());
}

fn job(node: &Node) {
    let spec = policy("OnFailure", containers([shell("main", "echo run >>/gate/runs; job 1")]));
    let file = node.pod("job", spec);
    let pod = file.phase("Succeeded");
    assert_eq!(file.log(&pod, "main", 0).expect("its log is kept"), ["started", "done"]);
    for kind in ["Ready", "ContainersReady"] {
        let condition = pod.condition(kind);
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("False"), &json!("PodCompleted")),
            "{condition}"
        );
    }
    eventually("its sandbox is stopped", SOON, || {
        let ready = file.sandboxes(pod.uid()).into_iter().filter(|sandbox| sandbox.state == 0).count();
        if ready == 0 { Ok(()) } else { Err(format!("{ready} sandboxes are ready")) }
    });
    holds("it stays as it is", Duration::from_secs(5), || {
        let now = file.look()?;
        if now.status() == pod.status() && file.written("runs").len() == 1 {
            Ok(())
        } else {
            Err(now.status().to_string())
        }
    });
}

fn one_of_two(node: &Node) {
    let script = "echo run >>/gate/runs; test $(wc -l </gate/runs) -gt 1 || exit 1; sleep 1000";
    let file = node.pod("two", policy("Always", containers([shell("main", script), sleeper("other")])));
    let pod = file.wait("both running", SOON, |pod| {
        pod.restarts("main") == 1 && pod.is_running("main") && pod.is_running("other")
    });
    assert_eq!(pod.restarts("other"), 0);
    assert!(file.sandbox(pod.uid()).metadata.is_some_and(|metadata| metadata.attempt == 0));
}
