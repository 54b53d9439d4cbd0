//! A single fact is told until it is known: its message may be lost after a mailbox has taken it, or its receiver may crash
//! over it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Match};
use bridge_kube::fake::FakeApi;
use bridge_node::host::FoundAddresses;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kubelet::wiring::Settings;
use messages::PodUid;
use messages::config_manager::ReloadConfiguration;
use messages::eviction_manager::EvictionSettings;
use messages::supervision::Fault;
use pod_spec::quantity::Quantity;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, hard, member, node_resources};
use testkit::{Sandbox, sandbox};

use crate::blame::quarantined;
use crate::cluster::{clustered, is_told_ready, pod, within};
use crate::csi_nodes::node_ready;
use crate::desired::inject;
use crate::member::{crash_for_good, holds};
use crate::objects::{config_map, container, mounts_v, object, read};
use crate::pods::job;

const NS: Option<&str> = Some("default");
const MIB: u64 = 1 << 20;
/// A fact is told every minute, and what it brings about takes some seconds.
const WITHIN_S: u64 = 75;

/// What may become of the message of a fact at its receiver.
pub fn faults(message: &str) -> [Fault; 2] {
    let message = message.to_owned();
    [Fault::Drop { message: message.clone(), count: 1 }, Fault::PanicOn { message, nth: 1 }]
}

pub fn set_address(world: &World, address: &str) {
    let default_routes = vec![address.parse().expect("an address")];
    world.addresses.set(FoundAddresses { default_routes, ..FoundAddresses::default() });
}

/// A member of a cluster that is ready and has a pod; its digests and first facts have been told.
async fn started(sandbox: &Sandbox, seed: u64) -> (FakeNode, World, FakeApi) {
    let (world, api) = clustered(seed);
    set_address(&world, "192.0.2.20");
    let settings = Settings { eviction: hard(&[("memory.available", "100Mi")]), ..member().await };
    api.put(&pod("web", "serve"));
    let node = FakeNode::start(sandbox, &world, &settings);
    within(300, "the pod to be Ready", || is_told_ready(&api, "web")).await;
    sandbox.pass(Duration::from_secs(5)).await;
    (node, world, api)
}

/// The manifest of a pod that serves.
fn static_server(name: &str) -> String {
    job(name).replace("[job]", "[serve]").replace("OnFailure", "Always")
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn node_uid(api: &FakeApi) -> Option<String> {
    api.get::<Node>(None, "node").and_then(|node| node.metadata.uid)
}

/// Deletes the Node, and waits for the one that is made in its place.
async fn another_node(api: &FakeApi) {
    let first = node_uid(api);
    api.delete::<Node>(None, "node", None);
    within(20, "another Node", || node_uid(api).is_some_and(|uid| Some(uid) != first)).await;
}

#[test]
fn the_nodes_pressure_may_be_lost_at_any_observer() {
    for actor in ["NodeStatus", "PodManager"] {
        for fault in faults("PressureObserved") {
            sandbox(Policy::default(), async |sandbox| {
                sandbox.expect_crashes();
                let (node, world, api) = started(sandbox, 440).await;
                inject(&node, actor, fault.clone());
                world.stats.set_memory(MIB);
                if actor == "NodeStatus" {
                    within(WITHIN_S, "the condition", || holds(&api, "MemoryPressure", "True")).await;
                } else {
                    sandbox.pass(Duration::from_secs(WITHIN_S)).await;
                    api.put(&pod("late", "serve"));
                    let refused = || status(&api, "late").reason.as_deref() == Some("Evicted");
                    within(20, "the refusal", refused).await;
                }
                node.stop().await;
            });
        }
    }
}

#[test]
fn static_pods_may_be_lost_at_podmanager() {
    for fault in faults("PodsChanged") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 448).await;
            inject(&node, "PodManager", fault.clone());
            world.manifest("late.yaml", &static_server("late"));
            within(WITHIN_S + 20, "the static pod", || is_told_ready(&api, "late-node")).await;
            node.stop().await;
        });
    }
}

#[test]
fn mirrors_may_be_lost_at_statusmanager() {
    for fault in faults("MirrorPods") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 449).await;
            inject(&node, "StatusManager", fault.clone());
            world.manifest("late.yaml", &static_server("late"));
            within(WITHIN_S + 20, "the mirror to be told", || is_told_ready(&api, "late-node")).await;
            node.stop().await;
        });
    }
}

#[test]
fn a_workers_report_may_be_lost_at_the_pool() {
    for fault in faults("PodReported") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, _world, api) = started(sandbox, 452).await;
            inject(&node, "PodWorkerPool", fault.clone());
            api.put(&pod("late", "serve"));
            within(WITHIN_S, "the pod to be told Ready", || is_told_ready(&api, "late")).await;
            node.stop().await;
        });
    }
}

