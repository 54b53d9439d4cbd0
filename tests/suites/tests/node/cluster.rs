//! A node that is a member of a cluster: its pods come from the API server, and their statuses go there.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, ExecScript, Fault, Match, OnTerm, RegistryImage};
use bridge_kube::fake::{FakeApi, Verb};
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::pods::web;

const NS: Option<&str> = Some("default");

/// A world with an API server that has a Node of ours.
pub fn clustered(seed: u64) -> (World, FakeApi) {
    let mut world = world(seed);
    let api = FakeApi::new(world.clock.clone());
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).expect("a Node");
    api.put(&node);
    world.api = Some(api.clone());
    (world, api)
}

pub fn pod(name: &str, command: &str) -> Pod {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": [command]
            }]
        }
    });
    serde_json::from_value(json).expect("a pod")
}

/// Waits at most five minutes of sandbox time.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    within(300, what, done).await;
}

/// Waits at most so many seconds of sandbox time.
pub async fn within(seconds: u64, what: &str, done: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while !done() {
        assert!(tokio::time::Instant::now() < end, "waited {seconds} s in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether the pod is Ready, as the API server has been told.
pub fn is_told_ready(api: &FakeApi, name: &str) -> bool {
    let pod = api.get::<Pod>(NS, name);
    pod.and_then(|pod| pod.status).is_some_and(|status| is_ready(&status))
}

async fn started(sandbox: &Sandbox, world: &World, api: &FakeApi, name: &str) -> FakeNode {
    let node = FakeNode::start(sandbox, world, &settings());
    until("the pod to be Ready", || is_told_ready(api, name)).await;
    node
}

#[test]
fn a_pod_of_the_api_server_runs_and_is_gone_soon_after_its_deletion() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(1);
        api.put(&pod("web", "serve"));
        let node = started(sandbox, &world, &api, "web").await;
        let status = api.get::<Pod>(NS, "web").and_then(|pod| pod.status).expect("a status");
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert!(status.pod_ip.is_some() && status.start_time.is_some());
        api.delete::<Pod>(NS, "web", None);
        until("the pod to be gone", || api.get::<Pod>(NS, "web").is_none()).await;
        node.until_empty().await;
        assert_eq!(api.count(Verb::Delete, "pods"), 1, "by us, when all had been given back");
        node.stop().await;
    });
}

#[test]
fn a_restarted_kubelet_tells_nothing_that_is_known() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(2);
        for n in 0..20 {
            api.put(&pod(&format!("web{n}"), "serve"));
        }
        let all = || (0..20).all(|n| is_told_ready(&api, &format!("web{n}")));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("20 pods to be Ready", all).await;
        sandbox.pass(Duration::from_secs(30)).await;
        api.forget_log();
        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert!(all());
        assert_eq!(api.count(Verb::List, "pods"), 1, "the kubelet has started");
        assert_eq!(api.count(Verb::Patch, "pods/status"), 0);
        assert_eq!(api.count(Verb::Delete, "pods"), 0);
        node.stop().await;
    });
}

#[test]
fn a_static_pod_has_a_mirror_that_comes_back_and_goes_with_it() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(3);
        world.manifest("web.yaml", &web("web"));
        let node = started(sandbox, &world, &api, "web-node").await;
        let mirror = api.get::<Pod>(NS, "web-node").expect("a mirror");
        let annotations = mirror.metadata.annotations.clone().unwrap_or_default();
        assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
        assert_eq!(annotations["kubernetes.io/config.source"], "file");
        let owners = mirror.metadata.owner_references.clone().unwrap_or_default();
        assert_eq!((owners.len(), owners[0].kind.as_str()), (1, "Node"));

        let containers = world.runtime.containers().len();
        api.delete::<Pod>(NS, "web-node", Some(0));
        let is_new = |pod: Pod| pod.metadata.uid != mirror.metadata.uid;
        until("another mirror", || {
            is_told_ready(&api, "web-node") && api.get::<Pod>(NS, "web-node").is_some_and(is_new)
        })
        .await;
        assert_eq!(world.runtime.containers().len(), containers, "the pod itself has not noticed");

        world.remove_manifest("web.yaml");
        node.until_empty().await;
        until("no mirror", || api.get::<Pod>(NS, "web-node").is_none()).await;
        node.stop().await;
    });
}

#[test]
fn what_happens_while_the_server_is_away_is_told_when_it_is_back() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(4);
        let once = Behaviour::exits(Duration::from_secs(40), 3);
        world.runtime.behave(Match::Command("flaky".to_owned()), vec![once, Behaviour::forever()]);
        api.put(&pod("flaky", "flaky"));
        let node = started(sandbox, &world, &api, "flaky").await;
        api.set_down(true);
        sandbox.pass(Duration::from_secs(120)).await;
        let restarts = || {
            let status = api.get::<Pod>(NS, "flaky").and_then(|pod| pod.status);
            status.and_then(|status| Some(status.container_statuses?.first()?.restart_count))
        };
        assert_eq!(restarts(), Some(0), "nobody could be told");
        api.set_down(false);
        until("the restart to be told", || restarts() == Some(1) && is_told_ready(&api, "flaky")).await;
        node.stop().await;
    });
}

