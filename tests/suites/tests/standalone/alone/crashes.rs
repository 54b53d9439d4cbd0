//! Kubelets and actors that die at the worst moments, on a real runtime. The kubelet is the daemon in this test's own
//! binary (`testkit::mortal`): the shipped one takes no such orders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::mortal::{Fate, panic_actor};
use testkit::process::eventually;

use crate::Alone;
use crate::cri::NAMESPACE_LABEL;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::sigkill::{Task, kill_again_and_again};
use crate::spec::{containers, exec_probe, server, sleeper, with};
use crate::view::PodView;

pub const ALL: &[(&str, Alone)] = &[
    ("no_death_at_any_step_loses_or_doubles_anything", killed_at_every_step),
    ("no_panic_of_any_actor_touches_a_container", panics),
];

/// On average it is much faster; this is for a machine under load.
const SERVES_WITHIN: Duration = Duration::from_secs(10);

fn killed_at_every_step(environment: &Arc<Environment>) {
    let options = Options {
        kubelet: json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}}),
        ..Options::default()
    };
    let node = Node::prepare(&environment.mortal(), "sigkill", options);
    let task = Task {
        look: Duration::from_millis(50),
        life: Duration::from_secs(15),
        idle: Duration::from_secs(3),
        faithful: false,
        ..Task::from_environment(40, Duration::from_secs(40))
    };
    kill_again_and_again(&node, task);
}

/// IDs of all containers and sandboxes, with their states.
fn held(node: &Node) -> BTreeSet<(String, i32)> {
    let sandboxes = node.cri.sandboxes(NAMESPACE_LABEL, &node.namespace);
    let all = node.cri.containers(NAMESPACE_LABEL, &node.namespace);
    let sandboxes = sandboxes.into_iter().map(|one| (one.id, one.state));
    sandboxes.chain(all.into_iter().map(|one| (one.id, one.state))).collect()
}

/// Every actor's restarts, and whether it runs.
fn actors(node: &Node) -> Result<BTreeMap<String, (u64, bool)>, String> {
    let tree = node.read_only.json("/supervision")?;
    let actors = tree["actors"].as_array().ok_or("no actors")?;
    let one = |actor: &Value| {
        let name = actor["name"].as_str().unwrap_or_default().to_owned();
        (name, (actor["restarts"].as_u64().unwrap_or(0), actor["state"] == "running"))
    };
    Ok(actors.iter().map(one).collect())
}

fn panics(environment: &Arc<Environment>) {
    let node = Node::prepare(&environment.mortal(), "panics", Options::default());
    let (steps, orders) = (node.notes("steps"), node.notes("orders.sock"));
    node.start_mortal(&Fate { steps, death: None, orders: Some(orders.clone()) }.environment());
    let probed = json!({"readinessProbe": exec_probe("true"), "livenessProbe": exec_probe("true")});
    let mount = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let volumes = json!({"volumes": [{"name": "data", "emptyDir": {}}]});
    let files = [
        node.pod("probed", containers([with(sleeper("main"), probed)])),
        node.pod("volume", with(containers([with(sleeper("main"), mount)]), volumes)),
        node.pod("web", containers([server("main")])),
    ];
    eventually("the kubelet answers", SOON, || node.pods().map(drop));
    for file in &files {
        file.ready();
    }
    node.written_down();
    let statuses = || -> Result<BTreeMap<String, Value>, String> {
        Ok(node
            .pods()?
            .into_iter()
            .map(|pod: PodView| (pod.uid().to_owned(), pod.status().clone()))
            .collect())
    };
    let (before, there) = (statuses().expect("a list"), held(&node));
    let mut slowest = (Duration::ZERO, String::new());
    // The threads for I/O are in the tree because they are pinged like an actor, but they take no orders.
    for name in actors(&node).expect("a tree").into_keys().filter(|name| name != "IoRuntime") {
        let known = actors(&node).expect("a tree")[&name].0;
        let begun = Instant::now();
        panic_actor(&orders, &name).unwrap_or_else(|error| panic!("{name}: {error}"));
        eventually(&format!("{name} is back and all is as it was"), SERVES_WITHIN, || {
            node.assert_alive();
            match actors(&node)?.get(&name) {
                Some((restarts, true)) if *restarts > known => {}
                other => return Err(format!("{other:?}")),
            }
            node.healthz.text("/healthz")?;
            let now = statuses()?;
            if now == before { Ok(()) } else { Err(format!("{now:?} instead of {before:?}")) }
        });
        let took = begun.elapsed();
        if took > slowest.0 {
            slowest = (took, name.clone());
        }
    }
    println!("slowest to serve again after a panic: {} after {:?}", slowest.1, slowest.0);
    assert_eq!(held(&node), there, "no container and no sandbox was touched");
    node.pod("after", containers([sleeper("main")])).ready();
    assert_eq!(held(&node).intersection(&there).count(), there.len());
}
