//! G11, G12, G14: a failure about one pod stays with that pod, whichever actor meets it and wherever; statements of
//! supervision hold for later incarnations; and an object that cannot be read is left out alone.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use messages::PodUid;
use messages::supervision::Fault;
use serde_json::json;
use supervision::{EventKind, Policy, State};
use testkit::node::{FakeNode, IMAGE, NODE, World, is_ready, member, settings};
use testkit::sandbox;

use crate::cluster::{clustered, pod, until};
use crate::life::world;

const NS: Option<&str> = Some("default");

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

/// The message of the pod's condition Quarantined, which names subsystems; empty without the condition.
pub fn quarantined(status: &PodStatus) -> String {
    let all = status.conditions.iter().flatten();
    let held = all.filter(|one| one.type_ == "understudy.dev/Quarantined" && one.status == "True");
    held.filter_map(|one| one.message.clone()).collect()
}

fn uid(api: &FakeApi, name: &str) -> PodUid {
    let pod = api.get::<Pod>(NS, name).expect("the pod is there");
    PodUid::new(&pod.metadata.uid.expect("the server gives a UID"))
}

/// A pod that gives every actor something to do.
fn busy(name: &str) -> Pod {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"],
                "resources": { "requests": { "cpu": "10m" }, "limits": { "ephemeral-storage": "1Gi" } },
                "env": [{ "name": "A", "valueFrom": { "configMapKeyRef": {
                    "name": "none", "key": "a", "optional": true
                } } }],
                "readinessProbe": { "exec": { "command": ["ready"] }, "periodSeconds": 1 },
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }]
            }],
            "volumes": [{ "name": "data", "configMap": { "name": "none", "optional": true } }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

/// One actor panics at every step on behalf of one pod, four times, from the restart of an actor on: its own, or that of
/// one that then asks it for everything or tells it everything. Says how often it did, and at what.
fn poison(actor: &str, restarts: &str) -> Vec<String> {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api): (World, FakeApi) = clustered(11);
        let node = FakeNode::start(sandbox, &world, &settings());
        api.put(&busy("bad"));
        api.put(&busy("good"));
        until("both pods", || ["bad", "good"].iter().all(|name| is_ready(&status(&api, name)))).await;
        sandbox.pass(Duration::from_secs(5)).await;

        let bad = uid(&api, "bad");
        let fault = Fault::PoisonPod { pod: bad.clone(), times: 4 };
        node.tree.inject(actor, fault).expect("it is in the tree");
        node.tree.kill(restarts).expect("it is in the tree");
        sandbox.pass(Duration::from_secs(2)).await;
        api.put(&busy("new"));
        until("another pod", || is_ready(&status(&api, "new"))).await;
        // A period of every periodic work. GarbageCollector works for pods in its rounds alone, one a minute.
        let periods = if actor == "GarbageCollector" { 4 } else { 1 };
        sandbox.pass(periods * Duration::from_secs(100)).await;

        let report = sandbox_report(&node, actor).await;
        assert_eq!(report.state, State::Running, "{actor}: {:?}", report.last_crash);
        let stopped = world.runtime.counts().get(&Rpc::StopContainer).copied().unwrap_or(0);
        assert_eq!((stopped, world.runtime.sandboxes().len()), (0, 3), "{actor}: nobody was touched");
        let mut met = Vec::new();
        for event in node.tree.snapshot().await.events {
            match event.what {
                EventKind::Crashed(crash) if crash.place.is_some() => {
                    assert_eq!((event.actor.as_str(), crash.pod.as_ref()), (actor, Some(&bad)), "{crash:?}");
                    met.push(crash.handling);
                }
                EventKind::Quarantined { pod, .. } => assert_eq!((event.actor.as_str(), &pod), (actor, &bad)),
                _ => {}
            }
        }
        // The work for the pod is caught up on, and nothing is left over.
        for name in ["bad", "good", "new"] {
            assert!(is_ready(&status(&api, name)), "{actor}: {name} {:?}", status(&api, name));
            assert_eq!(quarantined(&status(&api, name)), "", "{actor}: {name}");
            api.delete::<Pod>(NS, name, None);
        }
        until("all pods to go", || ["bad", "good", "new"].iter().all(|n| api.get::<Pod>(NS, n).is_none()))
            .await;
        node.until_empty().await;
        node.stop().await;
        met
    })
}