#[test]
fn the_runtimes_health_may_be_lost_at_the_pool() {
    for fault in faults("RuntimeObserved") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 441).await;
            world.runtime.set_condition("RuntimeReady", false, "Restarting", "");
            sandbox.pass(Duration::from_secs(10)).await;
            api.put(&pod("late", "serve"));
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(!is_told_ready(&api, "late"), "it waits for the runtime");
            inject(&node, "PodWorkerPool", fault.clone());
            world.runtime.set_condition("RuntimeReady", true, "", "");
            within(WITHIN_S, "the pod that waited", || is_told_ready(&api, "late")).await;
            node.stop().await;
        });
    }
}

/// A pod that needs the config map `conf`.
fn needs_conf(name: &str, of_container: Value, volumes: Value) -> Pod {
    object(json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1,
            "containers": [container("main", of_container)], "volumes": volumes,
        },
    }))
}

#[test]
fn the_news_of_an_object_may_be_lost_at_any_observer() {
    let message = || "PodObjectsChanged".to_owned();
    let lost = [Fault::Drop { message: message(), count: 4 }, Fault::PanicOn { message: message(), nth: 1 }];
    for fault in lost {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 454).await;
            let volumes = json!([{ "name": "v", "configMap": { "name": "conf" } }]);
            let uid = api.put(&needs_conf("volume", mounts_v(), volumes)).metadata.uid.expect("a UID");
            let variable = json!({ "configMapKeyRef": { "name": "conf", "key": "a" } });
            let variables = json!({ "env": [{ "name": "A", "valueFrom": variable }] });
            api.put(&needs_conf("variable", variables, json!([])));
            sandbox.pass(Duration::from_secs(10)).await;
            let is_ready = |name: &str| is_told_ready(&api, name);
            assert!(!is_ready("volume") && !is_ready("variable"), "there is no such object");
            for actor in ["VolumeManager", "PodWorkerPool"] {
                inject(&node, actor, fault.clone());
            }
            config_map(&api, "conf", json!({ "a": "first" }));
            within(WITHIN_S, "the pods that waited", || is_ready("volume") && is_ready("variable")).await;
            let shown = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/v");
            let content = || read(&world, &PathBuf::from(&shown), "a").unwrap_or_default();
            assert_eq!(content(), "first");
            inject(&node, "VolumeManager", fault.clone());
            config_map(&api, "conf", json!({ "a": "second" }));
            within(WITHIN_S, "the new content", || content() == "second").await;
            node.stop().await;
        });
    }
}

#[test]
fn the_nodes_addresses_may_be_lost_at_statusmanager() {
    for fault in faults("NodeAddressesObserved") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 442).await;
            let host_ip = || status(&api, "web").host_ip.unwrap_or_default();
            assert_eq!(host_ip(), "192.0.2.20");
            inject(&node, "StatusManager", fault.clone());
            set_address(&world, "192.0.2.30");
            within(WITHIN_S + 10, "the pod's new host", || host_ip() == "192.0.2.30").await;
            node.stop().await;
        });
    }
}

#[test]
fn the_node_may_be_lost_at_any_observer() {
    for actor in ["Lease", "VolumeManager"] {
        sandbox(Policy::default(), async |sandbox| {
            let (node, _world, api) = started(sandbox, 443).await;
            // That there is none, and the new one.
            inject(&node, actor, Fault::Drop { message: "NodeObserved".to_owned(), count: 3 });
            another_node(&api).await;
            let owner = || {
                let lease = api.get::<Lease>(Some("kube-node-lease"), "node");
                lease.and_then(|lease| Some(lease.metadata.owner_references?.first()?.uid.clone()))
            };
            let is_known = || match actor {
                "Lease" => owner() == node_uid(&api),
                _ => node_ready(&api).is_some_and(|ready| ready.status == "True"),
            };
            within(3 * WITHIN_S, &format!("the Node to be known to {actor}"), is_known).await;
            node.stop().await;
        });
    }
}

#[test]
fn the_csi_drivers_may_be_lost_at_nodestatus() {
    for fault in faults("CsiDriversObserved") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, _world, api) = started(sandbox, 444).await;
            another_node(&api).await;
            inject(&node, "NodeStatus", fault.clone());
            let is_ready = || node_ready(&api).is_some_and(|ready| ready.status == "True");
            within(2 * WITHIN_S, "a Node that is ready", is_ready).await;
            node.stop().await;
        });
    }
}

#[test]
fn changed_places_for_pods_may_be_lost_at_nodestatus() {
    for fault in faults("NodeResourcesConfigured") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 453).await;
            inject(&node, "NodeStatus", fault.clone());
            let mut resources = (*node_resources()).clone();
            resources.capacity.insert("pods".to_owned(), Quantity::decimal(7));
            world.configuration.change(|configuration| configuration.resources = Arc::new(resources));
            node.node.reload.tell(ReloadConfiguration).expect("there is room");
            let places = || {
                let capacity = api.get::<Node>(None, "node")?.status?.capacity?;
                capacity.get("pods").map(|pods| pods.0.clone())
            };
            within(WITHIN_S, "the new capacity", || places().as_deref() == Some("7")).await;
            node.stop().await;
        });
    }
}

