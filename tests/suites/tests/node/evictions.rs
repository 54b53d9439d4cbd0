//! A node that runs out of memory or disk: which pods are evicted, with which messages, which are still admitted, and
//! how pressure ends.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, Match, RegistryImage};
use bridge_kube::fake::FakeApi;
use bridge_node::stats::PodUsage;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus};
use kubelet::wiring::Settings;
use messages::image_manager::DeleteUnusedImages;
use messages::supervision::Fault;
use serde_json::{Value, json};
use supervision::{Policy, RestartPolicy};
use testkit::node::{self, FakeNode, IMAGE, World, hard, is_ready};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::pods::{job, web};

const NS: Option<&str> = Some("default");
const MIB: u64 = 1 << 20;

/// A member of a cluster whose containers end only by force: an eviction takes two seconds.
async fn member(seed: u64, thresholds: &[(&str, &str)]) -> (World, FakeApi, Settings) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("a world with an API server");
    world.runtime.behave(Match::Command("stubborn".to_owned()), vec![Behaviour::stubborn()]);
    let settings = Settings { eviction: hard(thresholds), ..node::member().await };
    (world, api, settings)
}

fn pod(name: &str, priority: i32, memory: &str) -> Pod {
    let requests = if memory.is_empty() { json!({}) } else { json!({ "memory": memory }) };
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node",
            "priority": priority,
            "terminationGracePeriodSeconds": 60,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["stubborn"],
                "resources": { "requests": requests },
            }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(600);
    while !done() {
        assert!(tokio::time::Instant::now() < end, "waited 10 minutes in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn is_failed(api: &FakeApi, name: &str) -> bool {
    status(api, name).phase.as_deref() == Some("Failed")
}

fn condition(api: &FakeApi, kind: &str) -> Option<(String, String)> {
    let node = api.get::<Node>(None, "node")?;
    let found = node.status?.conditions?.into_iter().find(|condition| condition.type_ == kind)?;
    Some((found.status, found.reason.unwrap_or_default()))
}

fn holds(api: &FakeApi, kind: &str) -> bool {
    condition(api, kind).is_some_and(|(status, _)| status == "True")
}

/// Events of a reason, about an object of this name.
fn events(api: &FakeApi, reason: &str, name: &str) -> Vec<Event> {
    let of = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(name)
    };
    api.list::<Event>().into_iter().filter(of).collect()
}

/// Starts a node with these pods, all Ready, and sets the usage of each in MiB.
async fn started(
    sandbox: &Sandbox,
    world: &World,
    api: &FakeApi,
    settings: &Settings,
    pods: &[(Pod, u64)],
) -> FakeNode {
    for (pod, _) in pods {
        api.put(pod);
    }
    let node = FakeNode::start(sandbox, world, settings);
    let names = || pods.iter().filter_map(|(pod, _)| pod.metadata.name.clone());
    until("all pods to be Ready", || names().all(|name| is_ready(&status(api, &name)))).await;
    for (pod, mib) in pods {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let uid = api.get::<Pod>(NS, &name).and_then(|pod| pod.metadata.uid).expect("a UID");
        let usage = PodUsage { memory_bytes: Some(mib * MIB), ..PodUsage::default() };
        world.stats.set_pod(&uid, usage);
        let of = |id: &str| id.contains(&uid) || id == name;
        for container in world.runtime.containers() {
            if container.labels.get("io.kubernetes.pod.uid").is_some_and(|uid| of(uid)) {
                world.runtime.set_usage(&container.id, 0, mib * MIB);
            }
        }
    }
    node
}

