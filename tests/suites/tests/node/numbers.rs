//! Every number that a pod may have, at its bounds and beyond, through the whole node: no actor fails over any of them.

use std::time::Duration;

use bridge_cri::fake::{Behaviour, Match};
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::{Random, sandbox};

use crate::life::world;

/// Pods of one world.
const PODS: u64 = 40;

#[derive(Clone, Copy)]
enum Kind {
    Int32,
    Int64,
    Amount,
}

use Kind::{Amount, Int32, Int64};

/// The numbers of a container.
const OF_CONTAINER: &[(&str, Kind)] = &[
    ("/ports/0/containerPort", Int32),
    ("/ports/0/hostPort", Int32),
    ("/resources/limits/cpu", Amount),
    ("/resources/limits/memory", Amount),
    ("/resources/limits/ephemeral-storage", Amount),
    ("/resources/requests/cpu", Amount),
    ("/resources/requests/memory", Amount),
    ("/resources/requests/hugepages-2Mi", Amount),
    ("/securityContext/runAsUser", Int64),
    ("/securityContext/runAsGroup", Int64),
    ("/env/0/valueFrom/resourceFieldRef/divisor", Amount),
    ("/lifecycle/postStart/sleep/seconds", Int64),
    ("/lifecycle/preStop/sleep/seconds", Int64),
    ("/restartPolicyRules/0/exitCodes/values/0", Int32),
];

/// The numbers of a probe.
const OF_PROBE: &[(&str, Kind)] = &[
    ("/initialDelaySeconds", Int32),
    ("/periodSeconds", Int32),
    ("/timeoutSeconds", Int32),
    ("/successThreshold", Int32),
    ("/failureThreshold", Int32),
    ("/terminationGracePeriodSeconds", Int64),
];

/// The numbers of the pod itself.
const OF_POD: &[(&str, Kind)] = &[
    ("/metadata/generation", Int64),
    ("/metadata/deletionGracePeriodSeconds", Int64),
    ("/spec/activeDeadlineSeconds", Int64),
    ("/spec/terminationGracePeriodSeconds", Int64),
    ("/spec/priority", Int32),
    ("/spec/tolerations/0/tolerationSeconds", Int64),
    ("/spec/securityContext/runAsUser", Int64),
    ("/spec/securityContext/runAsGroup", Int64),
    ("/spec/securityContext/fsGroup", Int64),
    ("/spec/securityContext/supplementalGroups/0", Int64),
    ("/spec/overhead/cpu", Amount),
    ("/spec/overhead/memory", Amount),
    ("/spec/resources/limits/memory", Amount),
    ("/spec/resources/requests/cpu", Amount),
    ("/spec/volumes/0/emptyDir/sizeLimit", Amount),
    ("/spec/volumes/1/downwardAPI/defaultMode", Int32),
    ("/spec/volumes/1/downwardAPI/items/0/resourceFieldRef/divisor", Amount),
    ("/spec/volumes/2/projected/defaultMode", Int32),
    ("/spec/volumes/2/projected/sources/0/serviceAccountToken/expirationSeconds", Int64),
    ("/spec/topologySpreadConstraints/0/maxSkew", Int32),
    ("/status/observedGeneration", Int64),
    ("/status/containerStatuses/0/restartCount", Int32),
];

fn one(random: &mut Random, kind: Kind) -> Value {
    const AMOUNTS: [&str; 14] = [
        "0",
        "-1",
        "1n",
        "1m",
        "0.000000000001",
        "1",
        "64Mi",
        "1000",
        "9223372036854775807",
        "-9223372036854775808",
        "1e18",
        "8E",
        "9999999999999999999999E",
        "1e-30",
    ];
    let pick = |random: &mut Random, count: usize| {
        usize::try_from(random.below(u64::try_from(count).expect("few"))).expect("few")
    };
    match kind {
        Int32 => {
            let any = i32::try_from(random.number() >> 33).expect("31 bits");
            let all = [i32::MIN, -1, 0, 1, 2, 30, 143, 65_535, i32::MAX - 1, i32::MAX, any, -any];
            json!(all[pick(random, all.len())])
        }
        Int64 => {
            let any = i64::try_from(random.number() >> 1).expect("63 bits");
            let max = i64::from(i32::MAX);
            let all =
                [i64::MIN, -1, 0, 1, 2, 30, max, max + 1, i64::MAX / 1_000_000_000, i64::MAX, any, -any];
            json!(all[pick(random, all.len())])
        }
        Amount => json!(AMOUNTS[pick(random, AMOUNTS.len())]),
    }
}

