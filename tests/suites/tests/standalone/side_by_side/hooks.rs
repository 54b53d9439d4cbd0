//! Lifecycle hooks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::process::eventually;

use super::restarts::time;
use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::pod::PodFile;
use crate::spec::{OBEDIENT, STUBBORN, containers, server, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_post_start_hook_runs_before_the_next_container", post_start),
    ("a_failed_post_start_hook_kills_its_container", post_start_fails),
    ("a_pre_stop_hook_runs_before_sigterm", pre_stop),
    ("a_pre_stop_hook_that_never_returns_is_cut_off", pre_stop_hangs),
    ("hooks_sleep", sleeps),
    ("a_hook_asks_another_container_over_http", http),
    ("a_post_start_hook_that_never_returns_does_not_hold_up_the_end", post_start_hangs),
];

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

fn hooked(container: Value, hook: &str, handler: Value) -> Value {
    with(container, json!({"lifecycle": {hook: handler}}))
}

fn pod(grace: u32, list: impl Into<Vec<Value>>) -> Value {
    with(containers(list), json!({"terminationGracePeriodSeconds": grace, "gate": true}))
}

/// Removes the pod, and returns the time from then until none of its processes run.
fn time_to_end(file: &PodFile<'_>, uid: &str) -> Duration {
    let begun = Instant::now();
    file.remove();
    eventually("all containers have ended", SOON, || match file.running(uid) {
        running if running.is_empty() => Ok(()),
        running => Err(format!("{running:?}")),
    });
    begun.elapsed()
}

fn post_start(node: &Node) {
    let first = hooked(sleeper("first"), "postStart", exec("sleep 2; echo hook >>/gate/order"));
    let next = shell("next", &format!("echo next >>/gate/order; {OBEDIENT}"));
    let file = node.pod("post-start", pod(5, [first, next]));
    file.ready();
    assert_eq!(file.written("order"), ["hook", "next"]);
}

fn post_start_fails(node: &Node) {
    let main = hooked(sleeper("main"), "postStart", exec("echo run >>/gate/runs; exit 3"));
    let file = node.pod("post-start-fails", pod(5, [main]));
    let pod = file.wait("backing off", LATER, |pod| {
        pod.restarts("main") >= 1 && pod.waiting("main").0 == "CrashLoopBackOff"
    });
    let event = file.event(&pod, "Warning", "FailedPostStartHook", "PostStartHook failed");
    assert_eq!(event.field, "spec.containers{main}");
    file.event(&pod, "Normal", "Killing", "FailedPostStartHook");
    assert!(file.written("runs").len() >= 2, "once per instance: {:?}", file.written("runs"));
    assert!(!pod.is_ready());
}

fn pre_stop(node: &Node) {
    let script = format!(
        "trap 'echo term >>/gate/order; exit 0' TERM; {}",
        OBEDIENT.split_once("; ").expect("a trap").1
    );
    let main = hooked(shell("main", &script), "preStop", exec("sleep 1; echo hook >>/gate/order"));
    let file = node.pod("pre-stop", pod(120, [main]));
    let pod = file.ready();
    time_to_end(&file, pod.uid());
    assert_eq!(file.written("order"), ["hook", "term"]);
}

fn pre_stop_hangs(node: &Node) {
    let main = hooked(shell("main", STUBBORN), "preStop", exec("sleep 1000"));
    let file = node.pod("pre-stop-hangs", pod(4, [main]));
    let pod = file.ready();
    let took = time_to_end(&file, pod.uid());
    assert!(took >= Duration::from_millis(5500), "the grace and two seconds, not {took:?}");
    assert!(took <= Duration::from_secs(40), "long after the grace was over: {took:?}");
    file.event(&pod, "Warning", "FailedPreStopHook", "PreStopHook failed");
}

fn sleeps(node: &Node) {
    let sleep = |seconds: u32| json!({"sleep": {"seconds": seconds}});
    let first = with(sleeper("first"), json!({"lifecycle": {"postStart": sleep(3), "preStop": sleep(4)}}));
    let file = node.pod("sleeps", pod(60, [first, sleeper("next")]));
    let pod = file.ready();
    let started = |name: &str| time(&pod.container(name)["state"]["running"]["startedAt"]);
    let between = started("next").duration_since(started("first")).as_secs();
    assert!(between >= 3, "{between} s between the starts");
    let took = time_to_end(&file, pod.uid());
    assert!(took >= Duration::from_millis(3900), "ended after {took:?}");
    assert!(took <= Duration::from_secs(45), "ended after {took:?}");
}

fn http(node: &Node) {
    let get = json!({"httpGet": {"port": 8080, "path": "/from-a-hook"}});
    let client = hooked(sleeper("client"), "postStart", get);
    // The server may not listen yet when it is first asked: then the client is started again.
    let file = node.pod("http-hook", pod(5, [server("web"), client]));
    let pod = file.wait("Running and Ready", LATER, |pod| pod.phase() == "Running" && pod.is_ready());
    eventually("the request has been logged", SOON, || {
        let log = file.log(&pod, "web", 0)?;
        if log.iter().any(|line| line.contains("/from-a-hook")) { Ok(()) } else { Err(log.join("; ")) }
    });
}

fn post_start_hangs(node: &Node) {
    let main = hooked(sleeper("main"), "postStart", exec("echo hook >>/gate/hook; sleep 1000"));
    let file = node.pod("post-start-hangs", pod(5, [main, sleeper("next")]));
    eventually("the hook runs", SOON, || {
        if file.written("hook").is_empty() { Err("it does not".to_owned()) } else { Ok(()) }
    });
    let pod = file.wait("waiting for its hook", SOON, |pod| {
        pod.phase() == "Pending" && pod.waiting("main").0 == "ContainerCreating"
    });
    let took = time_to_end(&file, pod.uid());
    assert!(took <= Duration::from_secs(60), "ended after {took:?}");
    file.stopped(pod.uid(), SOON);
}
