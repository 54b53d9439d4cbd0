//! Dead containers: how many are kept, and the event when they cannot be removed.

use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::{CriErrorKind, Rpc};
use messages::garbage_collector::CollectNow;
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::sandbox;

use crate::life::world;
use crate::pods::job;

#[test]
fn the_node_keeps_as_many_dead_containers_as_it_may() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(51);
        for name in ["one", "two", "three"] {
            world.manifest(&format!("{name}.yaml"), &job(name));
        }
        let mut settings = settings();
        settings.garbage.containers_max = Some(1);
        let node = FakeNode::start(sandbox, &world, &settings);
        let succeeded =
            |pods: &std::collections::BTreeMap<_, std::sync::Arc<k8s_openapi::api::core::v1::PodStatus>>| {
                pods.len() == 3 && pods.values().all(|status| status.phase.as_deref() == Some("Succeeded"))
            };
        node.until("three jobs to succeed", succeeded).await;
        sandbox.pass(Duration::from_secs(70)).await;
        assert_eq!(world.runtime.containers().len(), 1, "{:?}", world.runtime.containers());
        // Their ends are remembered without them: no container runs again.
        let node = node.restart(&settings, Policy::default()).await;
        sandbox.pass(Duration::from_secs(130)).await;
        node.until("three jobs to have succeeded", succeeded).await;
        assert_eq!(world.runtime.counts().get(&Rpc::CreateContainer), Some(&3));
        node.stop().await;
    });
}

#[test]
fn what_cannot_be_removed_is_told_and_tried_again() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(52);
        world.manifest("one.yaml", &job("one"));
        let mut settings = settings();
        settings.garbage.per_container_max = Some(0);
        let node = FakeNode::start(sandbox, &world, &settings);
        let refuses = Fault::Error(CriErrorKind::Other, "device busy".to_owned());
        world.runtime.fault(Rpc::RemoveContainer, 1, refuses);
        node.until("the job to succeed", |pods| {
            pods.get("one").is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        })
        .await;
        sandbox.pass(Duration::from_secs(5)).await;
        let _ = node.node.collect.tell(CollectNow);
        sandbox.pass(Duration::from_secs(1)).await;
        let events = node.events().await;
        let failed = events.iter().find(|event| &*event.reason == "ContainerGCFailed");
        let message = failed.map(|event| event.message.to_string()).unwrap_or_default();
        assert!(message.contains("container main of") && message.contains("device busy"), "{events:?}");
        assert_eq!(world.runtime.containers().len(), 1);
        sandbox.pass(Duration::from_secs(61)).await;
        assert_eq!(world.runtime.containers().len(), 0);
        node.stop().await;
    });
}
