//! Lifecycle hooks.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, ExecScript, FakeRuntime, Match};
use bridge_http::probes::{FakeAnswer, Scheme};
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
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

/// When the first call of this kind was made for a container.
fn first(runtime: &FakeRuntime, rpc: Rpc, id: &str) -> Duration {
    let calls = runtime.calls();
    calls.iter().find(|call| call.rpc == rpc && call.subject == id).expect("it was called").at
}

async fn saw_event(node: &FakeNode, reason: &str, message: &str) -> bool {
    node.events().await.iter().any(|event| &*event.reason == reason && &*event.message == message)
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
        let why = Rejection { reason: "Evicted".into(), message: "low".into() };
        let _ = node.node.evict.tell(EvictPod { uid, grace_seconds: Some(4), why });
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
        let why = Rejection { reason: "Evicted".into(), message: "low".into() };
        let _ = node.node.evict.tell(EvictPod { uid, grace_seconds: Some(4), why });
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
