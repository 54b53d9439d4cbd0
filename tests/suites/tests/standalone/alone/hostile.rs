//! Pods whose demands would harm others.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::process::{eventually, holds};

use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, exec_probe, server, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("probes_that_hang_in_many_pods_hold_up_no_other_pod", hanging),
    ("the_largest_numbers_crash_nobody", largest),
    ("variables_that_double_end_nobody_but_their_container", bomb),
];

const CROWD: usize = 40;

/// No actor has crashed.
fn nobody_crashed(node: &Node) -> Result<(), String> {
    let tree = node.read_only.json("/supervision").map_err(|error| error.to_string())?;
    let actors = tree["actors"].as_array().ok_or("no actors")?;
    match actors.iter().find(|actor| actor["restarts"] != 0) {
        Some(actor) => Err(actor.to_string()),
        None => Ok(()),
    }
}

/// A pod with probes that hang for an hour: a command, and a server at this port that accepts connections and says
/// nothing. Another probe uses a name that does not resolve.
fn hangs(port: u16) -> Value {
    let patient = json!({"periodSeconds": 1, "timeoutSeconds": 3600, "failureThreshold": 100});
    let exec = with(patient.clone(), json!({"exec": {"command": ["sleep", "7200"]}}));
    let http = with(patient.clone(), json!({"httpGet": {"host": "127.0.0.1", "port": port}}));
    let name = with(patient, json!({"httpGet": {"host": "hangs.does-not-exist.invalid", "port": 80}}));
    containers([
        with(sleeper("exec"), json!({"livenessProbe": exec, "readinessProbe": exec})),
        with(sleeper("http"), json!({"livenessProbe": http, "readinessProbe": name})),
    ])
}

fn hanging(environment: &Arc<Environment>) {
    // No program accepts: the kernel opens the connections.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = silent.local_addr().expect("an address").port();
    let node = Node::alone(environment, "hanging", Options::default());
    let files: Vec<PodFile<'_>> = (0..CROWD).map(|_| node.pod("hanging", hangs(port))).collect();
    for file in &files {
        file.wait("Running", LATER, |pod| pod.is_running("exec") && pod.is_running("http"));
    }
    eventually("their probes to hang", LATER, || {
        let tree = node.read_only.json("/supervision").map_err(|error| error.to_string())?;
        let actors = tree["actors"].as_array().ok_or("no actors")?;
        let probes = actors.iter().find(|actor| actor["name"] == "ProbeManager").ok_or("no ProbeManager")?;
        match probes["observed"]["inFlight"].as_u64() {
            Some(count) if count >= 3 * 40 => Ok(()),
            _ => Err(probes.to_string()),
        }
    });
    let web = with(
        server("web"),
        json!({"readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}}),
    );
    let probed = with(sleeper("main"), json!({"readinessProbe": exec_probe("true")}));
    let good = node.pod("good", containers([web, probed]));
    good.wait("Ready beside those that hang", SOON, PodView::is_ready);
    let shown = |path: &str| node.read_only.text(path).expect("metrics");
    let probes = shown("/metrics/probes");
    let series = format!("pod=\"{}", good.base);
    let is_it =
        |line: &str| line.starts_with("prober_probe_total{container=\"web\"") && line.contains(&series);
    assert!(probes.lines().any(is_it) && probes.contains("process_start_time_seconds "), "{probes}");
    assert!(!shown("/metrics").contains("prober_probe"), "they have a path of their own");
    nobody_crashed(&node).expect("all is well");
}

fn largest(environment: &Arc<Environment>) {
    const MAX: i64 = 2_147_483_647;
    let node = Node::alone(environment, "largest", Options::default());
    let probe = |field: &str| {
        with(
            json!({"exec": {"command": ["true"]}, "periodSeconds": 1}),
            json!({field: MAX, "timeoutSeconds": MAX}),
        )
    };
    let late = with(sleeper("late"), json!({"livenessProbe": probe("initialDelaySeconds")}));
    let rare = with(sleeper("rare"), json!({"readinessProbe": probe("periodSeconds")}));
    let patient = with(sleeper("patient"), json!({"livenessProbe": probe("failureThreshold")}));
    let spec = with(
        containers([late, rare, patient]),
        json!({"activeDeadlineSeconds": MAX, "terminationGracePeriodSeconds": MAX}),
    );
    let file = node.pod("largest", spec);
    let pod = file.ready();
    holds("nobody crashes over it", Duration::from_secs(5), || nobody_crashed(&node));
    assert_eq!(file.look().expect("it is there").uid(), pod.uid());
    file.remove();
    file.gone(&pod);
    nobody_crashed(&node).expect("nor over its end");
}

fn bomb(environment: &Arc<Environment>) {
    let node = Node::alone(environment, "bomb", Options::default());
    let variables: Vec<Value> = (0..35)
        .map(|n| match n {
            0 => json!({"name": "V0", "value": "xx"}),
            n => json!({"name": format!("V{n}"), "value": format!("$(V{0})$(V{0})", n - 1)}),
        })
        .collect();
    let file = node.pod("bomb", containers([with(sleeper("main"), json!({"env": variables}))]));
    eventually("the container waits and says why", SOON, || {
        let pod = file.look()?;
        match pod.waiting("main") {
            ("CreateContainerConfigError", message) if message.contains("\"V21\"") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    node.pod("good", containers([sleeper("main")])).ready();
    nobody_crashed(&node).expect("all is well");
}
