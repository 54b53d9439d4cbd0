//! A node with a cluster in its world.

use std::time::Duration;

use bridge_io::Io;
use bridge_io::clock::Clock;
use k8s_openapi::api::core::v1::ConfigMap;
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::sandbox;

use crate::life::world;

#[test]
fn a_cluster_shares_the_clock_of_its_world_and_outlives_the_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(7).with_api();
        let api = world.api.clone().expect("a cluster");
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(3600)).await;
        let mut map = ConfigMap::default();
        map.metadata.name = Some("c".to_owned());
        map.metadata.namespace = Some("default".to_owned());
        let made = api.client(&Io::current()).create(&map).await.expect("made");
        let made_at = made.metadata.creation_timestamp.expect("a time").0;
        assert_eq!(made_at.as_second(), world.clock.now().as_second());
        let node = node.restart(&settings(), Policy::default()).await;
        assert!(api.get::<ConfigMap>(Some("default"), "c").is_some());
        node.stop().await;
    });
}
