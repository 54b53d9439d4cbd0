//! What one event about one pod costs a whole node: all actors in a sandbox on fake bridges, with ever more pods that
//! nothing happens to. Printed is real time per event, beyond what the same stretch of sandbox time costs without events;
//! the API server in memory is part of it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "measures real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bridge_cri::fake::{Behaviour, Match};
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

const NS: Option<&str> = Some("default");
/// Pods that are on the node.
const SIZES: [usize; 4] = [10, 100, 300, 1000];
/// Events of one kind.
const EVENTS: u32 = 200;
/// Longest wait for all pods, in real time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Sandbox time given to each: enough for all that follows, and none for the digests.
const EACH: Duration = Duration::from_millis(20);

fn pod(name: &str) -> Pod {
    let json = json!({
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "resources": { "requests": { "cpu": "1m" } }
            }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

fn is_told_ready(api: &FakeApi, name: &str) -> bool {
    let pod = api.get::<Pod>(NS, name);
    pod.and_then(|pod| pod.status).is_some_and(|status| is_ready(&status))
}

/// Microseconds of real time for each event, and for the same stretch without one.
async fn cost(sandbox: &Sandbox, mut event: impl FnMut(u32)) -> (f64, f64) {
    let mut spent = [Duration::ZERO; 2];
    for number in 0..EVENTS {
        for (slot, happens) in [(0, false), (1, true)] {
            let start = Instant::now();
            if happens {
                event(number);
            }
            sandbox.pass(EACH).await;
            spent[slot] += start.elapsed();
        }
    }
    let [idle, busy] = spent.map(|spent| spent.as_secs_f64() * 1e6 / f64::from(EVENTS));
    (busy - idle, idle)
}

fn measure(pods: usize) {
    sandbox(Policy { mailbox_bound: 10_000, ..Policy::default() }, async |sandbox| {
        let mut world = World::new(7);
        world.runtime.behave(Match::Any, vec![Behaviour::forever()]);
        let api = FakeApi::new(world.clock.clone());
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).expect("a Node");
        api.put(&node);
        world.api = Some(api.clone());
        for number in 0..pods {
            api.put(&pod(&format!("web{number}")));
        }
        let mut settings = settings();
        settings.admission.pods_max = 2000;
        // Without a bound of its own for pods or anything else.
        settings.admission.resources = Arc::default();
        let node = FakeNode::start(sandbox, &world, &settings);
        let all = || (0..pods).all(|number| is_told_ready(&api, &format!("web{number}")));
        let patience = Instant::now() + PATIENCE;
        while !all() {
            assert!(Instant::now() < patience, "waited in vain for {pods} pods to be Ready");
            sandbox.pass(Duration::from_secs(5)).await;
        }
        sandbox.pass(Duration::from_secs(30)).await;

        let one = |number: u32| format!("web{}", number as usize % pods);
        let (status, idle) = cost(sandbox, |number| {
            let gate = json!({ "type": "example.com/gate", "status": "True", "message": number.to_string() });
            let patch = Patch::Strategic(json!({ "status": { "conditions": [gate] } }));
            api.change::<Pod>(NS, &one(number), Some("status"), &patch);
        })
        .await;
        let (labels, _) = cost(sandbox, |number| {
            let patch = Patch::Merge(json!({ "metadata": { "labels": { "app": number.to_string() } } }));
            api.change::<Pod>(NS, &one(number), None, &patch);
        })
        .await;
        let (comes, _) = cost(sandbox, |number| {
            let name = format!("guest{}", number / 2);
            if number % 2 == 0 {
                api.put(&pod(&name));
            } else {
                api.delete::<Pod>(NS, &name, Some(0));
            }
        })
        .await;
        println!("{pods:>6} {status:>12.0} {labels:>12.0} {comes:>14.0} {idle:>12.0}");
        let figures = json!({
            "bench": "pod events", "pods": pods, "statusMicros": status, "labelMicros": labels,
            "comesOrGoesMicros": comes, "idleMicros": idle,
        });
        println!("{figures}");
        node.stop().await;
    });
}

fn main() {
    println!(
        "{:>6} {:>12} {:>12} {:>14} {:>12}",
        "pods", "status us", "label us", "comes, goes us", "idle us"
    );
    SIZES.into_iter().for_each(measure);
}
