//! Lifecycle hooks.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, ExecScript, FakeRuntime, Match};
use bridge_http::probes::{FakeAnswer, Scheme};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use messages::PodUid;
use messages::event_recorder::EventObject;
use messages::facts::Rejection;
use messages::pod_worker::EvictPod;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

/// A pod of these containers, given as lines of YAML.
fn pod(name: &str, grace: u32, containers: &[String]) -> String {
    let containers = containers.join("\n");
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: {grace}
  containers:
{containers}
"
    )
}

fn container(name: &str, lifecycle: &str) -> String {
    format!(
        "  - {{name: {name}, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve], lifecycle: {{{lifecycle}}}}}"
    )
}

/// Orders the pod's end within four seconds.
fn evict(node: &FakeNode, uid: PodUid) {
    let why = Rejection::new("Evicted", "low");
    let _ = node.node.evict.tell(EvictPod { uid, grace_seconds: Some(4), why });
}

fn takes(seconds: u64, exit_code: i32) -> ExecScript {
    ExecScript { takes: Duration::from_secs(seconds), exit_code, ..ExecScript::default() }
}

/// Longer than any test, in seconds.
const EVER: u64 = 1_000_000;

fn of<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let mut all = status.container_statuses.iter().flatten();
    all.find(|container| container.name == name).expect("it is listed")
}

fn runs(status: &PodStatus, name: &str) -> bool {
    of(status, name).state.as_ref().is_some_and(|state| state.running.is_some())
}

fn id(runtime: &FakeRuntime, name: &str) -> String {
    let mut all = runtime.containers().into_iter();
    let found = all.find(|container| container.metadata.as_ref().is_some_and(|m| m.name == name));
    found.expect("it is there").id
}

/// When the calls of this kind were made for a container.
fn times(runtime: &FakeRuntime, rpc: Rpc, id: &str) -> Vec<Duration> {
    let calls = runtime.calls().into_iter().filter(|call| call.rpc == rpc && call.subject == id);
    calls.map(|call| call.at).collect()
}

/// When the first of them was made.
fn first(runtime: &FakeRuntime, rpc: Rpc, id: &str) -> Duration {
    *times(runtime, rpc, id).first().expect("it was called")
}

async fn saw_event(node: &FakeNode, reason: &str, message: &str) -> bool {
    node.events().await.iter().any(|event| &*event.reason == reason && &*event.message == message)
}

/// Waits until the first hook of the only pod runs.
async fn until_hooked(node: &FakeNode, world: &World) {
    node.until("the hook to run", |pods| {
        !pods.is_empty() && world.runtime.counts().get(&Rpc::ExecSync) == Some(&1)
    })
    .await;
}

async fn until_ready(node: &FakeNode, name: &str) {
    node.until("the pod to be Ready", |pods| pods.get(name).is_some_and(|status| is_ready(status))).await;
}

#[test]
fn a_post_start_hook_holds_up_the_next_container() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.runtime.script_exec("warm", takes(20, 0));
        let hook = "postStart: {exec: {command: [warm, up]}}";
        world.manifest("p.yaml", &pod("p", 5, &[container("a", hook), container("b", "")]));
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(15)).await;
        let status = node.by_name().await["p"].clone();
        let waiting = of(&status, "a").state.clone().expect("set").waiting.expect("its hook runs");
        assert_eq!(waiting.reason.as_deref(), Some("ContainerCreating"));
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        until_ready(&node, "p").await;
        let begun = first(&world.runtime, Rpc::StartContainer, &id(&world.runtime, "a"));
        let next = first(&world.runtime, Rpc::StartContainer, &id(&world.runtime, "b"));
        assert!(next - begun >= Duration::from_secs(20), "{begun:?} {next:?}");
        assert!(next - begun <= Duration::from_secs(22), "{begun:?} {next:?}");
        assert!(world.runtime.counts()[&Rpc::ExecSync] == 1);
        node.stop().await;
    });
}

