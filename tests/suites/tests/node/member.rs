//! A node that registers itself: pods come after the Node, and admission uses the newest Node.

use std::time::Duration;

use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Verb};
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus};
use kubelet::wiring::NOT_READY_WITHIN;
use messages::supervision::Fault;
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, NODE, World, is_ready, member};
use testkit::sandbox;

use crate::cluster::until;
use crate::life::world;
use crate::pods::web;

const NS: Option<&str> = Some("default");

fn cluster(seed: u64) -> (World, FakeApi) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("it has one");
    (world, api)
}

/// A pod that requires a label of the node.
fn asking(name: &str, label: (&str, &str)) -> Pod {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": NODE,
            "nodeSelector": { (label.0): label.1 },
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"]
            }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn node_uid(api: &FakeApi) -> Option<String> {
    api.get::<Node>(None, NODE)?.metadata.uid
}

fn label(api: &FakeApi, key: &str, value: Option<&str>) {
    let patch = Patch::Merge(json!({ "metadata": { "labels": { (key): value } } }));
    api.change::<Node>(None, NODE, None, &patch);
}

#[test]
fn pods_are_asked_for_once_the_node_is_known_and_judged_by_its_labels() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(81);
        let there = json!({ "metadata": { "name": NODE, "labels": { "zone": "a" } } });
        api.put::<Node>(&serde_json::from_value(there).expect("a Node"));
        api.put(&asking("near", ("zone", "a")));
        api.put(&asking("far", ("zone", "b")));
        world.manifest("own.yaml", &web("own"));
        api.set_down(true);
        let node = FakeNode::start(sandbox, &world, &member().await);
        node.until("the static pod, without a cluster", |pods| {
            pods.get("own").is_some_and(|pod| is_ready(pod))
        })
        .await;
        api.forget_log();
        api.set_down(false);
        until("the pod that fits", || is_ready(&status(&api, "near"))).await;
        until("the other one to be refused", || status(&api, "far").phase.as_deref() == Some("Failed")).await;
        assert_eq!(status(&api, "far").reason.as_deref(), Some("NodeAffinity"));
        assert_eq!(api.count(Verb::List, "pods"), 1);
        node.stop().await;
    });
}

#[test]
fn no_pod_is_asked_for_while_nobody_knows_of_the_node() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(82);
        api.set_down(true);
        let node = FakeNode::start(sandbox, &world, &member().await);
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(api.count(Verb::List, "pods"), 0);
        api.set_down(false);
        until("the pods to be asked for", || api.count(Verb::List, "pods") > 0).await;
        assert!(node_uid(&api).is_some() || api.count(Verb::List, "nodes") > 0);
        node.stop().await;
    });
}

#[test]
fn labels_count_as_they_are_now_whoever_has_crashed() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(83);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("the Node", || node_uid(&api).is_some()).await;
        label(&api, "disk", Some("ssd"));
        sandbox.pass(Duration::from_secs(1)).await;
        api.put(&asking("one", ("disk", "ssd")));
        until("a pod by a new label", || is_ready(&status(&api, "one"))).await;
        for (name, killed) in [
            ("two", &["PodSources"][..]),
            ("three", &["PodManager"]),
            ("four", &["PodManager", "NodeStatus"]),
        ] {
            api.put(&asking(name, ("disk", "ssd")));
            for actor in killed {
                node.tree.kill(actor).expect("it is in the tree");
            }
            until("a pod after a crash", || is_ready(&status(&api, name))).await;
        }
        label(&api, "disk", None);
        sandbox.pass(Duration::from_secs(1)).await;
        api.put(&asking("late", ("disk", "ssd")));
        until("a pod to be refused", || status(&api, "late").phase.as_deref() == Some("Failed")).await;
        assert!(is_ready(&status(&api, "one")), "who runs is not judged again");
        node.stop().await;
    });
}

#[test]
fn mirrors_made_after_the_node_was_made_anew_belong_to_the_new_one() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = cluster(84);
        world.manifest("web.yaml", &web("web"));
        let node = FakeNode::start(sandbox, &world, &member().await);
        let name = "web-node";
        until("a mirror", || is_ready(&status(&api, name))).await;
        let owner = || {
            let pod = api.get::<Pod>(NS, name)?;
            Some(pod.metadata.owner_references?.first()?.uid.clone())
        };
        let first = node_uid(&api);
        assert_eq!(owner(), first);
        // The cluster's garbage collector does the same.
        assert!(api.delete::<Node>(None, NODE, None));
        api.delete::<Pod>(NS, name, Some(0));
        until("another Node and its mirror", || node_uid(&api) != first && owner().is_some()).await;
        assert_eq!(owner(), node_uid(&api));
        until("the mirror's status", || is_ready(&status(&api, name))).await;
        assert_eq!(world.runtime.sandboxes().len(), 1, "the pod itself has not noticed");
        node.stop().await;
    });
}