/// Sets `pointer` in `value`, and creates the objects and lists on the way.
fn set(value: &mut Value, pointer: &str, to: Value) {
    let mut place = value;
    for part in pointer.split('/').skip(1) {
        place = if part.parse::<usize>().is_ok() {
            if !place.is_array() {
                *place = json!([]);
            }
            let (list, index) =
                (place.as_array_mut().expect("a list"), part.parse::<usize>().expect("a number"));
            while list.len() <= index {
                list.push(json!({}));
            }
            &mut list[index]
        } else {
            &mut place[part]
        };
    }
    *place = to;
}

/// Sets about one in `of` of these fields to another value.
fn disturb(value: &mut Value, fields: &[(&str, Kind)], of: u64, random: &mut Random) {
    for (pointer, kind) in fields {
        if random.once_in(of) {
            let to = one(random, *kind);
            set(value, pointer, to);
        }
    }
}

fn container(name: &str, of: u64, random: &mut Random) -> Value {
    let probe = |random: &mut Random| {
        let mut probe = match random.below(4) {
            0 => json!({ "exec": { "command": ["alive"] } }),
            1 => json!({ "tcpSocket": { "port": one(random, Int32) } }),
            2 => json!({ "grpc": { "port": one(random, Int32) } }),
            _ => json!({ "httpGet": { "port": one(random, Int32), "path": "/" } }),
        };
        disturb(&mut probe, OF_PROBE, of.min(2), random);
        probe
    };
    let command = if random.once_in(3) { "job" } else { "serve" };
    let mut container = json!({
        "name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": [command],
    });
    disturb(&mut container, OF_CONTAINER, of, random);
    if container.pointer("/env/0").is_some() {
        set(&mut container, "/env/0/name", json!("AMOUNT"));
        set(&mut container, "/env/0/valueFrom/resourceFieldRef/resource", json!("limits.memory"));
    }
    if container.pointer("/restartPolicyRules/0").is_some() {
        set(&mut container, "/restartPolicy", json!("Always"));
        set(&mut container, "/restartPolicyRules/0/action", json!("Restart"));
        set(&mut container, "/restartPolicyRules/0/exitCodes/operator", json!("In"));
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if random.once_in(2) {
            container[kind] = probe(random);
        }
    }
    container
}

/// A pod with about one odd number in `of` of its fields.
fn pod(name: &str, of: u64, random: &mut Random) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "nodeName": "node", "containers": [container("a", of, random), container("b", of, random)] },
    });
    if random.once_in(2) {
        set(&mut pod, "/spec/volumes/0", json!({ "name": "scratch", "emptyDir": {} }));
    }
    disturb(&mut pod, OF_POD, of, random);
    if pod["metadata"].get("deletionGracePeriodSeconds").is_some() && random.once_in(2) {
        set(&mut pod, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    }
    for (index, name) in ["scratch", "about", "all"].into_iter().enumerate() {
        if pod.pointer(&format!("/spec/volumes/{index}")).is_some() {
            set(&mut pod, &format!("/spec/volumes/{index}/name"), json!(name));
        }
    }
    if pod.pointer("/spec/volumes/1/downwardAPI/items/0").is_some() {
        let item = "/spec/volumes/1/downwardAPI/items/0";
        set(&mut pod, &format!("{item}/path"), json!("memory"));
        set(&mut pod, &format!("{item}/resourceFieldRef/resource"), json!("limits.memory"));
        set(&mut pod, &format!("{item}/resourceFieldRef/containerName"), json!("a"));
    }
    if pod.pointer("/spec/volumes/2/projected/sources/0").is_some() {
        set(&mut pod, "/spec/volumes/2/projected/sources/0/serviceAccountToken/path", json!("token"));
    }
    complete(&mut pod);
    pod
}