async fn sandbox_report(node: &FakeNode, actor: &str) -> supervision::ActorReport {
    let actors = node.tree.snapshot().await.actors;
    actors.into_iter().find(|report| report.name == actor).expect("it is in the tree")
}

#[test]
fn g12_a_pod_that_any_actor_stumbles_over_is_blamed_and_left_alone_and_nobody_else() {
    for actor in [
        "PodSources",
        "PodManager",
        "PodWorkerPool",
        "Pleg",
        "StatusManager",
        "ProbeManager",
        "VolumeManager",
        "ResourceManager",
        "ObjectCache",
        "EvictionManager",
        "GarbageCollector",
        "LogManager",
    ] {
        let met = poison(actor, actor);
        // After the third one a step of a loop is left out.
        assert!((3..=4).contains(&met.len()), "{actor} crashed at {met:?}");
    }
}

#[test]
fn g12_loops_over_all_pods_name_the_pod() {
    for (actor, message, restarts) in [
        ("PodSources", "pods of the API server", "PodSources"),
        ("ProbeManager", "WorkerReported", "ProbeManager"),
        ("ObjectCache", "DesiredPodsChanged", "ObjectCache"),
        ("ResourceManager", "DesiredPodsChanged", "ResourceManager"),
        ("EvictionManager", "DesiredPodsChanged", "EvictionManager"),
        ("PodWorkerPool", "starting", "PodWorkerPool"),
        ("PodManager", "ApiPodsChanged", "PodSources"),
        ("PodManager", "ask workers", "PodManager"),
        ("StatusManager", "DesiredPodsChanged", "StatusManager"),
        ("Pleg", "relist", "Pleg"),
    ] {
        let met = poison(actor, restarts);
        assert!(met.iter().any(|handling| handling == message), "{actor} crashed at {met:?}");
    }
}

#[test]
fn g11_a_loop_over_all_pods_gets_past_one_that_goes_on_panicking() {
    for actor in ["PodSources", "PodManager", "StatusManager"] {
        sandbox(Policy::default(), async |sandbox| {
            sandbox.expect_crashes();
            let (world, api) = clustered(17);
            for name in ["bad", "good"] {
                api.put(&busy(name));
            }
            let node = FakeNode::start(sandbox, &world, &settings());
            until("both pods", || ["bad", "good"].iter().all(|name| is_ready(&status(&api, name)))).await;
            let fault = Fault::PoisonPod { pod: uid(&api, "bad"), times: 50 };
            node.tree.inject(actor, fault).expect("it is in the tree");
            node.tree.kill(actor).expect("it is in the tree");
            sandbox.pass(Duration::from_secs(5)).await;
            // A new incarnation reads everything again.
            for restarts in 0..3 {
                node.tree.kill(actor).expect("it is in the tree");
                let name = format!("new{restarts}");
                api.put(&busy(&name));
                until("another pod", || is_ready(&status(&api, &name))).await;
            }
            sandbox.pass(Duration::from_secs(100)).await;
            let report = sandbox_report(&node, actor).await;
            assert_eq!(report.state, State::Running, "{actor}: {:?}", report.last_crash);
            let stopped = world.runtime.counts().get(&Rpc::StopContainer).copied().unwrap_or(0);
            assert_eq!((stopped, world.runtime.sandboxes().len()), (0, 5), "{actor}: no pod was touched");
            let names = ["good", "new0", "new1", "new2"];
            for name in names {
                api.delete::<Pod>(NS, name, None);
            }
            until("their end", || names.iter().all(|name| api.get::<Pod>(NS, name).is_none())).await;
            node.stop().await;
        });
    }
}

