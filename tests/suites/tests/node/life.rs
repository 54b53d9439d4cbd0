//! The life of pods on a node where everything works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::{Behaviour, Match};
use k8s_openapi::api::core::v1::PodStatus;
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::sandbox;

use crate::pods::{job, web};

/// A world whose containers do what their commands say.
pub fn world(seed: u64) -> World {
    let world = World::new(seed);
    world.runtime.behave(Match::Any, vec![Behaviour::forever()]);
    world
        .runtime
        .behave(Match::Command("prepare".to_owned()), vec![Behaviour::exits(Duration::from_millis(200), 0)]);
    world.runtime.behave(Match::Command("job".to_owned()), vec![Behaviour::exits(Duration::from_secs(2), 0)]);
    world
}

#[test]
fn a_pod_becomes_ready_and_leaves_nothing_behind() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(1);
        world.manifest("web.yaml", &web("web"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("web to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
        let status = node.by_name().await["web"].clone();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert!(status.pod_ip.is_some());
        assert_eq!(world.runtime.sandboxes().len(), 1);
        assert_eq!(world.runtime.containers().len(), 3);
        world.remove_manifest("web.yaml");
        node.until_empty().await;
        node.until("web to be forgotten", |pods| pods.is_empty()).await;
    });
}

#[test]
fn a_new_pod_waits_for_a_runtime_that_comes_later() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(3);
        world.manifest("web.yaml", &web("web"));
        let ready = |name: &'static str| {
            move |pods: &BTreeMap<String, Arc<PodStatus>>| {
                pods.get(name).is_some_and(|status| is_ready(status))
            }
        };
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("web to be Ready", ready("web")).await;
        world.runtime.set_down(true);
        world.manifest("new.yaml", &web("new"));
        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(20)).await;
        world.runtime.set_down(false);
        node.until("both to be Ready", |pods| ready("web")(pods) && ready("new")(pods)).await;
        assert_eq!(world.runtime.sandboxes().len(), 2);
        node.stop().await;
    });
}

#[test]
fn a_finished_job_does_not_run_again_after_a_restart_of_the_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(2);
        world.manifest("job.yaml", &job("job"));
        let succeeded = |pods: &BTreeMap<String, Arc<PodStatus>>| {
            pods.get("job").is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        };
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the job to succeed", succeeded).await;
        assert_eq!(world.runtime.containers().len(), 1);
        let node = node.restart(&settings(), Policy::default()).await;
        node.until("the job to have succeeded", succeeded).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::CreateContainer), Some(&1), "it ran once");
        node.stop().await;
    });
}

#[test]
fn a_restarted_kubelet_adopts_everything_and_changes_nothing() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(3);
        for n in 0..50 {
            world.manifest(&format!("{n}.yaml"), &web(&format!("web{n}")));
        }
        let all_ready = |pods: &BTreeMap<String, Arc<PodStatus>>| {
            pods.len() == 50 && pods.values().all(|status| is_ready(status))
        };
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("50 pods to be Ready", all_ready).await;
        sandbox.pass(Duration::from_secs(30)).await;
        let (before, made) = (node.statuses().await, world.runtime.counts());
        let node = node.restart(&settings(), Policy::default()).await;
        node.until("50 pods to be Ready again", all_ready).await;
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(node.statuses().await, before, "no status has changed");
        let changed = world.runtime.counts();
        for rpc in [Rpc::RunPodSandbox, Rpc::CreateContainer, Rpc::StartContainer, Rpc::StopContainer] {
            assert_eq!(changed.get(&rpc), made.get(&rpc), "{rpc:?}");
        }
        node.stop().await;
    });
}

#[test]
fn a_restarted_container_beside_a_running_one_shows_its_new_run() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(4);
        let once = Behaviour::exits(Duration::from_secs(2), 0);
        world.runtime.behave(Match::Command("flaky".to_owned()), vec![once, Behaviour::forever()]);
        let image = testkit::node::IMAGE;
        world.manifest(
            "two.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: two}}
spec:
  containers:
  - name: a
    image: {image}
    command: [flaky]
    imagePullPolicy: IfNotPresent
    readinessProbe: {{exec: {{command: [ready]}}, periodSeconds: 1}}
  - {{name: b, image: {image}, imagePullPolicy: IfNotPresent, command: [serve]}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("a's second run to show", |pods| {
            let containers =
                pods.get("two").into_iter().flat_map(|status| status.container_statuses.iter().flatten());
            let mut a = containers.filter(|container| container.name == "a");
            a.any(|a| a.restart_count == 1 && a.state.as_ref().is_some_and(|state| state.running.is_some()))
        })
        .await;
    });
}