#[test]
fn a_failed_post_start_hook_kills_its_container() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(22);
        world.runtime.script_exec("warm", takes(1, 3));
        let hook = "postStart: {exec: {command: [warm, up]}}";
        world.manifest("p.yaml", &pod("p", 5, &[container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("a to back off", |pods| {
            let Some(status) = pods.get("p") else { return false };
            let a = of(status, "a");
            let waiting = a.state.as_ref().and_then(|state| state.waiting.as_ref());
            a.restart_count == 1
                && waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
        })
        .await;
        assert!(saw_event(&node, "FailedPostStartHook", "PostStartHook failed").await);
        assert!(saw_event(&node, "Killing", "FailedPostStartHook").await);
        assert_eq!(world.runtime.counts()[&Rpc::ExecSync], 2, "once per instance");
        node.stop().await;
    });
}

#[test]
fn a_post_start_hook_that_never_returns_holds_up_nothing_else() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(23);
        world.runtime.script_exec("warm", takes(EVER, 0));
        let once = Behaviour::exits(Duration::from_secs(30), 1);
        world.runtime.behave(Match::Container("z".to_owned()), vec![once, Behaviour::forever()]);
        let hook = "postStart: {exec: {command: [warm, up]}}";
        world.manifest("p.yaml", &pod("p", 5, &[container("z", ""), container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("z to be restarted", |pods| {
            pods.get("p").is_some_and(|status| runs(status, "z") && of(status, "z").restart_count == 1)
        })
        .await;
        let status = node.by_name().await["p"].clone();
        assert!(!runs(&status, "a"), "its hook still runs");
        let asked = tokio::time::Instant::now();
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
        node.stop().await;
    });
}

#[test]
fn a_worker_that_crashes_while_a_post_start_hook_runs_takes_its_container_as_started() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(28);
        world.runtime.script_exec("warm", takes(EVER, 0));
        let hook = "postStart: {exec: {command: [warm, up]}}";
        world.manifest("p.yaml", &pod("p", 5, &[container("a", hook), container("b", "")]));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the hook to run", |pods| {
            pods.contains_key("p") && world.runtime.counts().get(&Rpc::ExecSync) == Some(&1)
        })
        .await;
        let workers = node.tree.snapshot().await.actors.into_iter().filter(|one| one.kind == "PodWorker");
        for worker in workers {
            node.tree.kill(&worker.name).expect("it was just seen");
        }
        until_ready(&node, "p").await;
        sandbox.pass(Duration::from_secs(120)).await;
        until_ready(&node, "p").await;
        assert_eq!(world.runtime.counts()[&Rpc::ExecSync], 1, "it is not run again");
        assert_eq!(world.runtime.counts()[&Rpc::CreateContainer], 2, "nothing was restarted for it");
        node.stop().await;
    });
}

#[test]
fn the_stop_of_a_pod_waits_for_its_post_start_hooks() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(29);
        world.runtime.script_exec("warm", takes(20, 0));
        world.runtime.script_exec("drain", takes(3, 0));
        let drain = "preStop: {exec: {command: [drain]}}";
        let both = format!("postStart: {{exec: {{command: [warm]}}}}, {drain}");
        world.manifest("p.yaml", &pod("p", 60, &[container("z", drain), container("a", &both)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_hooked(&node, &world).await;
        let (a, z) = (id(&world.runtime, "a"), id(&world.runtime, "z"));
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        let of_a = times(&world.runtime, Rpc::ExecSync, &a);
        let [warms, drains] = of_a[..] else { panic!("{of_a:?}") };
        assert!((20_000..20_500).contains(&(drains - warms).as_millis()), "{of_a:?}");
        for id in [&a, &z] {
            let stops = first(&world.runtime, Rpc::StopContainer, id) - warms;
            assert!((23_000..23_500).contains(&stops.as_millis()), "{stops:?}");
        }
        let of_z = times(&world.runtime, Rpc::ExecSync, &z);
        assert!(of_z.len() == 1 && of_z[0] >= drains, "{of_z:?}");
        assert!(!saw_event(&node, "FailedPostStartHook", "PostStartHook failed").await);
        assert!(!saw_event(&node, "FailedPreStopHook", "PreStopHook failed").await);
        node.stop().await;
    });
}

