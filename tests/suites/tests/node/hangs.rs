//! A disk that does not answer: waits for it are reported and given up, the subsystem recovers, and other pods are not
//! affected (row 30.2).

use std::time::Duration;

use supervision::{ActorReport, EventKind, Policy};
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::{Sandbox, sandbox};

use crate::life::world;

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"
    )
}

async fn until_ready(node: &FakeNode, name: &'static str) {
    node.until(name, |pods| pods.get(name).is_some_and(|status| is_ready(status))).await;
}

/// The actor of this name, or of this kind if there is only one.
async fn report(sandbox: &Sandbox, actor: &str) -> ActorReport {
    let actors = sandbox.tree.snapshot().await.actors;
    actors.into_iter().find(|one| one.name == actor || one.kind == actor).expect("such an actor")
}

async fn overdue(sandbox: &Sandbox, name: &str) -> Vec<(u64, bool)> {
    let events = sandbox.events().await.into_iter();
    events
        .filter_map(|event| match event.what {
            EventKind::EffectOverdue { effect, pod, seconds } if effect == name => {
                Some((seconds, pod.is_some()))
            }
            _ => None,
        })
        .collect()
}

async fn hung(sandbox: &Sandbox, world: &World) {
    sandbox.until("the disk to hang", || !world.disk.hung().is_empty()).await;
}

#[test]
fn a_mount_that_never_ends_is_let_go_and_other_pods_go_on() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(21);
        world.disk.hang("make_empty_dir");
        world.manifest("stuck.yaml", &pod("stuck"));
        let node = FakeNode::start(sandbox, &world, &settings());
        hung(sandbox, &world).await;
        world.manifest("fine.yaml", &pod("fine"));
        until_ready(&node, "fine").await;
        let volumes = report(sandbox, "VolumeManager").await;
        let shown: Vec<_> = volumes.effects.iter().map(|effect| (effect.name, effect.overdue)).collect();
        assert_eq!(shown, [("mount volumes", false)]);
        assert!(volumes.effects[0].pod.is_some(), "it says for which pod: {volumes:?}");

        sandbox.pass(Duration::from_secs(320)).await;
        let volumes = report(sandbox, "VolumeManager").await;
        assert_eq!(
            (volumes.restarts, volumes.effects_overdue),
            (0, 0),
            "the volume is let go, not the actor"
        );
        let pods = node.by_name().await;
        assert!(is_ready(&pods["fine"]) && !is_ready(&pods["stuck"]));
        world.manifest("later.yaml", &pod("later"));
        until_ready(&node, "later").await;

        world.disk.go_on();
        until_ready(&node, "stuck").await;
        let restarts: u64 = sandbox.tree.snapshot().await.actors.iter().map(|actor| actor.restarts).sum();
        assert_eq!(restarts, 0);
        node.stop().await;
    });
}

#[test]
fn a_removal_that_never_ends_is_its_pods_worker_s_matter_alone() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(22);
        world.manifest("stuck.yaml", &pod("stuck"));
        world.manifest("fine.yaml", &pod("fine"));
        let node = FakeNode::start(sandbox, &world, &settings());
        until_ready(&node, "stuck").await;
        until_ready(&node, "fine").await;
        world.disk.hang("remove_pod_log_dir");
        world.remove_manifest("stuck.yaml");
        hung(sandbox, &world).await;
        sandbox.pass(Duration::from_secs(3700)).await;
        assert_eq!(overdue(sandbox, "release").await, [(3600, true)]);
        let actors = sandbox.tree.snapshot().await.actors;
        let restarted: Vec<_> =
            actors.iter().filter(|actor| actor.restarts > 0).map(|actor| actor.kind).collect();
        assert_eq!(restarted, ["PodWorker"]);
        assert!(is_ready(&node.by_name().await["fine"]));

        world.disk.go_on();
        node.until("stuck to be forgotten", |pods| !pods.contains_key("stuck")).await;
        let logs = || world.disk.children("/var/log/pods").len();
        sandbox.until("its logs to be gone", || logs() == 1).await;
        node.stop().await;
    });
}