#[test]
fn g14_status_manager_tells_of_its_own_quarantine() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(12);
        api.put(&pod("bad", "serve"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod", || is_ready(&status(&api, "bad"))).await;
        let fault = Fault::PoisonPod { pod: uid(&api, "bad"), times: 4 };
        node.tree.inject("StatusManager", fault).expect("it is in the tree");
        node.tree.kill("StatusManager").expect("it is in the tree");
        until("the condition", || {
            quarantined(&status(&api, "bad")).starts_with("StatusManager leaves the pod alone")
        })
        .await;
        assert!(is_ready(&status(&api, "bad")), "all else is as it was told last");
        until("its end", || quarantined(&status(&api, "bad")).is_empty()).await;
        assert!(is_ready(&status(&api, "bad")));
        node.stop().await;
    });
}

#[test]
fn g14_a_quarantine_is_told_again_to_a_new_status_manager() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(13);
        api.put(&busy("bad"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod", || is_ready(&status(&api, "bad"))).await;
        for actor in ["ProbeManager", "VolumeManager"] {
            let fault = Fault::PoisonPod { pod: uid(&api, "bad"), times: 5 };
            node.tree.inject(actor, fault).expect("it is in the tree");
            node.tree.kill(actor).expect("it is in the tree");
        }
        let both = |told: &str| ["ProbeManager", "VolumeManager"].iter().all(|actor| told.contains(actor));
        until("both", || both(&quarantined(&status(&api, "bad")))).await;
        node.tree.kill("StatusManager").expect("it is in the tree");
        sandbox.pass(Duration::from_secs(2)).await;
        let shown = node.by_name().await;
        assert!(both(&quarantined(&shown["bad"])), "{:?}", shown["bad"].conditions);
        assert!(both(&quarantined(&status(&api, "bad"))));
        until("their ends", || quarantined(&status(&api, "bad")).is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn g14_dormancy_is_told_again_to_a_new_node_status() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(14).with_api();
        let api = world.api.clone().expect("it has one");
        let node = FakeNode::start(sandbox, &world, &member().await);
        let degraded = || {
            let status = api.get::<Node>(None, NODE).and_then(|node| node.status).unwrap_or_default();
            let all = status.conditions.into_iter().flatten();
            all.filter(|one| one.type_ == "KubeletDegraded").find_map(|one| one.message).unwrap_or_default()
        };
        for actor in ["ImageManager", "LogManager"] {
            let times = Policy::default().restart.restarts_max + 2;
            node.tree.inject(actor, Fault::PanicWhileStarting { times }).expect("it is in the tree");
            node.tree.inject(actor, Fault::PanicNow).expect("it is in the tree");
        }
        let both = |told: String| told.contains("ImageManager") && told.contains("LogManager");
        until("both", || both(degraded())).await;
        node.tree.kill("NodeStatus").expect("it is in the tree");
        // NodeStatus has been told of both again before it posts anything.
        for _ in 0..60 {
            sandbox.pass(Duration::from_secs(1)).await;
            assert!(both(degraded()), "{}", degraded());
        }
        until("the end of both", || !degraded().contains("Manager")).await;
        node.stop().await;
    });
}

