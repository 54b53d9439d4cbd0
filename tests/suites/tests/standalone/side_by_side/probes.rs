//! Liveness, readiness and startup; exec, HTTP, TCP and gRPC.

use std::time::Duration;

use bridge_http::probes::{FakeHealth, HealthServer};
use serde_json::json;
use testkit::process::{eventually, holds};

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, server, shell, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("a_failed_liveness_probe_restarts_the_container", liveness),
    ("readiness_comes_and_goes", readiness),
    ("a_startup_probe_holds_the_others_back", startup),
    ("a_failed_startup_probe_restarts_the_container", startup_fails),
    ("http_and_tcp_probes", http_and_tcp),
    ("failing_http_and_tcp_probes", http_and_tcp_fail),
    ("grpc_probes", grpc),
    ("failing_grpc_probes", grpc_fails),
    ("a_command_that_cannot_be_run_is_no_answer", exec_unknown),
    ("readiness_goes_on_while_the_pod_ends_and_liveness_does_not", terminating),
    ("a_probes_own_grace_goes_before_the_pods", own_grace),
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
    // Without the startup probe it would fail at once.
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
            "livenessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 20},
            "readinessProbe": {
                "timeoutSeconds": 20,
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

/// The server is on the host, where a pod on the host's network is probed.
fn grpc(node: &Node) {
    let health = HealthServer::start(([0, 0, 0, 0], 0).into()).expect("a free port");
    health.set("", FakeHealth::NotServing);
    health.set("alive", FakeHealth::Serving);
    let port = health.address().port();
    let probe = |service: &str| {
        let grpc = json!({"port": port, "service": service});
        json!({"grpc": grpc, "periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10})
    };
    let main = with(sleeper("main"), json!({"readinessProbe": probe(""), "livenessProbe": probe("alive")}));
    let file = node.pod("grpc", with(containers([main]), json!({"hostNetwork": true})));
    let pod = file.wait("running", SOON, |pod| pod.is_running("main"));
    let bad = "probe failed: service unhealthy (responded with \"NOT_SERVING\")";
    file.event(&pod, "Warning", "Unhealthy", &format!("Readiness {bad}"));
    assert!(!file.look().expect("it is listed").is_ready());
    health.set("", FakeHealth::Serving);
    let before = file.ready();
    assert_eq!(before.restarts("main"), 0);
    for agent in health.agents() {
        assert!(agent.starts_with("kube-probe/1.36"), "{agent}");
    }
    health.set("alive", FakeHealth::NotServing);
    file.event(&before, "Warning", "Unhealthy", &format!("Liveness {bad}"));
    health.set("alive", FakeHealth::Serving);
    let after = file.wait("restarted and ready", LATER, |pod| pod.restarts("main") >= 1 && pod.is_ready());
    assert_ne!(after.container_id("main"), before.container_id("main"));
}

fn grpc_fails(node: &Node) {
    let health = HealthServer::start(([0, 0, 0, 0], 0).into()).expect("a free port");
    health.set("plain", FakeHealth::Unimplemented);
    health.set("silent", FakeHealth::Silent);
    let port = health.address().port();
    let container = |name: &str, port: u16| {
        let grpc = json!({"port": port, "service": name});
        let probe = json!({"grpc": grpc, "periodSeconds": 1, "timeoutSeconds": 2});
        with(sleeper(name), json!({"readinessProbe": probe}))
    };
    // A well-known port on which no program listens.
    let list = [
        container("unknown", port),
        container("plain", port),
        container("silent", port),
        container("nobody", 9),
    ];
    let file = node.pod("grpc-fails", with(containers(list), json!({"hostNetwork": true})));
    let names = ["unknown", "plain", "silent", "nobody"];
    let pod = file.wait("running", SOON, |pod| names.iter().all(|name| pod.is_running(name)));
    let nobody =
        format!("timeout: failed to connect service \"{}:9\" within 2s: context deadline exceeded", pod.ip());
    for (container, reason) in [
        ("unknown", "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"),
        (
            "plain",
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): \
             unknown service grpc.health.v1.Health",
        ),
        ("silent", "timeout: health rpc did not complete within 2s"),
        ("nobody", &nobody),
    ] {
        let event = file.event(&pod, "Warning", "Unhealthy", &format!("Readiness probe failed: {reason}"));
        assert_eq!(event.field, format!("spec.containers{{{container}}}"));
    }
    assert!(!file.look().expect("it is listed").is_ready());
}

fn exec_unknown(node: &Node) {
    let probe = json!({"exec": {"command": ["/no/such/program"]}, "periodSeconds": 1, "failureThreshold": 1});
    let main = with(sleeper("main"), json!({"livenessProbe": probe}));
    let file = node.pod("exec-unknown", containers([main]));
    let pod = file.wait("running", SOON, |pod| pod.is_running("main"));
    let text = "Liveness probe errored and resulted in unknown state: rpc error: code = ";
    file.event(&pod, "Warning", "Unhealthy", text);
    assert_eq!(file.look().expect("it is listed").restarts("main"), 0, "it is nobody's failure");
}

/// The number of lines that a probe has written.
fn count(file: &PodFile<'_>, name: &str) -> usize {
    file.written(name).len()
}

fn terminating(node: &Node) {
    // The container ignores SIGTERM until the gate opens.
    let script = "trap 'echo told >>/gate/told' TERM; while ! test -e /gate/end; do sleep 1 & wait $!; done";
    let probes = json!({
        "readinessProbe": exec_probe("echo asked >>/gate/readiness"),
        "livenessProbe": exec_probe("echo asked >>/gate/liveness"),
    });
    let spec = json!({"gate": true, "terminationGracePeriodSeconds": 600});
    let file = node.pod("terminating", with(containers([with(shell("main", script), probes)]), spec));
    let pod = file.ready();
    eventually("liveness is probed", SOON, || {
        if count(&file, "liveness") > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    });
    file.remove();
    eventually("the container is told to end", SOON, || {
        if count(&file, "told") > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    });
    // One probe may have begun before.
    let (ready, live) = (count(&file, "readiness"), count(&file, "liveness") + 1);
    eventually("readiness goes on", SOON, || match count(&file, "readiness") {
        now if now >= ready + 5 => Ok(()),
        now => Err(format!("{now} after {ready}")),
    });
    assert!(count(&file, "liveness") <= live, "{} after {live}", count(&file, "liveness"));
    file.open_gate("end");
    file.stopped(pod.uid(), SOON);
}

fn own_grace(node: &Node) {
    let grace = json!({"terminationGracePeriodSeconds": 2});
    let probe = with(exec_probe("test -e /gate/dead && exit 1 || exit 0"), grace);
    let script = "trap 'echo told >>/gate/told' TERM; while ! test -e /gate/end; do sleep 1 & wait $!; done";
    let main = with(shell("main", script), json!({"livenessProbe": probe}));
    // Longer than the test waits.
    let spec = json!({"gate": true, "terminationGracePeriodSeconds": 3600});
    let file = node.pod("own-grace", with(containers([main]), spec));
    let before = file.ready();
    file.open_gate("dead");
    file.event(&before, "Normal", "Killing", "Container main failed liveness probe, will be restarted");
    file.close_gate("dead");
    let after = file.wait("restarted", LATER, |pod| pod.restarts("main") >= 1 && pod.is_ready());
    assert!(count(&file, "told") >= 1, "SIGTERM comes first");
    let last = &after.container("main")["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 137, "{last}");
    file.open_gate("end");
}