/// Adds the fields that the API's types require beside those that were set.
fn complete(pod: &mut Value) {
    if pod.pointer("/spec/tolerations/0").is_some() {
        set(pod, "/spec/tolerations/0/operator", json!("Exists"));
        set(pod, "/spec/tolerations/0/effect", json!("NoExecute"));
    }
    if pod.pointer("/spec/topologySpreadConstraints/0").is_some() {
        set(pod, "/spec/topologySpreadConstraints/0/topologyKey", json!("zone"));
        set(pod, "/spec/topologySpreadConstraints/0/whenUnsatisfiable", json!("ScheduleAnyway"));
    }
    if pod.pointer("/status/containerStatuses/0").is_some() {
        for (key, value) in
            [("name", json!("a")), ("image", json!("")), ("imageID", json!("")), ("ready", json!(false))]
        {
            set(pod, &format!("/status/containerStatuses/0/{key}"), value);
        }
    }
}

fn good(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "readinessProbe": { "exec": { "command": ["ready"] }, "periodSeconds": 1 },
            }],
        },
    })
}

fn numbered_world(seed: u64) -> World {
    let world = world(seed);
    let ends = Behaviour::exits(Duration::from_secs(1), 143);
    world.runtime.behave(Match::Command("job".to_owned()), vec![ends, Behaviour::forever()]);
    world
}

/// A good pod becomes Ready and is removed again, beside all others.
async fn serves(node: &FakeNode, world: &World, name: &str) {
    world.manifest("good.yaml", &good(name).to_string());
    node.until("the good pod to be Ready", |pods| pods.get(name).is_some_and(|status| is_ready(status)))
        .await;
    world.remove_manifest("good.yaml");
    node.until("the good pod to be gone", |pods| !pods.contains_key(name)).await;
}

#[test]
fn static_pods_with_any_numbers_crash_nobody() {
    for seed in 0..3 {
        sandbox(Policy::default(), async |sandbox| {
            let (world, mut random) = (numbered_world(seed), Random::new(seed));
            for n in 0..PODS {
                let mut pod = pod(&format!("odd{n}"), 12, &mut random);
                pod["spec"].as_object_mut().expect("an object").remove("nodeName");
                world.manifest(&format!("odd{n}.yaml"), &pod.to_string());
            }
            let node = FakeNode::start(sandbox, &world, &settings());
            sandbox.pass(Duration::from_secs(120)).await;
            serves(&node, &world, "good").await;
            for n in 0..PODS {
                world.remove_manifest(&format!("odd{n}.yaml"));
            }
            sandbox.pass(Duration::from_secs(60)).await;
            serves(&node, &world, "another").await;
            quiet(&node).await;
            node.stop().await;
        });
    }
}

#[test]
fn pods_of_the_api_server_with_any_numbers_crash_nobody() {
    for seed in 10..14 {
        sandbox(Policy::default(), async |sandbox| {
            let (mut world, mut random) = (numbered_world(seed), Random::new(seed));
            let api = FakeApi::new(world.clock.clone());
            api.put(
                &serde_json::from_value::<Node>(json!({ "metadata": { "name": "node" } })).expect("a Node"),
            );
            world.api = Some(api.clone());
            // Half of the seeds give a pod about one odd number, the others many.
            let of = if seed % 2 == 0 { 30 } else { 4 };
            for n in 0..PODS {
                let pod = pod(&format!("odd{n}"), of, &mut random);
                api.put(&serde_json::from_value::<Pod>(pod).expect("a Pod"));
            }
            let node = FakeNode::start(sandbox, &world, &settings());
            sandbox.pass(Duration::from_secs(120)).await;
            serves(&node, &world, "good").await;
            for n in 0..PODS {
                let grace = one(&mut random, Int64).as_i64().filter(|grace| *grace >= 0);
                api.delete::<Pod>(Some("default"), &format!("odd{n}"), grace);
            }
            sandbox.pass(Duration::from_secs(60)).await;
            serves(&node, &world, "another").await;
            quiet(&node).await;
            node.stop().await;
        });
    }
}

/// No actor has crashed, and no pod is in quarantine.
async fn quiet(node: &FakeNode) {
    for actor in node.tree.snapshot().await.actors {
        assert_eq!(actor.restarts, 0, "{}: {:?}", actor.name, actor.last_crash);
        assert!(actor.quarantined.is_empty(), "{}: {:?}", actor.name, actor.quarantined);
    }
}