/// The API server refuses to let a container come back that its restart policy ends: a container that a failed probe
/// kills and that is started again at once is never shown as ended, however long that start takes.
#[test]
fn a_killed_container_that_comes_back_is_not_told_as_ended() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(8);
        let graceful =
            Behaviour { on_term: OnTerm::Exits { after: Duration::ZERO, code: 0 }, ..Behaviour::forever() };
        world.runtime.behave(Match::Command("graceful".to_owned()), vec![graceful]);
        world.runtime.script_exec("ask", ExecScript { exit_code: 1, ..ExecScript::default() });
        let mut pod = pod("job", "graceful");
        let spec = pod.spec.as_mut().expect("a spec");
        spec.restart_policy = Some("OnFailure".to_owned());
        let probe =
            json!({ "exec": { "command": ["ask"] }, "initialDelaySeconds": 10, "failureThreshold": 1 });
        spec.containers[0].liveness_probe = serde_json::from_value(probe).expect("a probe");
        api.put(&pod);
        let node = started(sandbox, &world, &api, "job").await;
        world.runtime.fault(Rpc::CreateContainer, 1, Fault::Latency(Duration::from_secs(5)));
        until("the restart to be told", || {
            let status = api.get::<Pod>(NS, "job").and_then(|pod| pod.status).expect("a status");
            let container = status.container_statuses.and_then(|list| list.into_iter().next());
            let container = container.expect("a container");
            let state = container.state.expect("a state");
            assert!(state.terminated.is_none(), "{state:?}");
            container.restart_count == 1 && state.running.is_some()
        })
        .await;
        node.stop().await;
    });
}

/// Another image is started whatever the restart policy says, also when it has to be pulled first.
#[test]
fn a_container_gets_its_new_image_however_long_that_is_pulled() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(9);
        let new = "registry.test/new:2";
        world
            .runtime
            .publish(new, RegistryImage { takes: Duration::from_secs(30), ..RegistryImage::default() });
        let mut once = pod("once", "serve");
        once.spec.as_mut().expect("a spec").restart_policy = Some("Never".to_owned());
        api.put(&once);
        let node = started(sandbox, &world, &api, "once").await;
        let image = json!({ "spec": { "containers": [{ "name": "main", "image": new }] } });
        api.change::<Pod>(NS, "once", None, &bridge_kube::Patch::Strategic(image));
        until("the other image to run", || {
            let status = api.get::<Pod>(NS, "once").and_then(|pod| pod.status).expect("a status");
            assert_eq!(status.phase.as_deref(), Some("Running"));
            let container = status.container_statuses.and_then(|list| list.into_iter().next());
            let container = container.expect("a container");
            container.restart_count == 1 && container.ready
        })
        .await;
        node.stop().await;
    });
}

#[test]
fn what_others_write_stays_and_what_is_ours_is_put_right() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(5);
        api.put(&pod("web", "serve"));
        let node = started(sandbox, &world, &api, "web").await;
        let theirs = json!({ "type": "example.com/theirs", "status": "True" });
        let drift = json!({ "status": { "phase": "Pending", "conditions": [theirs] } });
        let patch = bridge_kube::Patch::Strategic(drift);
        api.change::<Pod>(NS, "web", Some("status"), &patch);
        let status = || api.get::<Pod>(NS, "web").and_then(|pod| pod.status).unwrap_or_default();
        until("the phase to be right again", || status().phase.as_deref() == Some("Running")).await;
        let has = |name: &str| status().conditions.iter().flatten().any(|condition| condition.type_ == name);
        assert!(has("example.com/theirs") && has("Ready"));
        node.stop().await;
    });
}

#[test]
fn events_are_created_once_and_counted_up() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(7);
        let crash = Behaviour::exits(Duration::from_secs(1), 3);
        world.runtime.behave(Match::Command("crash".to_owned()), vec![crash]);
        api.put(&pod("crash", "crash"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let counts = || -> Vec<i32> {
            let events: Vec<Event> = api.list();
            let started = events.iter().filter(|event| event.reason.as_deref() == Some("Started"));
            started.filter_map(|event| event.count).collect()
        };
        until("a third start", || counts().iter().any(|count| *count >= 3)).await;
        assert_eq!(counts().len(), 1, "one event for all of them");
        let events: Vec<Event> = api.list();
        let event =
            events.iter().find(|event| event.reason.as_deref() == Some("Started")).expect("it is there");
        assert_eq!(event.involved_object.name.as_deref(), Some("crash"));
        assert_eq!(event.involved_object.field_path.as_deref(), Some("spec.containers{main}"));
        let source = event.source.as_ref().expect("a source");
        assert_eq!((source.component.as_deref(), source.host.as_deref()), (Some("kubelet"), Some("node")));
        node.stop().await;
    });
}