#[test]
fn a_post_start_hook_takes_of_the_grace_of_its_pods_stop() {
    // A hook that ends within the grace, and one that never ends: what is left is two seconds, and none for a
    // preStop hook.
    for (warm, total) in [(12, 20_000..22_000), (EVER, 22_000..24_000)] {
        sandbox(Policy::default(), async |sandbox| {
            let world = world(30);
            world.runtime.script_exec("warm", takes(warm, 0));
            world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
            let hooks = if warm == EVER {
                "postStart: {exec: {command: [warm]}}, preStop: {exec: {command: [drain]}}"
            } else {
                "postStart: {exec: {command: [warm]}}"
            };
            world.manifest("p.yaml", &pod("p", 20, &[container("a", hooks)]));
            let node = FakeNode::start(sandbox, &world, &settings());
            until_hooked(&node, &world).await;
            let a = id(&world.runtime, "a");
            world.remove_manifest("p.yaml");
            let asked = tokio::time::Instant::now();
            node.until_empty().await;
            let took = asked.elapsed().as_millis();
            assert!(total.contains(&took), "{warm}: {took} ms");
            assert_eq!(world.runtime.counts()[&Rpc::ExecSync], 1, "{warm}");
            let stops = first(&world.runtime, Rpc::StopContainer, &a);
            let waited = stops - first(&world.runtime, Rpc::ExecSync, &a);
            assert!(waited >= Duration::from_secs(warm.min(20)), "{warm}: {waited:?}");
            node.stop().await;
        });
    }
}

#[test]
fn less_grace_takes_effect_while_a_stop_waits_for_a_post_start_hook() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(31);
        world.runtime.script_exec("warm", takes(EVER, 0));
        let hook = "postStart: {exec: {command: [warm]}}";
        world.manifest("p.yaml", &pod("p", 600, &[container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_hooked(&node, &world).await;
        let uid = node.statuses().await.into_keys().next().expect("there is one pod");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::StopContainer), None);
        evict(&node, uid);
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        let took = asked.elapsed().as_millis();
        assert!((4_000..10_000).contains(&took), "{took} ms");
        node.stop().await;
    });
}

#[test]
fn a_worker_that_crashes_while_its_stop_waits_for_a_hook_stops_the_pod() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(32);
        world.runtime.script_exec("warm", takes(EVER, 0));
        world.runtime.script_exec("drain", takes(3, 0));
        let hooks = "postStart: {exec: {command: [warm]}}, preStop: {exec: {command: [drain]}}";
        world.manifest("p.yaml", &pod("p", 600, &[container("a", hooks)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_hooked(&node, &world).await;
        let a = id(&world.runtime, "a");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(30)).await;
        assert_eq!(world.runtime.counts()[&Rpc::ExecSync], 1, "it waits");
        let workers = node.tree.snapshot().await.actors.into_iter().filter(|one| one.kind == "PodWorker");
        for worker in workers {
            node.tree.kill(&worker.name).expect("it was just seen");
        }
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        let execs = times(&world.runtime, Rpc::ExecSync, &a);
        assert_eq!(execs.len(), 2, "each hook has run once: {execs:?}");
        node.stop().await;
    });
}

#[test]
fn a_post_start_hook_that_fails_while_the_stop_waits_is_why_its_container_is_killed() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(34);
        world.runtime.script_exec("warm", takes(20, 3));
        let hook = "postStart: {exec: {command: [warm]}}";
        world.manifest("p.yaml", &pod("p", 60, &[container("z", ""), container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_hooked(&node, &world).await;
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        let killings = node.events().await.into_iter().filter(|event| &*event.reason == "Killing");
        let mut messages: Vec<_> = killings.map(|event| event.message.to_string()).collect();
        messages.sort();
        assert_eq!(messages, ["FailedPostStartHook", "Stopping container z"]);
        node.stop().await;
    });
}

