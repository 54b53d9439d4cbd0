//! Pods that use more of the local disk than their limits: which are evicted, with which messages, and which pods go
//! on.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_kube::fake::FakeApi;
use bridge_node::stats::{DiskUsage, PodUsage};
use k8s_openapi::api::core::v1::{Event, Pod, PodStatus};
use kubelet::wiring::Settings;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{self, FakeNode, IMAGE, World, hard, is_ready};
use testkit::{Sandbox, sandbox};

use crate::life::world;

const NS: Option<&str> = Some("default");
const MIB: u64 = 1 << 20;

async fn member(seed: u64) -> (World, FakeApi, Settings) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("a world with an API server");
    let settings = Settings { eviction: hard(&[]), ..node::member().await };
    (world, api, settings)
}

/// A pod with a volume of this size and a container with this limit, if they are given.
fn pod(name: &str, priority: i32, size: Option<&str>, limit: Option<&str>) -> Pod {
    let limits = limit.map_or(json!({}), |limit| json!({ "ephemeral-storage": limit }));
    let volume = size.map_or(json!({}), |size| json!({ "sizeLimit": size }));
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node",
            "priority": priority,
            "terminationGracePeriodSeconds": 600,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "resources": { "limits": limits },
                "volumeMounts": [{ "name": "x", "mountPath": "/x" }],
            }],
            "volumes": [{ "name": "x", "emptyDir": volume }],
        }
    });
    serde_json::from_value(json).expect("a pod")
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn uid(api: &FakeApi, name: &str) -> String {
    api.get::<Pod>(NS, name).and_then(|pod| pod.metadata.uid).expect("a UID")
}

fn disk(mib: u64) -> BTreeMap<String, DiskUsage> {
    [("x".to_owned(), DiskUsage { bytes: mib * MIB, inodes: 1 })].into()
}

/// Sets the use of the pod's volume and logs, in MiB.
fn fill(world: &World, api: &FakeApi, name: &str, volume: u64, logs: u64) {
    let logs = disk(logs).into_values().map(|usage| ("main".to_owned(), usage)).collect();
    let usage = PodUsage { volumes: disk(volume), logs, ..PodUsage::default() };
    world.stats.set_pod(&uid(api, name), usage);
}

async fn started(
    sandbox: &Sandbox,
    world: &World,
    api: &FakeApi,
    settings: &Settings,
    pods: &[Pod],
) -> FakeNode {
    pods.iter().for_each(|pod| {
        api.put(pod);
    });
    let node = FakeNode::start(sandbox, world, settings);
    let names: Vec<String> = pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
    let ready = || names.iter().all(|name| is_ready(&status(api, name)));
    sandbox.until("all pods to be Ready", ready).await;
    node
}

#[test]
fn who_takes_too_much_is_evicted_with_upstreams_words_and_nobody_else() {
    let volume = "Usage of EmptyDir volume \"x\" exceeds the limit \"1Mi\". ";
    let all = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    let cases: [(_, _, _, u64, u64, _); 2] =
        [(211, Some("1024Ki"), None, 2, 0, volume), (212, None, Some("2Mi"), 1, 2, all)];
    for (seed, size, limit, in_volume, in_logs, message) in cases {
        sandbox(Policy::default(), async |sandbox| {
            let (world, api, settings) = member(seed).await;
            let pods = [
                pod("greedy", 0, size, limit),
                pod("neighbour", 0, size, limit),
                pod("unlimited", 0, None, None),
                pod("critical", 2_000_000_000, size, limit),
            ];
            let node = started(sandbox, &world, &api, &settings, &pods).await;
            for name in ["greedy", "unlimited", "critical"] {
                fill(&world, &api, name, in_volume, in_logs);
            }
            fill(&world, &api, "neighbour", 1, 0);
            let began = tokio::time::Instant::now();
            let failed = || status(&api, "greedy").phase.as_deref() == Some("Failed");
            sandbox.until("the greedy one to end", failed).await;
            assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
            let told = status(&api, "greedy");
            assert_eq!((told.reason.as_deref(), told.message.as_deref()), (Some("Evicted"), Some(message)));
            let disrupted = told.conditions.iter().flatten().any(|one| one.type_ == "DisruptionTarget");
            assert!(!disrupted, "it was nobody's want");
            let events: Vec<Event> = api.list();
            let evicted: Vec<&Event> =
                events.iter().filter(|event| event.reason.as_deref() == Some("Evicted")).collect();
            assert_eq!(evicted.len(), 1, "{evicted:?}");
            assert_eq!(
                (evicted[0].type_.as_deref(), evicted[0].message.as_deref()),
                (Some("Warning"), Some(message))
            );
            sandbox.pass(Duration::from_secs(60)).await;
            for name in ["neighbour", "unlimited", "critical"] {
                assert!(is_ready(&status(&api, name)), "{name}");
            }
            let counts = |name: &str| world.stats.counts(&uid(&api, name));
            assert_eq!((counts("unlimited"), counts("critical")), (0, 0), "nobody asks what they take");
            assert_eq!(
                world.stats.looks() > 0,
                limit.is_some(),
                "which disks there are is asked when it matters"
            );
            node.stop().await;
        });
    }
}

