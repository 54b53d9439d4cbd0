//! Which pods are admitted, which are refused, and which are preempted for others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::Fault;
use bridge_cri::wire::PodSandboxState;
use bridge_http::manifest_url::FakeManifestUrl;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet::wiring::Settings;
use messages::event_recorder::EventObject;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, settings};
use testkit::sandbox;

use crate::life::world;

type Statuses = BTreeMap<String, Arc<PodStatus>>;

/// A pod that takes a port of the node: only pods with other ports fit beside it.
fn on_port(name: &str, port: u16) -> String {
    pod(name, &format!("    ports: [{{containerPort: {port}, hostPort: {port}}}]\n"), "")
}

fn pod(name: &str, container: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 5
{spec}  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve, {name}]
{container}"
    )
}

fn critical(name: &str) -> String {
    pod(name, "", "  priorityClassName: system-node-critical\n")
}

/// Settings of a node with room for so many pods.
fn places(pods_max: usize) -> Settings {
    let mut settings = settings();
    settings.admission.pods_max = pods_max;
    settings.admission.resources = Arc::default();
    settings
}

fn phase(pods: &Statuses, name: &str, phase: &str) -> bool {
    pods.get(name).is_some_and(|status| status.phase.as_deref() == Some(phase))
}

fn reason(pods: &Statuses, name: &str) -> Option<(String, String)> {
    let status = pods.get(name)?;
    Some((status.reason.clone()?, status.message.clone()?))
}

/// Reasons and messages of the events about a pod.
async fn events(node: &FakeNode, name: &str) -> Vec<(String, String)> {
    let about = |object: &EventObject| matches!(object, EventObject::Pod { pod, .. } if *pod.name == *format!("{name}-node"));
    let events = node.events().await.into_iter().filter(|event| about(&event.object));
    events.map(|event| (event.reason.to_string(), event.message.to_string())).collect()
}

#[test]
fn a_pod_that_does_not_fit_fails_and_others_run() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.manifest("a.yaml", &on_port("a", 8080));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("a to run", |pods| phase(pods, "a", "Running")).await;
        world.manifest("0-rival.yaml", &on_port("rival", 8080));
        world.manifest("b.yaml", &on_port("b", 8081));
        node.until("b to run and its rival to fail", |pods| {
            phase(pods, "b", "Running") && phase(pods, "rival", "Failed")
        })
        .await;
        let why = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
        let told = reason(&node.by_name().await, "rival");
        assert_eq!(told, Some(("NodePorts".to_owned(), format!("Pod was rejected: {why}"))));
        assert_eq!(events(&node, "rival").await, [("NodePorts".to_owned(), why.to_owned())]);
        // A refused pod stays refused when there is room later, and a restart changes nothing for the pods that run.
        world.remove_manifest("b.yaml");
        node.until("b to be gone", |pods| !pods.contains_key("b")).await;
        assert!(phase(&node.by_name().await, "rival", "Failed"));
        let node = node.restart(&settings(), Policy::default()).await;
        node.until("all to be as before", |pods| {
            phase(pods, "a", "Running") && phase(pods, "rival", "Failed")
        })
        .await;
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&2), "a and b");
        node.stop().await;
    });
}

#[test]
fn a_restarted_kubelet_judges_refused_pods_anew() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(22);
        for name in ["a", "b"] {
            world.manifest(&format!("{name}.yaml"), &pod(name, "", ""));
        }
        let node = FakeNode::start(sandbox, &world, &places(1));
        node.until("one of two", |pods| phase(pods, "a", "Running") && phase(pods, "b", "Failed")).await;
        let (reason, message) = reason(&node.by_name().await, "b").unwrap();
        assert_eq!(reason, "UnexpectedAdmissionError", "as a static pod it is critical");
        assert!(
            message.ends_with("no set of running pods found to reclaim resources: [(res: pods, q: 1), ]")
        );
        // A manifest that is read first does not take the place of a pod that runs.
        world.manifest("0.yaml", &pod("first", "", ""));
        let node = node.restart(&places(2), Policy::default()).await;
        node.until("another one beside a", |pods| {
            phase(pods, "a", "Running") && phase(pods, "first", "Running") && phase(pods, "b", "Failed")
        })
        .await;
        let node = node.restart(&places(3), Policy::default()).await;
        node.until("all of them", |pods| {
            pods.len() == 3 && pods.values().all(|s| s.phase.as_deref() == Some("Running"))
        })
        .await;
        assert_eq!(world.runtime.counts().get(&Rpc::StopContainer).copied().unwrap_or(0), 0);
        node.stop().await;
    });
}

#[test]
fn of_two_manifests_of_one_name_the_one_that_runs_stays() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(23);
        world.manifest("z.yaml", &pod("twin", "", ""));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to run", |pods| phase(pods, "twin", "Running")).await;
        let before = node.statuses().await;
        node.stop().await;
        world.manifest("a.yaml", &on_port("twin", 8080));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to run again", |pods| phase(pods, "twin", "Running")).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(node.statuses().await, before);
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&1));
        node.stop().await;
    });
}