#[test]
fn the_pod_furthest_above_its_request_ends_and_pressure_is_over_later() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(101, &[("memory.available", "100Mi")]).await;
        let pods = [
            (pod("within", -5, "1Gi"), 900),
            (pod("above", 0, "100Mi"), 600),
            (pod("far", 0, ""), 700),
            (pod("important", 100, ""), 5000),
            (pod("critical", 2_000_000_000, ""), 6000),
        ];
        let node = started(sandbox, &world, &api, &settings, &pods).await;
        until("the Node's conditions", || condition(&api, "MemoryPressure").is_some()).await;
        assert!(!holds(&api, "MemoryPressure"));
        world.stats.set_memory(90 * MIB);
        until("an eviction", || !events(&api, "Evicted", "far").is_empty()).await;
        world.stats.set_memory(790 * MIB);
        until("the pod to have ended", || is_failed(&api, "far")).await;
        let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. \
                       Container main was using 700Mi, request is 0, has larger consumption of memory. ";
        let told = status(&api, "far");
        assert_eq!((told.reason.as_deref(), told.message.as_deref()), (Some("Evicted"), Some(message)));
        let disrupted: Vec<_> =
            told.conditions.into_iter().flatten().filter(|one| one.type_ == "DisruptionTarget").collect();
        assert_eq!((disrupted.len(), disrupted[0].status.as_str()), (1, "True"));
        assert_eq!(disrupted[0].reason.as_deref(), Some("TerminationByKubelet"));
        assert_eq!(disrupted[0].message.as_deref(), Some(message));
        let event = events(&api, "Evicted", "far").remove(0);
        assert_eq!((event.type_.as_deref(), event.message.as_deref()), (Some("Warning"), Some(message)));
        let annotations = serde_json::to_value(event.metadata.annotations).expect("JSON");
        let expected = json!({
            "starved_resource": "memory", "offending_containers": "main", "offending_containers_usage": "700Mi",
        });
        assert_eq!(annotations, expected);
        let met = events(&api, "EvictionThresholdMet", "node");
        assert_eq!(met[0].message.as_deref(), Some("Attempting to reclaim memory"));

        until("memory pressure", || holds(&api, "MemoryPressure")).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(holds(&api, "MemoryPressure"), "not over yet");
        until("the pressure to be over", || !holds(&api, "MemoryPressure")).await;
        let reason = condition(&api, "MemoryPressure").map(|(_, reason)| reason);
        assert_eq!(reason.as_deref(), Some("KubeletHasSufficientMemory"));
        for name in ["within", "above", "important", "critical"] {
            assert!(is_ready(&status(&api, name)), "{name}");
        }
        node.stop().await;
    });
}

#[test]
fn critical_pods_stay_whatever_they_use() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(102, &[("memory.available", "100Mi")]).await;
        world.manifest("web.yaml", &web("web"));
        let pods = [(pod("critical", 2_000_000_000, ""), 6000), (pod("plain", 1_999_999_999, ""), 1)];
        let node = started(sandbox, &world, &api, &settings, &pods).await;
        until("the mirror to be Ready", || is_ready(&status(&api, "web-node"))).await;
        world.stats.set_memory(MIB);
        until("the only candidate to have ended", || is_failed(&api, "plain")).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert!(is_ready(&status(&api, "critical")) && is_ready(&status(&api, "web-node")));
        assert!(holds(&api, "MemoryPressure"));
        let met = events(&api, "EvictionThresholdMet", "node");
        assert!(met.iter().any(|event| event.count > Some(5)), "it goes on being tried: {met:?}");
        node.stop().await;
    });
}

