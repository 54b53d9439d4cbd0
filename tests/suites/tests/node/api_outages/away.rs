//! The server is down, or accepts calls and does not answer.

use std::time::Duration;

use bridge_io::clock::Clock;
use bridge_kube::fake::Verb;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Node, Pod};
use supervision::Policy;
use testkit::node::{FakeNode, NODE, is_ready};
use testkit::sandbox;

use super::scene::{BACK_WITHIN, MINUTE, NS, Scene, clustered, member, pod, until};

/// Requests while no answer comes: `/readyz` about once a second; the heartbeat's two tries every ten seconds; and of
/// every other kind a few.
const SILENT: &[(Verb, &str, f64)] = &[
    (Verb::Get, "/readyz", 121.0),
    (Verb::Get, "leases", 13.0),
    (Verb::Get, "nodes", 13.0),
    (Verb::Patch, "nodes/status", 13.0),
];

#[test]
fn ten_minutes_without_a_server_change_nothing_and_end_at_once() {
    sandbox(Policy::default(), async |sandbox| {
        let mut scene = Scene::settled(sandbox, 101).await;
        scene.api.set_down(true);
        sandbox.pass(10 * MINUTE).await;
        scene.assert_nothing_new();
        scene.assert_calm("10 minutes without a server", SILENT, 4.0);
        assert!(scene.observed("PodSources").await.contains("Connection refused"), "it is told");
        assert!(scene.observed("Lease").await.contains("Connection refused"), "it is told");
        // The changes that the kubelet has missed.
        scene.api.delete::<Pod>(NS, "other", None);
        scene.api.put(&pod("new"));
        scene.api.set_down(false);
        scene.mark();
        scene.assert_serves("new", BACK_WITHIN).await;
        until("the other one to be gone", || scene.api.get::<Pod>(NS, "other").is_none()).await;
        sandbox.pass(Duration::from_secs(15)).await;
        assert!(scene.is_node_ready());
        let age = scene.world.clock.now().duration_since(scene.renewed().expect("a lease"));
        assert!(age < SignedDuration::from_secs(11), "{age:?}");
        sandbox.pass(MINUTE).await;
        scene.assert_calm("the time after it", &[], 10.0);
        assert!(scene.is_told_ready("web") && scene.is_told_ready("fixed-node"));
        assert!(!scene.observed("PodSources").await.contains("refused"), "it is over");
        scene.end().await;
    });
}

#[test]
fn after_45_seconds_without_a_server_a_new_pod_is_ready_within_two() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 102).await;
        scene.api.set_down(true);
        sandbox.pass(Duration::from_secs(45)).await;
        scene.api.set_down(false);
        scene.assert_serves("new", BACK_WITHIN).await;
        scene.assert_unharmed();
        scene.end().await;
    });
}

#[test]
fn a_server_that_restarts_again_and_again_is_followed() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 103).await;
        for n in 0..20 {
            scene.api.set_down(true);
            sandbox.pass(Duration::from_secs(3)).await;
            scene.api.set_down(false);
            scene.assert_serves(&format!("new{n}"), BACK_WITHIN).await;
            sandbox.pass(Duration::from_secs(27)).await;
        }
        scene.assert_unharmed();
        // Two restarts a minute: a list and a watch each for every kind that is followed, beside the requests for pods.
        scene.assert_calm("a restart every 30 s", &[(Verb::Get, "/readyz", 30.0)], 16.0);
        scene.end().await;
    });
}

#[test]
fn a_server_that_takes_calls_and_never_answers_is_waited_for() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 104).await;
        scene.api.set_paused(true);
        sandbox.pass(10 * MINUTE).await;
        scene.assert_nothing_new();
        scene.assert_calm("10 minutes half open", &[(Verb::Get, "/readyz", 41.0)], 8.0);
        assert!(scene.observed("Lease").await.contains("no answer within 10 s"), "it is told");
        scene.api.set_paused(false);
        scene.assert_serves("new", BACK_WITHIN).await;
        sandbox.pass(Duration::from_secs(15)).await;
        assert!(scene.is_node_ready() && scene.is_told_ready("web"));
        scene.assert_unharmed();
        scene.end().await;
    });
}

#[test]
fn watches_that_are_dead_without_a_word_are_given_up() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 105).await;
        scene.api.mute_watches();
        scene.api.put(&pod("new"));
        let heard = || scene.api.get::<Pod>(NS, "new").and_then(|pod| pod.status);
        // Real connections are checked by pings; without those, the kubelet notices only when the watch ends.
        let end = tokio::time::Instant::now() + 12 * MINUTE;
        while !heard().is_some_and(|status| is_ready(&status)) {
            assert!(tokio::time::Instant::now() < end, "the dead watches are still believed");
            sandbox.pass(Duration::from_secs(1)).await;
        }
        scene.assert_unharmed();
        scene.assert_calm("dead watches", &[], 10.0);
        scene.end().await;
    });
}

#[test]
fn static_pods_start_without_a_server_and_the_node_joins_when_there_is_one() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(106);
        api.put(&pod("web"));
        api.set_down(true);
        let node = FakeNode::start(sandbox, &world, &member().await);
        let begun = tokio::time::Instant::now();
        node.until("the static pod to be Ready", |pods| pods.values().any(|status| is_ready(status))).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        sandbox.pass(10 * MINUTE).await;
        let attempts = api.attempts();
        for (call, bound) in
            [((Verb::Create, "nodes"), 100), ((Verb::Get, "/readyz"), 1210), ((Verb::List, "nodes"), 30)]
        {
            let count = attempts.get(&(call.0, call.1.to_owned())).copied().unwrap_or(0);
            println!("{call:?}: {count} in 10 minutes without a server from the start");
            assert!(count > 0 && count <= bound, "{call:?}: {count}");
        }
        assert!(!attempts.contains_key(&(Verb::List, "pods".to_owned())), "the Node comes first");
        api.set_down(false);
        let told = |name: &str| {
            let status = api.get::<Pod>(NS, name).and_then(|pod| pod.status);
            status.is_some_and(|status| is_ready(&status))
        };
        until("the Node to be there", || api.get::<Node>(None, NODE).is_some()).await;
        until("the pods to be told", || told("web") && told("fixed-node")).await;
        assert_eq!(api.list::<Node>().len(), 1);
        node.stop().await;
    });
}
