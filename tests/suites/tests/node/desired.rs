//! Pods travel one by one from their source to the subsystems that work for them: a lost update is found, a late one
//! brings nothing back, and an update without news reaches no follower.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_kube::Patch;
use k8s_openapi::api::core::v1::Pod;
use messages::supervision::Fault;
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::{Sandbox, sandbox};

use crate::cluster::{clustered, is_told_ready, pod, until, within};

const NS: Option<&str> = Some("default");

/// The followers of the desired pods, and PodManager, which follows the API server's.
const FOLLOWERS: [(&str, &str); 9] = [
    ("PodManager", "ApiPodsChanged"),
    ("PodWorkerPool", "DesiredPodsChanged"),
    ("StatusManager", "DesiredPodsChanged"),
    ("ProbeManager", "DesiredPodsChanged"),
    ("VolumeManager", "DesiredPodsChanged"),
    ("ResourceManager", "DesiredPodsChanged"),
    ("GarbageCollector", "DesiredPodsChanged"),
    ("EvictionManager", "DesiredPodsChanged"),
    ("ObjectCache", "DesiredPodsChanged"),
];

pub fn inject(node: &FakeNode, actor: &str, fault: Fault) {
    node.tree.inject(actor, fault).expect("every subsystem is in the tree");
}

/// Drops, delays or doubles the next messages about pods of every follower.
fn trouble_all(node: &FakeNode, fault: impl Fn(String) -> Fault) {
    for (actor, message) in FOLLOWERS {
        inject(node, actor, fault(message.to_owned()));
    }
}

async fn started(
    sandbox: &Sandbox,
    seed: u64,
) -> (FakeNode, testkit::node::World, bridge_kube::fake::FakeApi) {
    let (world, api) = clustered(seed);
    api.put(&pod("first", "serve"));
    let node = FakeNode::start(sandbox, &world, &settings());
    until("the first pod to be Ready", || is_told_ready(&api, "first")).await;
    // The digests that follow the changes are over.
    sandbox.pass(Duration::from_secs(5)).await;
    (node, world, api)
}

#[test]
fn lost_news_of_pods_are_found_by_the_digest() {
    for (actor, message) in FOLLOWERS {
        sandbox(Policy::default(), async |sandbox| {
            let (node, _, api) = started(sandbox, 410).await;
            let lose = || Fault::Drop { message: message.to_owned(), count: 1 };
            inject(&node, actor, lose());
            api.put(&pod("second", "serve"));
            within(10, &format!("the pod of which {actor} was not told"), || is_told_ready(&api, "second"))
                .await;
            sandbox.pass(Duration::from_secs(5)).await;
            inject(&node, actor, lose());
            api.delete::<Pod>(NS, "second", None);
            let gone = || api.get::<Pod>(NS, "second").is_none();
            within(20, &format!("the end of which {actor} was not told"), gone).await;
            // The pod's news and the digest that follows: the next one comes in a minute.
            inject(&node, actor, Fault::Drop { message: message.to_owned(), count: 2 });
            api.put(&pod("third", "serve"));
            within(100, &format!("the pod that {actor} hears of late"), || is_told_ready(&api, "third"))
                .await;
            node.stop().await;
        });
    }
}

#[test]
fn news_that_come_late_twice_or_not_at_all_delay_and_corrupt_nothing() {
    sandbox(Policy::default(), async |sandbox| {
        let (node, world, api) = started(sandbox, 411).await;
        // That there is such a pod is heard after it has gone.
        trouble_all(&node, |message| Fault::Delay { message, count: 1, ms: 60_000 });
        api.put(&pod("short", "serve"));
        within(10, "the pod", || is_told_ready(&api, "short")).await;
        trouble_all(&node, |message| Fault::Duplicate { message, count: 4 });
        api.delete::<Pod>(NS, "short", Some(0));
        within(20, "its end", || world.runtime.sandboxes().len() == 1).await;
        sandbox.pass(Duration::from_secs(5)).await;
        let starts = world.runtime.counts()[&Rpc::RunPodSandbox];
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(world.runtime.counts()[&Rpc::RunPodSandbox], starts, "what was late brings nothing back");
        assert!(is_told_ready(&api, "first") && world.runtime.sandboxes().len() == 1);
        trouble_all(&node, |message| Fault::Drop { message, count: 3 });
        api.put(&pod("last", "serve"));
        within(200, "a pod that nobody was told of three times", || is_told_ready(&api, "last")).await;
        api.delete::<Pod>(NS, "first", None);
        api.delete::<Pod>(NS, "last", None);
        node.until_empty().await;
        node.stop().await;
    });
}

/// Messages, timers and effects that each follower has handled, but for those that look at statuses.
async fn handled(node: &FakeNode) -> BTreeMap<String, u64> {
    let quiet = [
        "VolumeManager",
        "ResourceManager",
        "GarbageCollector",
        "ObjectCache",
        "PodWorkerPool",
        "ProbeManager",
    ];
    let all = node.tree.snapshot().await.actors.into_iter();
    all.filter(|actor| quiet.contains(&&*actor.name))
        .map(|actor| (actor.name, actor.counters.handled))
        .collect()
}

#[test]
fn a_change_of_a_status_alone_reaches_only_who_tells_statuses() {
    sandbox(Policy::default(), async |sandbox| {
        let (node, _, api) = started(sandbox, 412).await;
        sandbox.pass(Duration::from_millis(300)).await;
        let before = handled(&node).await;
        assert_eq!(before.len(), 6, "{before:?}");
        let gate = json!({ "type": "example.com/gate", "status": "True" });
        let wrong = json!({ "status": { "conditions": [gate], "hostIP": "192.0.2.99" } });
        api.change::<Pod>(NS, "first", Some("status"), &Patch::Strategic(wrong));
        let mended = || {
            let status = api.get::<Pod>(NS, "first").and_then(|pod| pod.status).unwrap_or_default();
            status.host_ip.as_deref() != Some("192.0.2.99")
        };
        // What others have written is put right, and the echo of that comes back.
        until("it to be mended", mended).await;
        sandbox.pass(Duration::from_millis(300)).await;
        assert_eq!(handled(&node).await, before);
        let labels = json!({ "metadata": { "labels": { "app": "other" } } });
        api.change::<Pod>(NS, "first", None, &Patch::Merge(labels));
        sandbox.pass(Duration::from_millis(300)).await;
        let after = handled(&node).await;
        assert!(after.iter().all(|(actor, count)| *count > before[actor]), "news: {before:?} {after:?}");
        node.stop().await;
    });
}
