//! Statuses of pods and of the node in cases in which it is easy to deviate from upstream: ends that other writers
//! wrote, logs of ended containers, lists that hang, looks that fail, addresses that change.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, Fault, Match};
use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Fault as ApiFault, On, Verb};
use bridge_node::cgroups::Cgroups;
use bridge_node::host::FoundAddresses;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, PodStatus};
use messages::pleg::{GetHeldPods, GetRuntimePod, GetRuntimePods};
use pod_spec::resources::QosClass;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, NODE, World, is_ready, member};
use testkit::sandbox;

use crate::cluster::until;
use crate::life::world;

const NS: Option<&str> = Some("default");

fn cluster(seed: u64) -> (World, FakeApi) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("it has one");
    (world, api)
}

/// A pod that serves for ever, with more in its spec.
fn serving(name: &str, more: &Value) -> Pod {
    let mut json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"]
            }]
        }
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        json["spec"][field] = value.clone();
    }
    serde_json::from_value(json).expect("a pod")
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn phase(api: &FakeApi, name: &str) -> String {
    status(api, name).phase.unwrap_or_default()
}

fn node_ready(api: &FakeApi) -> NodeCondition {
    let conditions = api.get::<Node>(None, NODE).and_then(|node| node.status?.conditions);
    conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready").unwrap_or_default()
}

fn is_node_ready(api: &FakeApi) -> bool {
    node_ready(api).status == "True"
}

/// Sets the pod's status as a controller would that takes the node for lost.
fn fail(api: &FakeApi, name: &str) {
    let failed = json!({ "status": { "phase": "Failed", "reason": "NodeLost", "message": "by another" } });
    api.change::<Pod>(NS, name, Some("status"), &Patch::Merge(failed));
}

#[test]
fn an_end_that_others_write_is_undone_while_the_pod_runs_and_final_after_a_restart() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(91);
        api.put(&serving("web", &json!({})));
        let settings = member().await;
        let node = FakeNode::start(sandbox, &world, &settings);
        until("web to be Ready", || is_ready(&status(&api, "web"))).await;
        let before = world.runtime.containers();
        fail(&api, "web");
        until("the end to be taken back", || phase(&api, "web") == "Running").await;
        assert_eq!(status(&api, "web").reason, None);
        sandbox.pass(Duration::from_secs(120)).await;
        assert!(is_ready(&status(&api, "web")));
        assert_eq!(world.runtime.containers(), before, "nothing was killed");

        // Written while no kubelet runs: the checkpoint says Running.
        node.stop().await;
        fail(&api, "web");
        let node = FakeNode::start(sandbox, &world, &settings);
        until("the container to end", || {
            world.runtime.containers().iter().all(|container| container.finished_at > 0)
        })
        .await;
        sandbox.pass(Duration::from_secs(120)).await;
        let told = status(&api, "web");
        assert_eq!((told.phase.as_deref(), told.reason.as_deref()), (Some("Failed"), Some("NodeLost")));
        assert_eq!(told.message.as_deref(), Some("by another"));
        assert!(!is_ready(&told));
        assert_eq!(world.runtime.counts().get(&Rpc::CreateContainer), Some(&1), "and never runs again");
        node.stop().await;
    });
}

#[test]
fn an_end_that_others_write_ends_no_pod_whose_worker_restarts() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(97);
        api.put(&serving("web", &json!({})));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("web to be Ready", || is_ready(&status(&api, "web"))).await;
        let before = world.runtime.containers();
        // The status cannot be corrected for a while.
        api.fault(On::call(Verb::Patch, "pods/status"), usize::MAX, ApiFault::Unreachable);
        fail(&api, "web");
        let label = Patch::Merge(json!({ "metadata": { "labels": { "new": "label" } } }));
        api.change::<Pod>(NS, "web", None, &label);
        sandbox.pass(Duration::from_secs(10)).await;
        let workers: Vec<_> =
            node.tree.snapshot().await.actors.into_iter().filter(|one| one.kind == "PodWorker").collect();
        assert_eq!((workers.len(), phase(&api, "web").as_str()), (1, "Failed"));
        node.tree
            .inject(&workers[0].name, messages::supervision::Fault::PanicNow)
            .expect("it is in the tree");
        sandbox.pass(Duration::from_secs(60)).await;
        api.clear_faults();
        until("the end to be taken back", || phase(&api, "web") == "Running").await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(is_ready(&status(&api, "web")));
        assert_eq!(world.runtime.containers(), before, "nothing was killed");
        node.stop().await;
    });
}