fn condition(api: &FakeApi, kind: &str) -> Option<(String, String, String)> {
    let conditions = api.get::<Node>(None, NODE)?.status?.conditions?;
    let found = conditions.into_iter().find(|condition| condition.type_ == kind)?;
    Some((found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default()))
}

pub fn holds(api: &FakeApi, kind: &str, status: &str) -> bool {
    condition(api, kind).is_some_and(|(now, ..)| now == status)
}

/// Crashes an actor until supervision gives it up.
pub fn crash_for_good(node: &FakeNode, actor: &str) {
    let times = Policy::default().restart.restarts_max + 2;
    node.tree.inject(actor, Fault::PanicWhileStarting { times }).expect("it is in the tree");
    node.tree.inject(actor, Fault::PanicNow).expect("it is in the tree");
}

#[test]
fn a_subsystem_that_sleeps_degrades_the_node_until_it_wakes() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(85);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("a ready node", || holds(&api, "Ready", "True")).await;
        assert_eq!(condition(&api, "KubeletDegraded"), None, "a stock node looks like any other");
        crash_for_good(&node, "ImageManager");
        until("the condition", || holds(&api, "KubeletDegraded", "True")).await;
        let (_, reason, message) = condition(&api, "KubeletDegraded").expect("it is there");
        assert_eq!(reason, "SubsystemDormant");
        assert_eq!(message, "ImageManager: more crashes than its limit; it is tried again every 300 s");
        assert!(holds(&api, "Ready", "True"), "what can be done without it is done");
        let told = || {
            let events: Vec<Event> = api.list();
            events.iter().any(|event| event.reason.as_deref() == Some("SubsystemDormant"))
        };
        until("the event", told).await;
        sandbox.pass(Duration::from_secs(310)).await;
        until("the condition's end", || holds(&api, "KubeletDegraded", "False")).await;
        let (_, reason, _) = condition(&api, "KubeletDegraded").expect("it stays");
        assert_eq!(reason, "SubsystemsRunning");
        node.stop().await;
    });
}

#[test]
fn a_node_whose_vital_subsystem_has_failed_is_written_not_ready_whoever_it_was() {
    for actor in ["Pleg", "NodeStatus"] {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (world, api) = cluster(86);
            let node = FakeNode::start(sandbox, &world, &member().await);
            until("a ready node", || holds(&api, "Ready", "True")).await;
            crash_for_good(&node, actor);
            let failure = node.tree.failed().await;
            assert_eq!(failure.actor, actor);
            let begun = tokio::time::Instant::now();
            node.node.last_words.as_ref().expect("a member has them").not_ready(&failure).await;
            assert!(begun.elapsed() <= NOT_READY_WITHIN);
            let (status, reason, message) = condition(&api, "Ready").expect("it is there");
            assert_eq!((status.as_str(), reason.as_str()), ("False", "KubeletNotReady"));
            assert!(message.starts_with(&format!("subsystem {actor} has failed: ")), "{message}");
            assert!(holds(&api, "MemoryPressure", "False"), "other conditions stay");
            node.stop().await;
        });
    }
}

#[test]
fn last_words_do_not_wait_for_a_node_status_that_stands_still() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(88);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("a ready node", || holds(&api, "Ready", "True")).await;
        crash_for_good(&node, "Pleg");
        let failure = node.tree.failed().await;
        node.tree.inject("NodeStatus", Fault::Stall).expect("it is in the tree");
        let begun = tokio::time::Instant::now();
        node.node.last_words.as_ref().expect("a member has them").not_ready(&failure).await;
        assert!(begun.elapsed() <= NOT_READY_WITHIN, "{:?}", begun.elapsed());
        assert!(
            condition(&api, "Ready").is_some_and(|(_, _, message)| message.starts_with("subsystem Pleg"))
        );
        node.stop().await;
    });
}

#[test]
fn last_words_that_nobody_hears_hold_nothing_up() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = cluster(87);
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("a ready node", || holds(&api, "Ready", "True")).await;
        api.set_down(true);
        crash_for_good(&node, "NodeStatus");
        let failure = node.tree.failed().await;
        let begun = tokio::time::Instant::now();
        node.node.last_words.as_ref().expect("a member has them").not_ready(&failure).await;
        assert!(begun.elapsed() <= NOT_READY_WITHIN, "{:?}", begun.elapsed());
        node.stop().await;
    });
}
