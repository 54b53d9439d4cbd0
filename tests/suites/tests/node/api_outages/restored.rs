//! etcd is restored to an earlier time: versions go back, deleted objects exist again, and new ones are gone.

use bridge_kube::Patch;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use serde_json::json;
use supervision::Policy;
use testkit::node::NODE;
use testkit::sandbox;

use super::scene::{BACK_WITHIN, MINUTE, NS, Scene, pod, until};

fn uids(scene: &Scene, name: &str) -> Vec<String> {
    let sandboxes = scene.world.runtime.sandboxes();
    let of = sandboxes.into_iter().filter_map(|sandbox| sandbox.metadata);
    of.filter(|meta| meta.name == name).map(|meta| meta.uid).collect()
}

#[test]
fn a_server_put_back_to_an_earlier_time_is_believed() {
    sandbox(Policy::default(), async |sandbox| {
        let mut scene = Scene::settled(sandbox, 131).await;
        let old = scene.api.get::<Pod>(NS, "other").and_then(|pod| pod.metadata.uid).expect("a UID");
        // In the backup there is a bound pod that the kubelet has not been told of yet.
        scene.api.set_paused(true);
        let early = scene.api.put(&pod("early")).metadata.uid.expect("a UID");
        let backup = scene.api.backup();
        scene.api.set_paused(false);
        scene.until_ready("early").await;
        // After the backup one pod is deleted for good, one is created, and other writers' and our writes raise the
        // version.
        scene.api.delete::<Pod>(NS, "other", None);
        until("the other one to be gone", || scene.api.get::<Pod>(NS, "other").is_none()).await;
        scene.api.put(&pod("late"));
        scene.until_ready("late").await;
        for n in 0..500 {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": { "name": "busy", "namespace": "default" }, "data": { "n": n.to_string() }
            }))
            .expect("a config map");
            scene.api.put(&map);
        }
        scene.api.change::<Node>(
            None,
            NODE,
            None,
            &Patch::Merge(json!({"metadata": {"labels": {"theirs": "x"}}})),
        );
        sandbox.pass(6 * MINUTE).await;
        scene.mark();

        scene.api.set_down(true);
        scene.api.restore(&backup);
        sandbox.pass(MINUTE).await;
        scene.api.set_down(false);
        // Pods from before the backup are not disturbed, pods that the server has lost end, and pods that it has again
        // start.
        until("the late one to end", || uids(&scene, "late").is_empty()).await;
        until("the deleted one to run again", || uids(&scene, "other") == [old.clone()]).await;
        for name in ["web", "early", "other", "fixed-node"] {
            scene.until_ready(name).await;
        }
        assert_eq!(uids(&scene, "early"), [early]);
        sandbox.pass(MINUTE).await;
        assert!(scene.is_node_ready());
        let running = scene.world.runtime.containers();
        let of = |name: &str| {
            let named = |c: &&bridge_cri::wire::ContainerStatus| {
                c.labels.get("io.kubernetes.pod.name").is_some_and(|label| label == name)
            };
            running.iter().filter(named).count()
        };
        assert_eq!((of("web"), of("early"), of("other"), of("late")), (1, 1, 1, 0));
        // The versions are far below those from before, and the kubelet takes all news in all the same.
        scene.assert_serves("new", BACK_WITHIN).await;
        scene.api.delete::<Pod>(NS, "early", None);
        until("the early one to be gone", || scene.api.get::<Pod>(NS, "early").is_none()).await;
        let drift = Patch::Strategic(json!({"status": {"phase": "Pending"}}));
        scene.api.change::<Pod>(NS, "web", Some("status"), &drift);
        let phase = || scene.api.get::<Pod>(NS, "web").and_then(|pod| pod.status?.phase);
        until("the phase to be right", || phase().as_deref() == Some("Running")).await;
        sandbox.pass(10 * MINUTE).await;
        assert!(scene.is_node_ready());
        scene.assert_calm(
            "put back to an earlier time",
            &[(bridge_kube::fake::Verb::Get, "/readyz", 12.0)],
            8.0,
        );
        scene.end().await;
    });
}

#[test]
fn a_node_that_the_server_never_had_registers_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = super::scene::clustered(132);
        let empty = api.backup();
        let node = testkit::node::FakeNode::start(sandbox, &world, &super::scene::member().await);
        until("the mirror", || api.get::<Pod>(NS, "fixed-node").is_some()).await;
        sandbox.pass(MINUTE).await;
        let containers = world.runtime.containers();
        let first = api.get::<Node>(None, NODE).and_then(|node| node.metadata.uid);
        api.set_down(true);
        api.restore(&empty);
        sandbox.pass(MINUTE).await;
        api.set_down(false);
        until("the Node", || api.get::<Node>(None, NODE).is_some()).await;
        until("the mirror to be back", || api.get::<Pod>(NS, "fixed-node").is_some()).await;
        let second = api.get::<Node>(None, NODE).and_then(|node| node.metadata.uid);
        assert_ne!(first, second);
        sandbox.pass(MINUTE).await;
        let owner = api
            .get::<Pod>(NS, "fixed-node")
            .and_then(|pod| Some(pod.metadata.owner_references?[0].uid.clone()));
        assert_eq!(owner, second);
        assert_eq!(world.runtime.containers(), containers, "the static pod has not noticed");
        node.stop().await;
    });
}