#[test]
fn logs_of_a_pod_past_its_deadline_stay_until_it_is_deleted() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(92);
        api.put(&serving("late", &json!({ "activeDeadlineSeconds": 5 })));
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the pod to fail", || phase(&api, "late") == "Failed").await;
        assert_eq!(status(&api, "late").reason.as_deref(), Some("DeadlineExceeded"));
        sandbox.pass(Duration::from_secs(600)).await;
        assert_eq!(world.runtime.containers().len(), 1, "its log goes with it");
        api.delete::<Pod>(NS, "late", None);
        until("nothing of it to be left", || {
            api.get::<Pod>(NS, "late").is_none() && world.runtime.containers().is_empty()
        })
        .await;
        node.stop().await;
    });
}

#[test]
fn a_runtime_whose_lists_hang_makes_the_node_not_ready_after_three_minutes() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(93);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the node to be Ready", || is_node_ready(&api)).await;
        sandbox.pass(Duration::from_secs(15)).await;
        world.runtime.fault(Rpc::ListPodSandbox, 10_000, Fault::Hang);
        sandbox.pass(Duration::from_secs(170)).await;
        assert!(is_node_ready(&api), "{:?}", node_ready(&api));
        sandbox.pass(Duration::from_secs(35)).await;
        let ready = node_ready(&api);
        let message = ready.message.unwrap_or_default();
        assert_eq!((&*ready.status, ready.reason.as_deref()), ("False", Some("KubeletNotReady")));
        assert!(message.starts_with("PLEG is not healthy: pleg was last seen active 3m"), "{message}");
        assert!(message.ends_with(" ago; threshold is 3m0s"), "{message}");
        world.runtime.clear_faults();
        until("the node to be Ready again", || is_node_ready(&api)).await;
        node.stop().await;
    });
}

#[test]
fn a_pod_whose_status_cannot_be_had_says_so_and_leaves_the_node_ready() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(94);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the node to be Ready", || is_node_ready(&api)).await;
        world.runtime.fault(Rpc::ContainerStatus, 10_000, Fault::Hang);
        api.put(&serving("hung", &json!({})));
        for _ in 0..60 {
            sandbox.pass(Duration::from_secs(10)).await;
            assert!(is_node_ready(&api), "{:?}", node_ready(&api));
        }
        let events = node.events().await;
        let said = events.iter().filter(|event| &*event.reason == "FailedSync").collect::<Vec<_>>();
        let [event] = said[..] else { panic!("one event, counted: {events:?}") };
        assert!(
            event.message.starts_with("error determining status: rpc error: code = DeadlineExceeded desc = "),
            "{event:?}"
        );
        world.runtime.clear_faults();
        until("the pod to be Ready after all", || is_ready(&status(&api, "hung"))).await;
        node.stop().await;
    });
}

fn found(addresses: &[&str]) -> FoundAddresses {
    let parsed = addresses.iter().map(|ip| ip.parse().expect("an address"));
    FoundAddresses { default_routes: parsed.collect(), ..FoundAddresses::default() }
}

