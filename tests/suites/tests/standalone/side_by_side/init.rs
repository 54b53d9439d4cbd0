//! Init containers and sidecars.

use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::spec::{containers, exec_probe, shell, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[
    ("a_failing_init_container_is_retried_with_back_off", retried),
    ("init_containers_run_one_after_another", in_order),
    ("a_failed_init_container_fails_a_pod_that_never_restarts", never),
    ("a_sidecar_starts_before_the_main_container_and_outlives_it", sidecar_outlives),
    ("a_sidecar_holds_back_the_main_container_until_it_has_started", sidecar_gates),
    ("a_job_with_a_sidecar_completes", sidecar_of_a_job),
];

fn with_init(spec: Value, init: impl Into<Vec<Value>>) -> Value {
    with(spec, json!({"initContainers": init.into(), "gate": true}))
}

fn sidecar(container: Value) -> Value {
    with(container, json!({"restartPolicy": "Always"}))
}

fn in_order(node: &Node) {
    let wait = "while ! test -e /gate/open; do sleep 0.1; done";
    let init = [
        shell("one", "echo one >>/gate/order; sleep 1; echo one ended >>/gate/order"),
        shell("two", &format!("echo two >>/gate/order; {wait}; echo two ended >>/gate/order")),
        shell("three", "echo three >>/gate/order"),
    ];
    let main = shell("main", &format!("echo main >>/gate/order; {}", crate::spec::OBEDIENT));
    let file = node.pod("init", with_init(containers([main]), init));

    let pod = file.wait("the second init container running", SOON, |pod| pod.is_running("two"));
    assert_eq!(pod.phase(), "Pending");
    assert_eq!(pod.waiting("main").0, "PodInitializing", "{}", pod.status());
    assert_eq!(pod.waiting("three").0, "PodInitializing", "{}", pod.status());
    let initialized = pod.condition("Initialized");
    assert_eq!(
        (&initialized["status"], &initialized["reason"]),
        (&json!("False"), &json!("ContainersNotInitialized")),
        "{initialized}"
    );
    assert_eq!(file.written("order"), ["one", "one ended", "two"]);

    file.open_gate("open");
    let pod = file.ready();
    assert_eq!(file.written("order"), ["one", "one ended", "two", "two ended", "three", "main"]);
    for name in ["one", "two", "three"] {
        let ended = pod.terminated(name);
        assert_eq!(
            (&ended["reason"], &ended["exitCode"]),
            (&json!("Completed"), &json!(0)),
            "{name}: {ended}"
        );
        assert_eq!((pod.restarts(name), &pod.container(name)["ready"]), (0, &json!(true)));
    }
    assert_eq!(pod.condition("Initialized")["status"], "True");
    assert_eq!(listed(&pod, "initContainerStatuses"), ["one", "two", "three"], "in the order of the spec");
}

fn listed(pod: &PodView, list: &str) -> Vec<String> {
    let all = pod.status()[list].as_array().into_iter().flatten();
    all.map(|status| status["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn retried(node: &Node) {
    let init = [shell("setup", "echo try >>/gate/tries; test -e /gate/open")];
    let main = shell("main", &format!("echo main >>/gate/order; {}", crate::spec::OBEDIENT));
    let spec = with(with_init(containers([main]), init), json!({"restartPolicy": "OnFailure"}));
    let file = node.pod("init-fails", spec);

    let pod = file.wait("back-off of the init container", SOON, |pod| {
        pod.restarts("setup") == 1 && pod.waiting("setup").0 == "CrashLoopBackOff"
    });
    assert_eq!(
        pod.waiting("setup").1,
        format!("back-off 10s restarting failed container=setup pod={}", pod.reference())
    );
    assert_eq!((pod.phase(), pod.waiting("main").0), ("Pending", "PodInitializing"));
    assert_eq!(file.written("tries").len(), 2, "the first restart comes at once, the second does not");
    assert_eq!(file.written("order"), [] as [&str; 0]);

    file.open_gate("open");
    let pod = file.wait("Running and Ready", LATER, |pod| pod.phase() == "Running" && pod.is_ready());
    assert_eq!(pod.restarts("setup"), 2);
    assert_eq!((file.written("tries").len(), file.written("order")), (3, vec!["main".to_owned()]));
}

fn never(node: &Node) {
    let init = [shell("setup", "echo try >>/gate/tries; exit 4"), shell("later", "echo later >>/gate/order")];
    let main = shell("main", "echo main >>/gate/order");
    let spec = with(with_init(containers([main]), init), json!({"restartPolicy": "Never"}));
    let file = node.pod("init-never", spec);
    let pod = file.phase("Failed");
    assert_eq!(pod.terminated("setup")["exitCode"], 4, "{}", pod.status());
    assert_eq!(pod.restarts("setup"), 0);
    assert_eq!(pod.condition("Ready")["reason"], "PodFailed", "{}", pod.status());
    assert_eq!((file.written("tries").len(), file.written("order").len()), (1, 0));
}

fn sidecar_outlives(node: &Node) {
    let script = |name: &str, work: &str| {
        format!(
            "echo {name} starts >>/gate/order; trap '{work}echo {name} ends >>/gate/order; exit 0' TERM; \
             while :; do sleep 1000 & wait $!; done"
        )
    };
    let init = [sidecar(shell("helper", &script("helper", "")))];
    // The main container is slow to end: a sidecar told at the same time would end first.
    let main = shell("main", &script("main", "sleep 2; "));
    let spec = with(with_init(containers([main]), init), json!({"terminationGracePeriodSeconds": 20}));
    let file = node.pod("sidecar", spec);
    let pod = file.ready();
    assert_eq!(pod.container("helper")["started"], true, "{}", pod.status());
    assert_eq!(file.written("order"), ["helper starts", "main starts"]);
    file.remove();
    file.stopped(pod.uid(), SOON);
    assert_eq!(file.written("order"), ["helper starts", "main starts", "main ends", "helper ends"]);
}

fn sidecar_gates(node: &Node) {
    let probe = with(exec_probe("test -e /gate/started"), json!({"failureThreshold": 600}));
    let init = [sidecar(with(sleeper("helper"), json!({"startupProbe": probe})))];
    let file = node.pod("sidecar-gate", with_init(containers([sleeper("main")]), init));
    file.wait("the sidecar running", SOON, |pod| pod.is_running("helper"));
    holds("the main container waits", std::time::Duration::from_secs(3), || {
        let pod = file.look()?;
        match (pod.waiting("main").0, &pod.container("helper")["started"]) {
            ("PodInitializing", Value::Bool(false)) => Ok(()),
            _ => Err(pod.status().to_string()),
        }
    });
    file.open_gate("started");
    let pod = file.ready();
    assert_eq!((pod.restarts("helper"), pod.restarts("main")), (0, 0));
}

fn sidecar_of_a_job(node: &Node) {
    let init = [sidecar(sleeper("helper"))];
    let spec = with(
        with_init(containers([shell("work", "echo worked >>/gate/order")]), init),
        json!({"restartPolicy": "Never"}),
    );
    let file = node.pod("sidecar-job", spec);
    let pod = file.phase("Succeeded");
    assert_eq!(file.written("order"), ["worked"]);
    eventually("the sidecar has ended, too", SOON, || match file.running(pod.uid()) {
        running if running.is_empty() => Ok(()),
        running => Err(format!("{running:?}")),
    });
    assert_eq!(file.look().expect("a finished pod is still listed").phase(), "Succeeded");
}