#[test]
fn a_containers_own_limit_counts_its_logs_and_what_it_writes() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(213).await;
        let mut greedy = pod("greedy", 0, None, Some("1Mi"));
        let roomy = json!({ "name": "roomy", "image": IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": ["serve"], "resources": { "limits": { "ephemeral-storage": "1Gi" } } });
        let roomy = serde_json::from_value(roomy).expect("a container");
        greedy.spec.as_mut().expect("a spec").containers.push(roomy);
        let node = started(sandbox, &world, &api, &settings, &[greedy]).await;
        // The runtime reports 4 KiB in each layer.
        let logs = [("main".to_owned(), DiskUsage { bytes: MIB - 100, inodes: 1 })].into();
        world.stats.set_pod(&uid(&api, "greedy"), PodUsage { logs, ..PodUsage::default() });
        let failed = || status(&api, "greedy").phase.as_deref() == Some("Failed");
        sandbox.until("the greedy one to end", failed).await;
        let message = status(&api, "greedy").message;
        let expected = "Container main exceeded its local ephemeral storage limit \"1Mi\". ";
        assert_eq!(message.as_deref(), Some(expected));
        node.stop().await;
    });
}

#[test]
fn who_is_slow_to_count_delays_no_other_and_not_the_node() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(214).await;
        let settings = Settings { eviction: hard(&[("memory.available", "100Mi")]), ..settings };
        let pods: Vec<Pod> = (0..4)
            .map(|number| pod(&format!("slow-{number}"), 0, Some("1Mi"), None))
            .chain([pod("quick", 0, Some("1Mi"), None)])
            .collect();
        let node = started(sandbox, &world, &api, &settings, &pods).await;
        for number in 0..4 {
            world.stats.set_slow(&uid(&api, &format!("slow-{number}")), Duration::from_secs(600));
        }
        sandbox.pass(Duration::from_secs(60)).await;
        let before = (world.stats.counts(&uid(&api, "quick")), world.stats.looks());
        sandbox.pass(Duration::from_secs(100)).await;
        let counted = world.stats.counts(&uid(&api, "quick")) - before.0;
        assert!(counted >= 9, "{counted} times in 100 seconds");
        assert!(world.stats.looks() - before.1 >= 9, "the node is measured as ever");
        // The files counted before the time is up count.
        fill(&world, &api, "slow-2", 5, 0);
        fill(&world, &api, "quick", 5, 0);
        let failed = |name: &str| status(&api, name).phase.as_deref() == Some("Failed");
        let began = tokio::time::Instant::now();
        sandbox.until("the quick one to end", || failed("quick")).await;
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        sandbox.until("the slow one to end", || failed("slow-2")).await;
        assert!(is_ready(&status(&api, "slow-1")));
        node.stop().await;
    });
}

#[test]
fn without_isolation_of_local_storage_nobody_is_counted() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, mut settings) = member(215).await;
        settings.eviction.local_storage = false;
        let node =
            started(sandbox, &world, &api, &settings, &[pod("greedy", 0, Some("1Mi"), Some("1Mi"))]).await;
        fill(&world, &api, "greedy", 9, 9);
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(is_ready(&status(&api, "greedy")));
        assert_eq!(world.stats.counts(&uid(&api, "greedy")), 0);
        let observed: Value = sandbox.report("EvictionManager").await.observed;
        assert_eq!(observed["limited"], 0);
        node.stop().await;
    });
}