#[test]
fn a_worker_that_crashes_while_a_pre_stop_hook_runs_runs_it_again() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(35);
        world.runtime.script_exec("drain", takes(20, 0));
        let hook = "preStop: {exec: {command: [drain]}}";
        world.manifest("p.yaml", &pod("p", 600, &[container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let a = id(&world.runtime, "a");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(10)).await;
        assert_eq!(world.runtime.counts()[&Rpc::ExecSync], 1, "it runs");
        let workers = node.tree.snapshot().await.actors.into_iter().filter(|one| one.kind == "PodWorker");
        for worker in workers {
            node.tree.kill(&worker.name).expect("it was just seen");
        }
        node.until_empty().await;
        let execs = times(&world.runtime, Rpc::ExecSync, &a);
        assert_eq!(execs.len(), 2, "the crash has cut it off: {execs:?}");
        let drained = first(&world.runtime, Rpc::StopContainer, &a) - execs[1];
        assert!((20_000..20_500).contains(&drained.as_millis()), "the second is waited for: {drained:?}");
        node.stop().await;
    });
}

#[test]
fn a_pre_stop_hook_that_outlasts_the_grace_has_failed_only_if_it_fails() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(33);
        world.runtime.script_exec("well", takes(9, 0));
        world.runtime.script_exec("badly", takes(9, 3));
        world.runtime.script_exec("never", takes(EVER, 0));
        world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
        let names = ["well", "badly", "never"];
        let hooked = |name: &&str| container(name, &format!("preStop: {{exec: {{command: [{name}]}}}}"));
        let containers: Vec<String> = names.iter().map(hooked).collect();
        world.manifest("p.yaml", &pod("p", 8, &containers));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        let events = node.events().await;
        let of = |name: &str| {
            let path = format!("spec.containers{{{name}}}");
            let is_of = |object: &EventObject| matches!(object, EventObject::Pod { field_path, .. } if **field_path == *path);
            let failed = events.iter().filter(|event| &*event.reason == "FailedPreStopHook");
            failed.filter(|event| is_of(&event.object)).map(|event| event.count).sum::<u32>()
        };
        // The end of a container ends the command in it.
        assert_eq!(names.map(of), [0, 1, 1]);
        node.stop().await;
    });
}

#[test]
fn a_pre_stop_hook_comes_first_and_takes_of_the_grace() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(24);
        world.runtime.script_exec("drain", takes(3, 0));
        world.runtime.script_exec("hang", takes(EVER, 0));
        world.runtime.behave(Match::Container("b".to_owned()), vec![Behaviour::stubborn()]);
        let hook = |command: &str| format!("preStop: {{exec: {{command: [{command}]}}}}");
        let containers = [container("a", &hook("drain")), container("b", &hook("hang"))];
        world.manifest("p.yaml", &pod("p", 8, &containers));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let (a, b) = (id(&world.runtime, "a"), id(&world.runtime, "b"));
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        let between = |id: &str, from, to| {
            first(&world.runtime, to, id).saturating_sub(first(&world.runtime, from, id)).as_millis()
        };
        let drained = between(&a, Rpc::ExecSync, Rpc::StopContainer);
        assert!((3_000..3_200).contains(&drained), "{drained} ms");
        let cut = between(&b, Rpc::ExecSync, Rpc::StopContainer);
        assert!((8_000..8_200).contains(&cut), "{cut} ms");
        let killed = between(&b, Rpc::StopContainer, Rpc::RemoveContainer);
        assert!((2_000..3_000).contains(&killed), "what is left is two seconds: {killed} ms");
        assert!(saw_event(&node, "FailedPreStopHook", "PreStopHook failed").await);
        node.stop().await;
    });
}

#[test]
fn less_grace_takes_effect_while_a_pre_stop_hook_runs() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(25);
        world.runtime.script_exec("drain", takes(EVER, 0));
        let hook = "preStop: {exec: {command: [drain]}}";
        world.manifest("p.yaml", &pod("p", 600, &[container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let a = id(&world.runtime, "a");
        let uid = node.statuses().await.into_keys().next().expect("there is one pod");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(!world.runtime.containers().is_empty());
        evict(&node, uid);
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        let execs = world.runtime.calls();
        let execs = execs.iter().filter(|call| call.rpc == Rpc::ExecSync && call.subject == a);
        assert_eq!(execs.count(), 1, "the hook goes on, and is not begun again");
        node.stop().await;
    });
}