/// A pod whose container is told on its command line how much memory it may have: as it has no limit, what pods may have.
fn told_of_memory(name: &str) -> Pod {
    let mut told = pod(name, "serve");
    let container = &mut told.spec.as_mut().expect("it has a spec").containers[0];
    let memory = json!({ "resourceFieldRef": { "resource": "limits.memory", "divisor": "1" } });
    let env = json!([{ "name": "MEMORY", "valueFrom": memory }]);
    container.env = Some(serde_json::from_value(env).expect("variables"));
    container.command.get_or_insert_default().push("$(MEMORY)".to_owned());
    told
}

#[test]
fn changed_resources_of_the_node_may_be_lost_at_podworkerpool_and_hold_for_what_starts_from_then_on() {
    for fault in faults("NodeResourcesConfigured") {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (node, world, api) = started(sandbox, 455).await;
            api.put(&told_of_memory("early"));
            within(60, "the pod to be Ready", || is_told_ready(&api, "early")).await;
            inject(&node, "PodWorkerPool", fault.clone());
            let mut resources = (*node_resources()).clone();
            resources.allocatable.insert("memory".to_owned(), Quantity::binary(4 << 30));
            world.configuration.change(|configuration| configuration.resources = Arc::new(resources));
            node.node.reload.tell(ReloadConfiguration).expect("there is room");
            sandbox.pass(Duration::from_secs(WITHIN_S)).await;

            let told = Behaviour::exits(Duration::from_secs(1), 7);
            world.runtime.behave(Match::Command((4_u64 << 30).to_string()), vec![told]);
            let ended_with = |name: &str| {
                let containers = status(&api, name).container_statuses.unwrap_or_default();
                let states = containers.into_iter().flat_map(|one| [one.state, one.last_state]);
                let ended = states.flatten().filter_map(|state| state.terminated);
                ended.map(|terminated| terminated.exit_code).any(|code| code == 7)
            };
            api.put(&told_of_memory("late"));
            within(60, "a pod that starts later to be told", || ended_with("late")).await;
            assert!(!ended_with("early"), "what runs goes on");
            for container in world.runtime.containers() {
                world.runtime.exit_container(&container.id, 1, false);
            }
            within(60, "a container that starts anew to be told", || ended_with("early")).await;
            node.stop().await;
        });
    }
}

#[test]
fn a_new_evictionmanager_keeps_a_pressure_that_a_live_threshold_has_told() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(454);
        set_address(&world, "192.0.2.20");
        let settings = Settings { eviction: hard(&[]), ..member().await };
        let node = FakeNode::start(sandbox, &world, &settings);
        within(60, "the condition", || holds(&api, "MemoryPressure", "False")).await;
        world.stats.set_memory(MIB);
        sandbox.pass(Duration::from_secs(30)).await;
        assert!(holds(&api, "MemoryPressure", "False"), "there is no threshold");
        let eviction = EvictionSettings {
            hard: [("memory.available".to_owned(), "100Mi".to_owned())].into(),
            transition: Duration::from_secs(300),
            ..EvictionSettings::default()
        };
        world.configuration.change(|configuration| configuration.eviction = Arc::new(eviction));
        node.node.reload.tell(ReloadConfiguration).expect("there is room");
        within(WITHIN_S, "the pressure", || holds(&api, "MemoryPressure", "True")).await;
        for _ in 0..3 {
            node.tree.kill("EvictionManager").expect("it is in the tree");
            for _ in 0..WITHIN_S {
                sandbox.pass(Duration::from_secs(1)).await;
                assert!(holds(&api, "MemoryPressure", "True"), "the node has not got any memory back");
            }
        }
        node.stop().await;
    });
}

#[test]
fn the_end_of_a_quarantine_may_be_lost_at_statusmanager() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (node, _world, api) = started(sandbox, 450).await;
        let web = api.get::<Pod>(NS, "web").and_then(|pod| pod.metadata.uid).expect("it is there");
        let is_left_alone = || !quarantined(&status(&api, "web")).is_empty();
        inject(&node, "VolumeManager", Fault::PoisonPod { pod: PodUid::new(&web), times: 4 });
        node.tree.kill("VolumeManager").expect("it is in the tree");
        within(WITHIN_S, "the quarantine", is_left_alone).await;
        inject(&node, "StatusManager", Fault::Drop { message: "PodsQuarantined".to_owned(), count: 3 });
        within(10 + 3 * WITHIN_S, "its end", || !is_left_alone()).await;
        node.stop().await;
    });
}

#[test]
fn a_degradation_and_its_end_may_be_lost_at_nodestatus() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (node, _world, api) = started(sandbox, 451).await;
        let is_degraded = || holds(&api, "KubeletDegraded", "True");
        let lost = |count| {
            let message = "SubsystemsReported".to_owned();
            inject(&node, "NodeStatus", Fault::Drop { message, count });
        };
        lost(1);
        crash_for_good(&node, "ImageManager");
        within(2 * WITHIN_S, "the condition", is_degraded).await;
        // It is tried again after 300 s: what is told every minute until then is lost, too, and the end itself twice.
        lost(7);
        within(300 + 5 * WITHIN_S, "its end", || !is_degraded()).await;
        node.stop().await;
    });
}