#[test]
fn pods_are_told_of_the_nodes_addresses_as_they_are() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(95);
        world.addresses.set(found(&["192.0.2.20"]));
        // Only a container with the second address in its command ends.
        world.runtime.behave(
            Match::Command("192.0.2.30".to_owned()),
            vec![Behaviour::exits(Duration::from_secs(1), 0)],
        );
        let told = json!([{
            "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve", "$(IP)"],
            "env": [{ "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.hostIP" } } }]
        }]);
        let telling = || json!({ "containers": told, "restartPolicy": "Never" });
        api.put(&serving("own", &telling()));
        api.put(&serving("host", &json!({ "hostNetwork": true })));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let host_ip = |name: &str| status(&api, name).host_ip.unwrap_or_default();
        until("both to be Ready", || ["own", "host"].iter().all(|name| is_ready(&status(&api, name)))).await;
        assert_eq!(
            (&*host_ip("own"), &*host_ip("host")),
            ("192.0.2.20", "192.0.2.20"),
            "not as at the start"
        );
        assert_eq!(status(&api, "host").pod_ip.as_deref(), Some("192.0.2.20"));
        world.addresses.set(found(&["192.0.2.30"]));
        until("their statuses to follow", || {
            host_ip("own") == "192.0.2.30" && host_ip("host") == "192.0.2.30"
        })
        .await;
        assert_eq!(status(&api, "host").pod_ip.as_deref(), Some("192.0.2.20"), "it stays once set");
        for actor in ["StatusManager", "PodWorkerPool"] {
            node.tree.kill(actor).expect("it is in the tree");
        }
        sandbox.pass(Duration::from_secs(5)).await;
        assert_eq!(host_ip("own"), "192.0.2.30");
        api.put(&serving("new", &telling()));
        until("a new pod to be told so too", || phase(&api, "new") == "Succeeded").await;
        assert_eq!((&*host_ip("new"), &*phase(&api, "own")), ("192.0.2.30", "Running"));
        node.stop().await;
    });
}

#[test]
fn a_pod_that_cannot_be_read_after_a_start_closes_no_other_and_keeps_what_is_its_own() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(96);
        for name in ["one", "two"] {
            api.put(&serving(name, &json!({})));
        }
        let settings = member().await;
        let node = FakeNode::start(sandbox, &world, &settings);
        until("both to be Ready", || ["one", "two"].iter().all(|name| is_ready(&status(&api, name)))).await;
        node.stop().await;
        world.cgroups.add_pod(QosClass::BestEffort, "lost").expect("a name");
        // Every look at one of the pods hangs; the other pod is looked at once.
        world.runtime.fault(Rpc::ContainerStatus, 1, Fault::Hang);
        world.runtime.fault(Rpc::ContainerStatus, 1, Fault::Latency(Duration::ZERO));
        world.runtime.fault(Rpc::ContainerStatus, 10_000, Fault::Hang);
        let node = FakeNode::start(sandbox, &world, &settings);
        let soon = Duration::from_secs(1);
        let known = async || {
            let known = node.node.runtime_pods.ask(GetRuntimePods, soon).await;
            known
                .expect("Pleg answers")
                .map(|pods| pods.keys().cloned().collect::<Vec<_>>())
                .unwrap_or_default()
        };
        sandbox.pass(Duration::from_secs(200)).await;
        let read = known().await;
        assert_eq!(read.len(), 1, "one hangs: {read:?}");
        let held = node.node.held_pods.ask(GetHeldPods, soon).await.expect("Pleg answers");
        assert_eq!(held.len(), 2, "and is not gone: {held:?}");
        for uid in held.keys() {
            let one = node.node.runtime_pod.ask(GetRuntimePod { uid: uid.clone() }, soon).await;
            let running = one.expect("Pleg answers").is_some_and(|pod| pod.live().count() == 1);
            assert_eq!(running, read.contains(uid));
        }
        let cgroups = world.cgroups.list_pod_cgroups().await.expect("they are listed");
        assert_eq!(cgroups.len(), 2, "that of no pod is gone: {cgroups:?}");
        world.runtime.clear_faults();
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(known().await.len(), 2);
        node.stop().await;
    });
}
