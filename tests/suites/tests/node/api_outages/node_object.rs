//! Other writers delete the Node, or change it.

use std::time::Duration;

use bridge_kube::Patch;
use bridge_kube::fake::Verb;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use supervision::Policy;
use testkit::node::NODE;
use testkit::sandbox;

use super::scene::{MINUTE, Scene, until};

#[test]
fn a_node_that_is_deleted_again_and_again_is_there_again_and_its_pods_run_on() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 141).await;
        let uid = || scene.api.get::<Node>(None, NODE).and_then(|node| node.metadata.uid);
        for _ in 0..10 {
            let first = uid();
            assert!(scene.api.delete::<Node>(None, NODE, None));
            until("another Node", || uid().is_some_and(|uid| Some(uid) != first)).await;
            until("the Node to be Ready", || scene.is_node_ready()).await;
            sandbox.pass(Duration::from_secs(30)).await;
            let lease = scene.api.get::<Lease>(Some("kube-node-lease"), NODE).expect("a lease");
            assert_eq!(lease.metadata.owner_references.map(|owners| owners[0].uid.clone()), uid());
        }
        scene.assert_nothing_new();
        scene.assert_calm("a Node deleted twice a minute", &[(Verb::Create, "events", 16.0)], 14.0);
        scene.end().await;
    });
}

#[test]
fn what_others_write_into_the_node_stays() {
    sandbox(Policy::default(), async |sandbox| {
        let scene = Scene::settled(sandbox, 142).await;
        let theirs = json!({
            "metadata": {"labels": {"theirs": "l"}, "annotations": {"theirs": "a"}},
            "spec": {"unschedulable": true, "taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        });
        scene.api.change::<Node>(None, NODE, None, &Patch::Merge(theirs));
        let condition =
            json!({"type": "example.com/Theirs", "status": "True", "reason": "r", "message": "m"});
        let status = json!({"status": {"conditions": [condition]}});
        scene.api.change::<Node>(None, NODE, Some("status"), &Patch::Strategic(status));
        // The kubelet's own conditions are restored.
        let ours =
            json!({"type": "Ready", "status": "False", "reason": "r", "message": "somebody else says so"});
        let status = json!({"status": {"conditions": [ours]}});
        scene.api.change::<Node>(None, NODE, Some("status"), &Patch::Strategic(status));
        let no_labels = json!({"metadata": {"labels": {"kubernetes.io/os": null}}});
        scene.api.change::<Node>(None, NODE, None, &Patch::Merge(no_labels));
        sandbox.pass(10 * MINUTE).await;
        let node = scene.api.get::<Node>(None, NODE).expect("the Node");
        let labels = node.metadata.labels.unwrap_or_default();
        assert_eq!(labels.get("theirs").map(String::as_str), Some("l"));
        assert_eq!(
            node.metadata.annotations.unwrap_or_default().get("theirs").map(String::as_str),
            Some("a")
        );
        let spec = node.spec.expect("a spec");
        assert_eq!((spec.unschedulable, spec.taints.map(|taints| taints.len())), (Some(true), Some(1)));
        assert!(scene.node_condition("example.com/Theirs").is_some_and(|(status, _)| status == "True"));
        assert!(scene.is_node_ready(), "{:?}", scene.node_condition("Ready"));
        assert_eq!(scene.events(NODE, "NodeNotSchedulable").len(), 1);
        scene.assert_nothing_new();
        scene.assert_calm("a Node that others edit", &[], 7.0);
        scene.end().await;
    });
}