#[test]
fn an_eviction_survives_the_death_of_its_manager() {
    let policy = Policy {
        restart: RestartPolicy { restarts_max: 1000, ..RestartPolicy::default() },
        ..Policy::default()
    };
    sandbox(policy, async |sandbox| {
        sandbox.expect_crashes();
        let (world, api, settings) = member(103, &[("memory.available", "100Mi")]).await;
        let pods = [(pod("far", 0, ""), 700), (pod("other", 0, ""), 600)];
        let node = started(sandbox, &world, &api, &settings, &pods).await;
        world.stats.set_memory(50 * MIB);
        // EvictionManager crashes at the first report of the pod that it has evicted.
        until("memory pressure", || holds(&api, "MemoryPressure")).await;
        let fault = Fault::PanicOn { message: "WorkerReported".to_owned(), nth: 1 };
        node.tree.inject("EvictionManager", fault).expect("every subsystem is in the tree");
        until("an eviction", || !events(&api, "Evicted", "far").is_empty()).await;
        world.stats.set_memory(900 * MIB);
        let mut pressed = true;
        while !is_failed(&api, "far") {
            pressed &= holds(&api, "MemoryPressure");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..1000 {
            pressed &= holds(&api, "MemoryPressure");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(pressed, "the condition was withdrawn before its time");
        assert!(is_ready(&status(&api, "other")));
        let evicted = events(&api, "Evicted", "far");
        assert_eq!((evicted.len(), evicted[0].count), (1, Some(1)));
        until("the pressure to be over", || !holds(&api, "MemoryPressure")).await;
        assert!(is_ready(&status(&api, "other")));
        node.stop().await;
    });
}

#[test]
fn who_has_asked_for_no_memory_is_not_let_in_while_there_is_none() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(104, &[("memory.available", "100Mi")]).await;
        let node = started(sandbox, &world, &api, &settings, &[]).await;
        world.stats.set_memory(MIB);
        until("memory pressure", || holds(&api, "MemoryPressure")).await;
        world.stats.set_memory(4096 * MIB);
        api.put(&pod("none", 0, ""));
        api.put(&pod("some", 0, "10Mi"));
        api.put(&pod("critical", 2_000_000_000, ""));
        until("the refusal", || is_failed(&api, "none")).await;
        let refused = status(&api, "none");
        assert_eq!(refused.reason.as_deref(), Some("Evicted"));
        let message = "Pod was rejected: The node had condition: [MemoryPressure]. ";
        assert_eq!(refused.message.as_deref(), Some(message));
        until("the others", || ["some", "critical"].iter().all(|name| is_ready(&status(&api, name)))).await;
        // A new PodManager asks for the pressure.
        node.tree.kill("PodManager").expect("every subsystem is in the tree");
        sandbox.expect_crashes();
        sandbox.pass(Duration::from_secs(5)).await;
        api.put(&pod("none-again", 0, ""));
        until("the refusal", || is_failed(&api, "none-again")).await;
        until("the pressure to be over", || !holds(&api, "MemoryPressure")).await;
        api.put(&pod("late", 0, ""));
        until("a late pod", || is_ready(&status(&api, "late"))).await;
        node.stop().await;
    });
}

#[test]
fn a_full_disk_takes_back_first_what_nobody_needs() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(105, &[("nodefs.available", "10%")]).await;
        world.manifest("job.yaml", &job("job"));
        let unused = world.runtime.add_image("understudy.dev/unused:1", RegistryImage::default());
        let node = started(sandbox, &world, &api, &settings, &[(pod("plain", 0, ""), 1)]).await;
        until("the job to succeed", || status(&api, "job-node").phase.as_deref() == Some("Succeeded")).await;
        let calls = |rpc: Rpc| world.runtime.counts().get(&rpc).copied().unwrap_or(0);
        // An image that has just been detected stays.
        sandbox.pass(Duration::from_secs(130)).await;
        let containers: Vec<String> = world.runtime.containers().into_iter().map(|found| found.id).collect();
        world.stats.set_disk(5 << 30);
        until("the unused image to go", || calls(Rpc::RemoveImage) == 1).await;
        until("disk pressure", || holds(&api, "DiskPressure")).await;
        assert_eq!(world.runtime.containers().len(), containers.len() - 1, "the job's is gone");
        until("an eviction", || is_failed(&api, "plain")).await;
        let message = status(&api, "plain").message.unwrap_or_default();
        assert!(
            message.starts_with(
                "The node was low on resource: ephemeral-storage. Threshold quantity: 10737418400, available: 5Gi. "
            ),
            "{message}"
        );
        // The disk is as full as before, and the pod's image goes, but no sooner than its last container.
        until("the pod's image to go", || calls(Rpc::RemoveImage) == 2).await;
        let order = world.runtime.calls();
        let of = |rpc: Rpc| order.iter().enumerate().filter(move |(_, call)| call.rpc == rpc);
        let images: Vec<_> = of(Rpc::RemoveImage).map(|(at, call)| (at, call.subject.as_str())).collect();
        assert_eq!(images[0].1, unused);
        for id in &containers {
            let gone = of(Rpc::RemoveContainer).find(|(_, call)| call.subject == *id).map(|(at, _)| at);
            assert!(gone.is_some_and(|at| at < images[1].0), "an image that is in use stays");
        }
        node.stop().await;
    });
}