/// One actor panics at every step on behalf of four pods, four times each, from its restart on.
fn poison_several(actor: &str) {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(16).with_api();
        let api = world.api.clone().expect("it has one");
        let names = ["bad1", "bad2", "bad3", "bad4", "good"];
        for name in names {
            api.put(&pod(name, "serve"));
        }
        let node = FakeNode::start(sandbox, &world, &member().await);
        until("all pods", || names.iter().all(|name| is_ready(&status(&api, name)))).await;
        let condition = |kind: &str| {
            let status = api.get::<Node>(None, NODE).and_then(|node| node.status).unwrap_or_default();
            status.conditions.into_iter().flatten().find(|one| one.type_ == kind && one.status == "True")
        };
        for name in &names[..4] {
            let fault = Fault::PoisonPod { pod: uid(&api, name), times: 4 };
            node.tree.inject(actor, fault).expect("it is in the tree");
        }
        node.tree.kill(actor).expect("it is in the tree");
        until("the condition", || condition("KubeletDegraded").is_some()).await;
        let told = condition("KubeletDegraded").expect("it is there");
        assert_eq!(told.reason.as_deref(), Some("PodsLeftAlone"));
        let message = told.message.unwrap_or_default();
        let (place, why) = message.split_once(": it ").expect("actor and place, and why");
        assert!(place.starts_with(&format!("{actor} at actors/supervision/src/blame.rs:")), "{message}");
        assert_eq!(why, "panics for several pods, which are left alone");
        let event = format!("{place}: it {why}");
        let events = node.events().await;
        assert!(events.iter().any(|one| *one.message == event), "{events:?}");
        assert!(condition("Ready").is_some(), "the others go on");
        api.put(&pod("new", "serve"));
        until("another pod", || is_ready(&status(&api, "new"))).await;
        node.tree.kill("NodeStatus").expect("it is in the tree");
        // Each of them is let in for a moment and panics again; the condition holds all the while.
        let mut last = std::collections::BTreeSet::new();
        while let Some(held) = condition("KubeletDegraded") {
            last.insert((held.message, held.last_transition_time.map(|time| time.0)));
            sandbox.pass(Duration::from_millis(500)).await;
        }
        assert_eq!(last.len(), 1, "{last:?}");
        for name in names {
            until("the end of the quarantines", || quarantined(&status(&api, name)).is_empty()).await;
        }
        sandbox.pass(Duration::from_secs(600)).await;
        assert!(condition("KubeletDegraded").is_none(), "it was the end");
        assert_eq!(sandbox_report(&node, actor).await.state, State::Running);
        node.stop().await;
    });
}

#[test]
fn g18_a_panic_for_several_pods_at_one_place_is_told_on_the_node_until_it_is_over() {
    for actor in ["ProbeManager", "VolumeManager", "PodManager", "StatusManager"] {
        poison_several(actor);
    }
}

/// Gives the pod labels that no pod can have.
fn spoil(api: &FakeApi, name: &str) {
    api.spoil::<Pod>(NS, name, &json!({ "metadata": { "labels": { "number": 1 } } }));
}

#[test]
fn one_pod_of_a_list_or_a_watch_that_cannot_be_read_is_named_and_the_others_go_on() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(15);
        for name in ["listed", "runs", "good"] {
            api.put(&pod(name, "serve"));
        }
        spoil(&api, "listed");
        let node = FakeNode::start(sandbox, &world, &settings());
        until("those of the list", || ["runs", "good"].iter().all(|n| is_ready(&status(&api, n)))).await;
        spoil(&api, "runs");
        api.put(&pod("later", "serve"));
        until("one behind it in the watch", || is_ready(&status(&api, "later"))).await;
        // A list anew, in which both are wrong.
        api.expire_watches();
        api.put(&pod("latest", "serve"));
        until("one of a new list", || is_ready(&status(&api, "latest"))).await;
        sandbox.pass(Duration::from_secs(60)).await;
        let stopped = world.runtime.counts().get(&Rpc::StopContainer).copied().unwrap_or(0);
        assert_eq!((stopped, world.runtime.sandboxes().len()), (0, 4), "what runs goes on");
        let named: Vec<String> = node
            .events()
            .await
            .into_iter()
            .filter(|event| event.message.contains("cannot be read"))
            .map(|event| serde_json::to_string(&event.object).expect("an object"))
            .collect();
        for name in ["listed", "runs"] {
            assert!(named.iter().any(|object| object.contains(name)), "{name}: {named:?}");
        }
        let cured = Patch::Merge(json!({ "metadata": { "labels": { "number": "1" } } }));
        api.change::<Pod>(NS, "listed", None, &cured);
        until("one that is right at last", || is_ready(&status(&api, "listed"))).await;
        node.stop().await;
    });
}

