//! Liveness, readiness and startup; exec, HTTP and TCP.

use std::time::Duration;

use serde_json::json;
use testkit::process::holds;

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::spec::{containers, exec_probe, server, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_failed_liveness_probe_restarts_the_container", liveness),
    ("readiness_comes_and_goes", readiness),
    ("a_startup_probe_holds_the_others_back", startup),
    ("a_failed_startup_probe_restarts_the_container", startup_fails),
    ("http_and_tcp_probes", http_and_tcp),
    ("failing_http_and_tcp_probes", http_and_tcp_fail),
];

fn liveness(node: &Node) {
    let probe = exec_probe("test -e /gate/dead && echo it is dead && exit 1 || exit 0");
    let main = with(sleeper("main"), json!({"livenessProbe": probe}));
    let file = node.pod("liveness", with(containers([main, sleeper("other")]), json!({"gate": true})));
    let before = file.ready();
    file.open_gate("dead");
    file.event(&before, "Warning", "Unhealthy", "Liveness probe failed: it is dead");
    let killing = "Container main failed liveness probe, will be restarted";
    let event = file.event(&before, "Normal", "Killing", killing);
    assert_eq!((event.message.as_str(), event.field.as_str()), (killing, "spec.containers{main}"));
    file.close_gate("dead");
    let after = file.wait("restarted and ready", LATER, |pod| pod.restarts("main") >= 1 && pod.is_ready());
    assert_ne!(after.container_id("main"), before.container_id("main"));
    assert_eq!(after.container("other"), before.container("other"));
}

fn readiness(node: &Node) {
    let main = with(sleeper("main"), json!({"readinessProbe": exec_probe("test -e /gate/ready")}));
    let file = node.pod("readiness", with(containers([main]), json!({"gate": true})));
    let not_ready = |what: &str| {
        let pod = file.wait(what, SOON, |pod| pod.is_running("main") && !pod.is_ready());
        for kind in ["Ready", "ContainersReady"] {
            let condition = pod.condition(kind);
            assert_eq!(condition["status"], "False");
            assert_eq!(condition["reason"], "ContainersNotReady");
            assert_eq!(condition["message"], "containers with unready status: [main]");
        }
        assert_eq!((&pod.container("main")["ready"], pod.phase()), (&json!(false), "Running"));
        pod
    };
    let pod = not_ready("not ready at first");
    file.event(&pod, "Warning", "Unhealthy", "Readiness probe failed:");
    file.open_gate("ready");
    let ready = file.ready();
    file.close_gate("ready");
    let pod = not_ready("not ready again");
    assert_eq!(pod.restarts("main"), 0);
    assert_eq!(pod.container_id("main"), ready.container_id("main"));
}

fn startup(node: &Node) {
    let startup = with(exec_probe("test -e /gate/started"), json!({"failureThreshold": 600}));
    // It would fail from the first on.
    let liveness = exec_probe("test -e /gate/started");
    let main = with(sleeper("main"), json!({"startupProbe": startup, "livenessProbe": liveness}));
    let file = node.pod("startup", with(containers([main]), json!({"gate": true})));
    file.wait("running", SOON, |pod| pod.is_running("main"));
    holds("nothing happens until it has started", Duration::from_secs(4), || {
        let pod = file.look()?;
        let main = pod.container("main");
        if main["started"] == false && main["ready"] == false && main["restartCount"] == 0 {
            Ok(())
        } else {
            Err(main.to_string())
        }
    });
    file.open_gate("started");
    let pod = file.ready();
    assert_eq!((&pod.container("main")["started"], pod.restarts("main")), (&json!(true), 0));
    file.close_gate("started");
    file.wait("liveness counts from then on", SOON, |pod| pod.restarts("main") >= 1);
}

fn startup_fails(node: &Node) {
    let startup = with(exec_probe("test -e /gate/started"), json!({"failureThreshold": 2}));
    let main = with(sleeper("main"), json!({"startupProbe": startup}));
    let file = node.pod("startup-fails", with(containers([main]), json!({"gate": true})));
    let pod = file.wait("restarted", SOON, |pod| pod.restarts("main") >= 1);
    file.event(&pod, "Warning", "Unhealthy", "Startup probe failed:");
    file.event(&pod, "Normal", "Killing", "Container main failed startup probe, will be restarted");
}

fn http_and_tcp(node: &Node) {
    let main = with(
        server("main"),
        json!({
            "startupProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 1, "failureThreshold": 30},
            "livenessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1},
            "readinessProbe": {
                "httpGet": {"path": "/index.html", "port": "http", "httpHeaders": [{"name": "X-Suite", "value": "a"}]},
                "periodSeconds": 1,
            },
        }),
    );
    let file = node.pod("http", containers([main]));
    let pod = file.ready();
    holds("it stays ready", Duration::from_secs(4), || {
        let now = file.look()?;
        if now.status() == pod.status() { Ok(()) } else { Err(now.status().to_string()) }
    });
}

fn http_and_tcp_fail(node: &Node) {
    let missing = json!({"httpGet": {"path": "/missing", "port": 8080}, "periodSeconds": 1});
    let closed = json!({"tcpSocket": {"port": 8081}, "periodSeconds": 1});
    let one = with(server("one"), json!({"readinessProbe": missing}));
    let other = with(sleeper("other"), json!({"readinessProbe": closed}));
    let file = node.pod("http-fails", containers([one, other]));
    let pod = file.wait("running", SOON, |pod| pod.is_running("one") && pod.is_running("other"));
    let event = file.event(
        &pod,
        "Warning",
        "Unhealthy",
        "Readiness probe failed: HTTP probe failed with statuscode: 404",
    );
    assert_eq!(event.field, "spec.containers{one}");
    let event = file.event(&pod, "Warning", "Unhealthy", "Readiness probe failed: dial tcp");
    assert_eq!(event.field, "spec.containers{other}");
    assert!(
        event.message.contains(&format!("{}:8081", pod.ip())) && event.message.contains("refused"),
        "{event:?}"
    );
    assert!(!file.look().expect("it is listed").is_ready());
}
