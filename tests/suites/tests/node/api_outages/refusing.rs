//! The server answers with errors, late, or with 410.

use std::time::Duration;

use bridge_kube::fake::{Fault, On, Verb};
use k8s_openapi::api::core::v1::Pod;
use supervision::Policy;
use testkit::sandbox;

use super::scene::{BACK_WITHIN, MINUTE, NS, Scene, pod, until};

/// Requests while everything is refused: the heartbeat's two tries every ten seconds, `/readyz`, and of every other
/// kind a few.
const REFUSED: &[(Verb, &str, f64)] = &[
    (Verb::Get, "/readyz", 121.0),
    (Verb::Get, "leases", 13.0),
    (Verb::Get, "nodes", 13.0),
    (Verb::Patch, "nodes/status", 13.0),
];

async fn refused_for_ten_minutes(sandbox: &testkit::Sandbox, seed: u64, fault: Fault, back: Duration) {
    let told = matches!(fault, Fault::Refused { retry_after_s: Some(_), .. });
    let scene = Scene::settled(sandbox, seed).await;
    scene.api.fault_always(Some(fault.clone()));
    // A list and a watch have to be started anew, too.
    scene.api.cut_watches();
    scene.api.put(&pod("new"));
    sandbox.pass(10 * MINUTE).await;
    scene.assert_nothing_new();
    scene.assert_calm(&format!("10 minutes of {fault:?}"), REFUSED, 6.0);
    if told {
        let asked = scene.api.attempts()[&(Verb::Get, "/readyz".to_owned())];
        assert!(asked <= 88, "whoever was told to come again in seven seconds does that: {asked}");
    }
    assert!(scene.observed("PodSources").await.contains("scripted refusal"), "it is told");
    scene.api.fault_always(None);
    scene.assert_serves("new", back).await;
    sandbox.pass(Duration::from_secs(15)).await;
    assert!(scene.is_node_ready() && scene.is_told_ready("web"));
    scene.assert_unharmed();
    scene.end().await;
}

#[test]
fn a_server_in_trouble_is_neither_hammered_nor_forgotten() {
    for (n, code) in [500, 503, 504].into_iter().enumerate() {
        sandbox(Policy::default(), async |sandbox| {
            refused_for_ten_minutes(sandbox, 111 + n as u64, Fault::code(code), BACK_WITHIN).await;
        });
    }
}

#[test]
fn a_server_that_says_when_to_come_again_is_obeyed() {
    sandbox(Policy::default(), async |sandbox| {
        refused_for_ten_minutes(sandbox, 114, Fault::code(429), BACK_WITHIN).await;
    });
    sandbox(Policy::default(), async |sandbox| {
        // A client that is told to come again in seven seconds does so after seven seconds.
        refused_for_ten_minutes(sandbox, 115, Fault::too_many(7), Duration::from_secs(8)).await;
    });
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 116).await;
        let calls = |verb, target: &str| {
            let log = scene.api.log();
            let of = log.iter().filter(|call| call.verb == verb && call.target == target);
            of.map(|call| call.at).collect::<Vec<_>>()
        };
        scene.api.fault(On::call(Verb::Patch, "pods/status"), 3, Fault::too_many(7));
        scene.api.put(&pod("new"));
        scene.until_ready("new").await;
        let at = calls(Verb::Patch, "pods/status");
        let apart = at[1].duration_since(at[0]);
        assert!(apart >= jiff::SignedDuration::from_secs(7), "{apart:?}");
        scene.end().await;
    });
}

#[test]
fn one_kind_of_call_that_always_fails_stays_its_own_affair() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 117).await;
        // The rest of the server works, which must not lead to more tries.
        scene.api.fault(On::call(Verb::Watch, "pods"), usize::MAX, Fault::code(500));
        scene.api.fault(On::call(Verb::Patch, "pods/status"), usize::MAX, Fault::Unreachable);
        scene.api.cut_watches();
        scene.api.put(&pod("new"));
        sandbox.pass(10 * MINUTE).await;
        scene.assert_calm("pods cannot be watched nor told of", &[], 10.0);
        assert!(scene.is_node_ready());
        scene.assert_unharmed();
        scene.api.clear_faults();
        scene.until_ready("new").await;
        scene.end().await;
    });
}

#[test]
fn a_slow_server_slows_nothing_but_itself() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 118).await;
        scene.api.fault_always(Some(Fault::Latency(Duration::from_secs(4))));
        scene.assert_serves("new", Duration::from_secs(40)).await;
        sandbox.pass(5 * MINUTE).await;
        assert!(scene.is_node_ready());
        scene.assert_calm("a slow server", &[], 8.0);
        // Slower than all deadlines: as if the server were down.
        scene.api.fault_always(Some(Fault::Latency(Duration::from_secs(100))));
        scene.api.cut_watches();
        sandbox.pass(5 * MINUTE).await;
        scene.assert_calm("a server that is far too slow", &[(Verb::Get, "/readyz", 41.0)], 10.0);
        scene.api.fault_always(None);
        // What was asked before goes on waiting: 3 s at most, and then up to 1 s until it is asked again.
        sandbox.pass(Duration::from_secs(4)).await;
        scene.assert_serves("newer", BACK_WITHIN).await;
        scene.assert_unharmed();
        scene.end().await;
    });
}

#[test]
fn a_server_that_forgets_versions_is_listed_anew_without_a_storm() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 119).await;
        // Compacted while a watch was broken: one list, and nothing is lost.
        scene.api.cut_watches();
        scene.api.delete::<Pod>(NS, "other", Some(0));
        scene.api.put(&pod("new"));
        scene.api.compact();
        scene.assert_serves("new", Duration::from_secs(5)).await;
        until("the other one to be gone", || {
            let names = scene.world.runtime.sandboxes();
            !names.iter().any(|sandbox| sandbox.metadata.as_ref().is_some_and(|meta| meta.name == "other"))
        })
        .await;
        assert!(scene.api.attempts()[&(Verb::List, "pods".to_owned())] <= 2);
        // The server ends every watch with 410 at once.
        scene.api.fault(On { verb: Some(Verb::Watch), ..On::all() }, usize::MAX, Fault::code(410));
        scene.api.cut_watches();
        sandbox.pass(10 * MINUTE).await;
        scene.assert_calm("10 minutes in which every watch ends with 410", &[], 10.0);
        scene.api.clear_faults();
        scene.assert_serves("newer", MINUTE).await;
        // The server ends open watches with 410 all the time.
        for _ in 0..120 {
            scene.api.expire_watches();
            sandbox.pass(Duration::from_secs(1)).await;
        }
        scene.assert_calm("2 minutes with a 410 every second", &[], 12.0);
        scene.assert_serves("newest", MINUTE).await;
        scene.end().await;
    });
}