#[test]
fn a_manifest_that_was_edited_while_no_kubelet_ran_waits_for_the_old_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(24);
        world.manifest("a.yaml", &pod("a", "", ""));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to run", |pods| phase(pods, "a", "Running")).await;
        node.stop().await;
        world.manifest("a.yaml", &on_port("a", 8080));
        let node = FakeNode::start(sandbox, &world, &settings());
        let end = tokio::time::Instant::now() + Duration::from_secs(120);
        loop {
            let sandboxes = world.runtime.sandboxes();
            let ready = sandboxes.iter().filter(|s| s.state() == PodSandboxState::SandboxReady);
            assert!(ready.count() <= 1, "they overlap: {sandboxes:?}");
            let made = world.runtime.counts().get(&Rpc::RunPodSandbox).copied();
            if made == Some(2) && phase(&node.by_name().await, "a", "Running") {
                break;
            }
            assert!(tokio::time::Instant::now() < end, "the new one never ran");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        node.stop().await;
    });
}

#[test]
fn a_critical_pod_finds_room() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(25);
        world.manifest("a.yaml", &pod("a", "", ""));
        world.manifest("vital.yaml", &critical("vital"));
        let node = FakeNode::start(sandbox, &world, &places(2));
        node.until("both to run", |pods| phase(pods, "a", "Running") && phase(pods, "vital", "Running"))
            .await;
        world.manifest("more.yaml", &critical("more"));
        node.until("the second critical one to run", |pods| phase(pods, "more", "Running")).await;
        let pods = node.by_name().await;
        assert!(phase(&pods, "vital", "Running") && phase(&pods, "a", "Failed"), "{pods:?}");
        let message = "Preempted in order to admit critical pod";
        assert_eq!(reason(&pods, "a"), Some(("Preempting".to_owned(), message.to_owned())));
        let conditions = pods["a"].conditions.clone().unwrap_or_default();
        assert!(conditions.iter().any(|c| c.type_ == "DisruptionTarget" && c.status == "True"));
        let told: Vec<_> =
            events(&node, "a").await.into_iter().filter(|event| event.0 == "Preempting").collect();
        assert_eq!(told, [("Preempting".to_owned(), message.to_owned())]);
        // No pod is left that could be preempted.
        world.manifest("third.yaml", &critical("third"));
        node.until("the third to be refused", |pods| phase(pods, "third", "Failed")).await;
        assert_eq!(reason(&node.by_name().await, "third").unwrap().0, "UnexpectedAdmissionError");
        node.stop().await;
    });
}

#[test]
fn a_victim_that_does_not_end_is_waited_for_ten_seconds() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(26);
        world.manifest("a.yaml", &pod("a", "", ""));
        let node = FakeNode::start(sandbox, &world, &places(1));
        node.until("it to run", |pods| phase(pods, "a", "Running")).await;
        world.runtime.fault(Rpc::StopContainer, 1000, Fault::Hang);
        world.manifest("vital.yaml", &critical("vital"));
        let begun = tokio::time::Instant::now();
        node.until("the critical one to run", |pods| phase(pods, "vital", "Running")).await;
        assert!(begun.elapsed() >= Duration::from_secs(10), "{:?}", begun.elapsed());
        let message = "Container runtime did not kill the pod within specified grace period.";
        let told = events(&node, "a").await;
        assert!(told.contains(&("ExceededGracePeriod".to_owned(), message.to_owned())), "{told:?}");
        node.stop().await;
    });
}

#[test]
fn pods_come_from_a_url_and_stay_while_it_is_away() {
    sandbox(Policy::default(), async |sandbox| {
        let url = FakeManifestUrl::new("http://manifests.test/pods");
        let world = World { url: Some(url.clone()), ..world(27) };
        world.manifest("file.yaml", &pod("file", "", ""));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the file's pod to run", |pods| phase(pods, "file", "Running")).await;
        let manifest = |event: &messages::event_recorder::RecordedEvent| match &event.object {
            EventObject::Manifest { path } => Some((path.to_string(), event.message.to_string())),
            _ => None,
        };
        let told: Vec<_> = node.events().await.iter().filter_map(manifest).collect();
        assert!(told.len() == 1 && told[0].0 == "http://manifests.test/pods", "{told:?}");
        url.serve(&pod("one", "", ""));
        node.until("the URL's pod to run", |pods| phase(pods, "one", "Running")).await;
        let list = "apiVersion: v1\nkind: PodList\nitems:\n";
        let item = |name: &str| {
            pod(name, "", "").lines().enumerate().fold(String::new(), |text, (number, line)| {
                format!("{text}{}{line}\n", if number == 0 { "- " } else { "  " })
            })
        };
        url.serve(&format!("{list}{}{}", item("two"), item("file")));
        node.until("the list's pod to run", |pods| {
            phase(pods, "two", "Running") && !pods.contains_key("one")
        })
        .await;
        assert!(phase(&node.by_name().await, "file", "Running"), "the file was first to name it");
        for away in [
            |url: &FakeManifestUrl| url.stop(),
            |url: &FakeManifestUrl| url.fail("500 Internal Server Error"),
        ] {
            away(&url);
            sandbox.pass(Duration::from_secs(120)).await;
            assert!(phase(&node.by_name().await, "two", "Running"));
        }
        // Even a new kubelet does not take an API server without an answer for an empty list.
        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::StopContainer), Some(&1), "only one was stopped");
        url.serve("");
        node.until("the URL's pods to be gone", |pods| pods.len() == 1 && phase(pods, "file", "Running"))
            .await;
        node.stop().await;
    });
}
