//! PURE: how the node itself is, as far as its actors tell.

use serde::Serialize;
use serde_json::Value;

use crate::model::Supervision;
use crate::text::said;

/// The most problems that are told.
const PROBLEMS_MAX: usize = 8;

/// The node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeNow {
    /// Seconds since the kubelet's actors were started.
    pub uptime_seconds: u64,
    /// Whether the node can run pods, as its condition Ready says; on a node without an API server, as the runtime says.
    pub ready: bool,
    /// Why it cannot; empty while it can.
    pub problems: Vec<String>,
    /// What it runs out of: `memory`, `disk`, `pid`.
    pub pressure: Vec<&'static str>,
    /// The runtime's name and version; empty before it has answered.
    pub runtime: String,
}

impl NodeNow {
    /// The node of these actors.
    pub fn of(tree: &Supervision) -> Self {
        let observed = |name: &str| tree.actors.iter().find(|actor| actor.name == name);
        let shown = |name: &str, field: &str| observed(name).and_then(|actor| actor.observed.get(field));
        let runtime = shown("Pleg", "runtime").filter(|runtime| runtime.is_object());
        let told = shown("NodeStatus", "notReady").and_then(Value::as_array);
        let problems = match told {
            Some(told) => told.iter().filter_map(Value::as_str).map(said).take(PROBLEMS_MAX).collect(),
            None => of_runtime(runtime),
        };
        let pressure = shown("EvictionManager", "pressure");
        let is_short =
            |kind: &&str| pressure.and_then(|all| all.get(*kind)).and_then(Value::as_bool) == Some(true);
        let named =
            |runtime: &Value| said(&format!("{} {}", text(runtime, "name"), text(runtime, "version")));
        Self {
            uptime_seconds: tree.uptime_ms / 1000,
            ready: problems.is_empty(),
            problems,
            pressure: ["memory", "disk", "pid"].into_iter().filter(is_short).collect(),
            runtime: runtime.map(named).unwrap_or_default(),
        }
    }
}

fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// What is wrong with the runtime, of which this is known.
fn of_runtime(runtime: Option<&Value>) -> Vec<String> {
    let Some(runtime) = runtime else { return vec!["the runtime has not been asked yet".to_owned()] };
    let is = |field: &str| runtime.get(field).and_then(Value::as_bool).unwrap_or_default();
    let because = |what: &str, why: &str| {
        if why.is_empty() { what.to_owned() } else { said(&format!("{what}: {why}")) }
    };
    if !is("answered") {
        return vec![because("the runtime does not answer", text(runtime, "problem"))];
    }
    let mut problems = Vec::new();
    if !is("ready") {
        problems.push(because("the runtime is not ready", text(runtime, "runtime_problem")));
    }
    if !is("network_ready") {
        problems.push(because("the runtime's network is not ready", text(runtime, "network_problem")));
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Actor;

    fn node(actors: &[(&str, Value)]) -> NodeNow {
        let actor = |(name, observed): &(&str, Value)| Actor {
            name: (*name).to_owned(),
            observed: observed.clone(),
            ..Actor::default()
        };
        let actors = actors.iter().map(actor).collect();
        NodeNow::of(&Supervision { uptime_ms: 61_999, actors, ..Supervision::default() })
    }

    fn runtime(answered: bool, network: bool) -> Value {
        json!({ "runtime": {
            "name": "containerd", "version": "2.1.0", "answered": answered, "ready": true,
            "network_ready": network, "problem": "connection refused", "runtime_problem": "",
            "network_problem": "no CNI\u{1b}[2J",
        } })
    }

    #[test]
    fn a_member_of_a_cluster_is_as_ready_as_its_node() {
        let pressure = json!({ "pressure": { "memory": false, "disk": true, "pid": true } });
        let well = [
            ("Pleg", runtime(true, true)),
            ("NodeStatus", json!({ "notReady": [] })),
            ("EvictionManager", pressure),
        ];
        let told = NodeNow {
            uptime_seconds: 61,
            ready: true,
            problems: Vec::new(),
            pressure: vec!["disk", "pid"],
            runtime: "containerd 2.1.0".to_owned(),
        };
        assert_eq!(node(&well), told);
        let down = node(&[("NodeStatus", json!({ "notReady": ["container runtime is down"] }))]);
        assert_eq!((down.ready, down.problems), (false, vec!["container runtime is down".to_owned()]));
    }

    #[test]
    fn without_an_api_server_the_runtime_decides() {
        assert!(node(&[("Pleg", runtime(true, true))]).ready);
        let away = node(&[("Pleg", runtime(false, true))]);
        assert_eq!(away.problems, ["the runtime does not answer: connection refused"]);
        let network = node(&[("Pleg", runtime(true, false))]);
        assert_eq!(network.problems, ["the runtime's network is not ready: no CNI␛[2J"]);
        assert_eq!(node(&[]).problems, ["the runtime has not been asked yet"]);
    }
}
