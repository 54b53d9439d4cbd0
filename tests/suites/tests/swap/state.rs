//! The state that must be the same under either kubelet.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{Cluster, Watch};
use crate::cri::{CONTAINER_NAME_LABEL, Cri, NAMESPACE_LABEL, POD_NAME_LABEL};

/// `<pod>/<container>`, with IDs and times of start from the runtime, usually one of each. Sandboxes are containers
/// without a name.
pub type Running = BTreeMap<String, BTreeSet<(String, i64)>>;

/// The running sandboxes and containers of a namespace.
pub fn running(cri: &Cri, namespace: &str) -> Running {
    let mut found = Running::new();
    for container in cri.running(NAMESPACE_LABEL, namespace) {
        let name = format!("{}/{}", container.labels[POD_NAME_LABEL], container.labels[CONTAINER_NAME_LABEL]);
        let started = cri.status(&container.id).map_or(0, |status| status.started_at);
        found.entry(name).or_default().insert((container.id, started));
    }
    for sandbox in cri.sandboxes(NAMESPACE_LABEL, namespace) {
        if sandbox.state() == bridge_cri::wire::PodSandboxState::SandboxReady {
            let name = format!("{}/", sandbox.labels[POD_NAME_LABEL]);
            found.entry(name).or_default().insert((sandbox.id, sandbox.created_at));
        }
    }
    found
}

/// Ok when both are equal; else the differences, with the names of their pods.
pub fn same(before: &BTreeMap<String, Value>, now: &BTreeMap<String, Value>) -> Result<(), String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let differs = |name: &&String| before.get(*name) != now.get(*name);
    let show =
        |all: &BTreeMap<String, Value>, name| all.get(name).map_or("none".to_owned(), Value::to_string);
    let lines: Vec<String> = names
        .into_iter()
        .filter(differs)
        .map(|name| format!("{name}: {}\ninstead of {}", show(now, name), show(before, name)))
        .collect();
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

/// The part of `all` that belongs to these pods.
pub fn of_pods<V: Clone>(all: &BTreeMap<String, V>, pods: &[&str]) -> BTreeMap<String, V> {
    let wanted = |name: &String| pods.contains(&name.split('/').next().unwrap_or(name));
    all.iter().filter(|(name, _)| wanted(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The parts of the pods' statuses about their past and present, by pod.
pub fn statuses(cluster: &Cluster) -> Result<BTreeMap<String, Value>, String> {
    let list = cluster.get(&["pods"])?;
    let items = list["items"].as_array().ok_or("no list")?;
    Ok(items.iter().map(|pod| (text(&pod["metadata"]["name"]), status(pod))).collect())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn status(pod: &Value) -> Value {
    let status = &pod["status"];
    let conditions: BTreeMap<String, Value> = status["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        // A kubelet that takes a pod over may note for a moment that it compares the pod's resources.
        .filter(|condition| condition["type"] != "PodResizeInProgress")
        .map(|condition| {
            (text(&condition["type"]), json!([condition["status"], condition["lastTransitionTime"]]))
        })
        .collect();
    let containers = |field: &str| -> Vec<Value> {
        let all = status[field].as_array().into_iter().flatten();
        all.map(|container| {
            json!([
                container["name"],
                container["containerID"],
                container["ready"],
                container["started"],
                container["restartCount"],
                container["imageID"],
                container["state"],
                container["lastState"],
            ])
        })
        .collect()
    };
    // The Go kubelet forgets the address of a finished pod when it starts again, after either kubelet.
    let address = if status["phase"] == "Running" { status["podIP"].clone() } else { Value::Null };
    json!({
        "phase": status["phase"], "reason": status["reason"], "startTime": status["startTime"], "address": address,
        "qosClass": status["qosClass"], "conditions": conditions,
        "init": containers("initContainerStatuses"), "containers": containers("containerStatuses"),
    })
}

/// Asserts that Ready, phase and restart counts of each pod never changed while it was watched.
pub fn assert_steady(watch: &Watch, pods: &[&str]) {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in watch.seen() {
        let name = text(&pod["metadata"]["name"]);
        if pods.contains(&name.as_str()) && pod["metadata"]["deletionTimestamp"].is_null() {
            let status = status(&pod);
            let ready = |container: &Value| json!([container[0], container[2], container[4]]);
            let containers: Vec<Value> =
                status["containers"].as_array().into_iter().flatten().map(ready).collect();
            let shown = json!([status["phase"], status["conditions"]["Ready"], containers]);
            versions.entry(name).or_default().insert(shown.to_string());
        }
    }
    for pod in pods {
        let seen = versions.get(*pod).map_or(0, BTreeSet::len);
        assert_eq!(seen, 1, "{pod} was {:?}", versions.get(*pod));
    }
}

/// Asserts that the node was always ready.
pub fn assert_ready_throughout(watch: &Watch) {
    let seen = watch.seen();
    assert!(!seen.is_empty(), "the node was seen");
    for node in seen {
        assert_eq!(ready(&node["status"]), Some("True"), "{node}");
    }
}

/// The status of the condition Ready.
pub fn ready(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["status"].as_str()
}
