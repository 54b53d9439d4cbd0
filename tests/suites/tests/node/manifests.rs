//! Manifests that are wrong, or have become wrong.

use std::time::Duration;

use bridge_cri::Rpc;
use messages::event_recorder::RecordedEvent;
use supervision::Policy;
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::web;

/// Fields that no Pod has are reported, and the pod of a manifest that becomes wrong is removed by a listing, not
/// before.
#[test]
fn manifests_are_read_as_upstream_reads_them() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(64);
        let manifest = web("web");
        world.manifest("web.yaml", &manifest.replace("spec:", "spec:\n  hostnetwork: true"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
        let told = node.events().await;
        let ignored: Vec<_> = told.iter().filter(|event| &*event.reason == "IgnoredFields").collect();
        assert_eq!(ignored.len(), 1, "{told:?}");
        let message = "web.yaml: spec.hostnetwork: unknown field with the value true";
        assert!(ignored[0].message.ends_with(message), "{}", ignored[0].message);
        // The file is written in two steps.
        world.manifest("web.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: w");
        sandbox.pass(Duration::from_secs(1)).await;
        world.manifest("web.yaml", &manifest);
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&1), "nobody has noticed");
        world.manifest("web.yaml", "no longer: [a manifest");
        sandbox.pass(Duration::from_secs(1)).await;
        assert_eq!(node.by_name().await.len(), 1, "a listing comes every 20 s");
        node.until_empty().await;
        world.manifest("web.yaml", &manifest);
        node.until("it to be Ready again", |pods| pods.get("web").is_some_and(|status| is_ready(status)))
            .await;
        node.stop().await;
    });
}

/// A path that is itself a file is not listed: while the file is wrong, nothing is known of its pod.
#[test]
fn a_path_that_is_a_wrong_file_ends_no_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(70);
        world.manifest("web.yaml", &web("web"));
        let mut settings = settings();
        settings.static_pod_path = settings.static_pod_path.map(|path| path.join("web.yaml"));
        let node = FakeNode::start(sandbox, &world, &settings);
        node.until("it to be Ready", |pods| pods.get("web").is_some_and(|status| is_ready(status))).await;
        world.manifest("web.yaml", "no longer: [a manifest");
        sandbox.pass(Duration::from_secs(90)).await;
        assert!(node.by_name().await.contains_key("web"));
        let events = node.events().await;
        let told = |event: &RecordedEvent| {
            &*event.reason == "FailedValidation" && event.message.contains("web.yaml")
        };
        assert!(events.iter().any(told), "{events:?}");
        let node = node.restart(&settings, Policy::default()).await;
        sandbox.pass(Duration::from_secs(90)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::StopContainer), None);
        world.manifest("web.yaml", &web("web"));
        node.until("it to be Ready as before", |pods| pods.get("web").is_some_and(|status| is_ready(status)))
            .await;
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&1));
        node.stop().await;
    });
}