#[test]
fn less_grace_takes_effect_while_a_container_is_being_stopped() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(26);
        world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
        world.manifest("p.yaml", &pod("p", 600, &[container("a", "")]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let uid = node.statuses().await.into_keys().next().expect("there is one pod");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.counts()[&Rpc::StopContainer], 1);
        evict(&node, uid);
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert_eq!(world.runtime.counts()[&Rpc::StopContainer], 2);
        node.stop().await;
    });
}

#[test]
fn less_grace_takes_effect_while_a_failed_probe_stops_a_container() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(35);
        world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
        world.runtime.script_exec("alive", takes(0, 1));
        let probed = format!(
            "  - {{name: a, image: {IMAGE}, imagePullPolicy: IfNotPresent, command: [serve], \
             livenessProbe: {{exec: {{command: [alive]}}, periodSeconds: 1, failureThreshold: 1}}}}"
        );
        world.manifest("p.yaml", &pod("p", 600, &[probed]));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the container to be stopped", |_| {
            world.runtime.counts().get(&Rpc::StopContainer) == Some(&1)
        })
        .await;
        let uid = node.statuses().await.into_keys().next().expect("there is one pod");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(60)).await;
        assert!(!world.runtime.containers().is_empty());
        evict(&node, uid);
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert_eq!(world.runtime.counts()[&Rpc::StopContainer], 2);
        node.stop().await;
    });
}

#[test]
fn less_grace_takes_effect_although_the_worker_has_crashed_meanwhile() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(36);
        world.runtime.behave(Match::Any, vec![Behaviour::stubborn()]);
        world.manifest("p.yaml", &pod("p", 600, &[container("a", "")]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let uid = node.statuses().await.into_keys().next().expect("there is one pod");
        world.remove_manifest("p.yaml");
        sandbox.pass(Duration::from_secs(60)).await;
        node.tree.kill(&format!("PodWorker/{uid}")).expect("it stops the container");
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.counts()[&Rpc::StopContainer], 1, "the stop in flight is waited for");
        evict(&node, uid);
        let asked = tokio::time::Instant::now();
        node.until_empty().await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
        assert_eq!(world.runtime.counts()[&Rpc::StopContainer], 2);
        node.stop().await;
    });
}

#[test]
fn a_hook_that_asks_over_http_falls_back_from_tls() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(27);
        world.prober.set("hooks.test", 8443, FakeAnswer::PlainOnly);
        world.prober.set("hooks.test", 80, FakeAnswer::status(500));
        let get = |port: u16, scheme: &str| {
            format!("{{httpGet: {{host: hooks.test, port: {port}, path: /up, scheme: {scheme}}}}}")
        };
        let hooks = format!("postStart: {}, preStop: {}", get(8443, "HTTPS"), get(80, "HTTP"));
        world.manifest("p.yaml", &pod("p", 5, &[container("a", &hooks)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        let message =
            "request to HTTPS lifecycle hook hooks.test:8443 got HTTP response, retry with HTTP succeeded";
        assert!(saw_event(&node, "LifecycleHTTPFallback", message).await);
        let last = world.prober.last_request("hooks.test", 8443).expect("it was asked");
        assert_eq!(last.scheme, Scheme::Http);
        assert!(last.headers.contains(&("User-Agent".to_owned(), "kube-lifecycle/1.36".to_owned())));
        world.remove_manifest("p.yaml");
        node.until_empty().await;
        assert_eq!(world.prober.probes("hooks.test", 80), 1);
        assert!(!saw_event(&node, "FailedPreStopHook", "PreStopHook failed").await, "any answer will do");
        node.stop().await;
    });
}

#[test]
fn an_orphan_has_its_pre_stop_hook_run() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(28);
        world.runtime.script_exec("drain", takes(EVER, 0));
        let hook = "preStop: {exec: {command: [drain]}}";
        world.manifest("p.yaml", &pod("p", 600, &[container("a", hook)]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "p").await;
        node.stop().await;
        world.remove_manifest("p.yaml");
        let world: World = world;
        let node =
            FakeNode::start(sandbox, &world, &settings()).restart(&settings(), Policy::default()).await;
        node.until_empty().await;
        assert!(world.runtime.counts()[&Rpc::ExecSync] >= 1);
        node.stop().await;
    });
}