#[test]
fn a_pod_that_a_new_kubelet_cannot_read_runs_on_and_what_has_gone_ends() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let (world, api) = clustered(16);
        for name in ["spoilt", "good", "orphan"] {
            api.put(&pod(name, "serve"));
        }
        let node = FakeNode::start(sandbox, &world, &settings());
        until("all", || ["spoilt", "good", "orphan"].iter().all(|n| is_ready(&status(&api, n)))).await;
        let stops = || world.runtime.counts().get(&Rpc::StopContainer).copied().unwrap_or(0);
        spoil(&api, "spoilt");
        // A new PodSources has only the list; a new PodManager knows nothing of the pod either.
        for actors in
            [&["PodSources"][..], &["PodSources", "PodManager"], &["PodManager"], &["PodWorkerPool"]]
        {
            for actor in actors {
                node.tree.kill(actor).expect("it is in the tree");
            }
            sandbox.pass(Duration::from_secs(90)).await;
            assert_eq!((stops(), world.runtime.sandboxes().len()), (0, 3), "after {actors:?}");
        }
        node.stop().await;

        api.delete::<Pod>(NS, "orphan", Some(0));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the end of what has gone", || world.runtime.sandboxes().len() == 2).await;
        sandbox.pass(Duration::from_secs(300)).await;
        assert_eq!((stops(), world.runtime.sandboxes().len()), (1, 2));
        // Others come and go beside it.
        api.put(&pod("later", "serve"));
        until("a new pod", || is_ready(&status(&api, "later"))).await;
        api.delete::<Pod>(NS, "later", None);
        until("its end", || api.get::<Pod>(NS, "later").is_none()).await;
        assert_eq!((stops(), world.runtime.sandboxes().len()), (2, 2));
        let cured = Patch::Merge(json!({ "metadata": { "labels": { "number": "1" } } }));
        api.change::<Pod>(NS, "spoilt", None, &cured);
        sandbox.pass(Duration::from_secs(90)).await;
        assert!(is_ready(&status(&api, "spoilt")));
        assert_eq!((stops(), world.runtime.containers().len()), (2, 2), "taken over as it runs");
        // Nothing is known of it, and it goes.
        spoil(&api, "spoilt");
        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(90)).await;
        assert_eq!(world.runtime.sandboxes().len(), 2);
        api.delete::<Pod>(NS, "spoilt", Some(0));
        until("its end", || world.runtime.sandboxes().len() == 1).await;
        node.stop().await;
    });
}

/// Gives the pod more tolerations than a kubelet reads.
fn grow(api: &FakeApi, name: &str) {
    let tolerations = vec![json!({}); 65_536];
    api.change::<Pod>(NS, name, None, &Patch::Merge(json!({ "spec": { "tolerations": tolerations } })));
}

#[test]
fn a_pod_that_cannot_be_read_any_more_ends_when_it_is_deleted() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(18);
        for name in ["known", "unknown"] {
            api.put(&pod(name, "serve"));
        }
        let node = FakeNode::start(sandbox, &world, &settings());
        until("both", || ["known", "unknown"].iter().all(|name| is_ready(&status(&api, name)))).await;
        for name in ["known", "unknown"] {
            grow(&api, name);
        }
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.sandboxes().len(), 2, "what runs goes on");
        let is_gone = |name: &str| api.get::<Pod>(NS, name).is_none();
        api.delete::<Pod>(NS, "known", None);
        until("the end of the one that was known", || is_gone("known")).await;
        node.stop().await;
        api.delete::<Pod>(NS, "unknown", None);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the end of the one of which nothing is known", || is_gone("unknown")).await;
        until("the end of its sandbox", || world.runtime.sandboxes().is_empty()).await;
        node.stop().await;
    });
}