#[test]
fn nobody_ends_when_enough_was_taken_back() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(106, &[("nodefs.available", "10%")]).await;
        world.runtime.add_image("understudy.dev/unused:1", RegistryImage::default());
        let node = started(sandbox, &world, &api, &settings, &[(pod("plain", 0, ""), 1)]).await;
        sandbox.pass(Duration::from_secs(130)).await;
        // Deleting takes some time, and meanwhile there is room again.
        let slow = bridge_cri::fake::Fault::Latency(Duration::from_secs(5));
        world.runtime.fault(Rpc::RemoveImage, 1, slow);
        world.stats.set_disk(5 << 30);
        until("disk pressure", || holds(&api, "DiskPressure")).await;
        world.stats.set_disk(50 << 30);
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(is_ready(&status(&api, "plain")));
        assert_eq!(world.runtime.counts().get(&Rpc::RemoveImage), Some(&1));
        node.stop().await;
    });
}

#[test]
fn a_node_without_thresholds_is_never_measured() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(107, &[]).await;
        let node = started(sandbox, &world, &api, &settings, &[(pod("plain", 0, ""), 1)]).await;
        world.stats.set_memory(0);
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.stats.looks(), 0);
        assert!(is_ready(&status(&api, "plain")) && !holds(&api, "MemoryPressure"));
        let report = sandbox.report("EvictionManager").await;
        assert_eq!(report.observed["pressure"]["memory"], Value::Bool(false));
        node.stop().await;
    });
}

#[test]
fn unused_images_go_when_their_disk_is_full_and_the_node_tells_what_is_missing() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, mut settings) = member(109, &[]).await;
        settings.images.collection.high_percent = 85;
        world.runtime.add_image("understudy.dev/unused:1", RegistryImage::default());
        let node = started(sandbox, &world, &api, &settings, &[(pod("plain", 0, ""), 1)]).await;
        world.stats.set_disk(5 << 30);
        sandbox.pass(Duration::from_secs(310)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::RemoveImage), Some(&1));
        assert!(is_ready(&status(&api, "plain")), "its image stays");
        let told = events(&api, "FreeDiskSpaceFailed", "node");
        let told = told.first().and_then(|event| event.message.clone()).unwrap_or_default();
        assert!(told.contains("(95% of 100.0 GiB used)"), "{told}");
        node.stop().await;
    });
}

#[test]
fn images_that_fill_the_runtimes_list_are_shown_and_deleted_all_the_same() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api, settings) = member(110, &[]).await;
        let huge = ["understudy.dev/huge-a:1", "understudy.dev/huge-b:1"];
        let pods = huge.map(|image| {
            let username = "u".repeat(9 << 20);
            world.runtime.publish(image, RegistryImage { username, ..RegistryImage::default() });
            let mut pod = pod(&image["understudy.dev/".len()..image.len() - ":1".len()], 0, "");
            pod.spec.as_mut().expect("a spec").containers[0].image = Some(image.to_owned());
            (pod, 1)
        });
        let node = started(sandbox, &world, &api, &settings, &pods).await;
        let shows = |image: &str| {
            let images = api.get::<Node>(None, "node").and_then(|node| node.status?.images);
            images.into_iter().flatten().any(|shown| shown.names.iter().flatten().any(|name| name == image))
        };
        until("the Node to show both", || huge.iter().all(|image| shows(image))).await;
        for name in ["huge-a", "huge-b"] {
            api.delete::<Pod>(NS, name, None);
        }
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(600)).await;
        assert_eq!(events(&api, "ImageListTooLong", "node").len(), 1);
        let deleted = node.node.delete_images.ask(DeleteUnusedImages, Duration::from_secs(60)).await;
        assert!(deleted.is_ok_and(|deleted| deleted >= 2));
        until("the Node to show none", || !huge.iter().any(|image| shows(image))).await;
        node.stop().await;
    });
}
