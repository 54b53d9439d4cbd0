//! Containers that cannot be configured as their pods demand.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::RegistryImage;
use k8s_openapi::api::core::v1::PodStatus;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, settings};
use testkit::sandbox;

use crate::life::world;

const NAMED: &str = "example.com/named:1";

/// Reason and message with which a container waits.
fn waiting(status: &PodStatus, container: &str) -> Option<(String, String)> {
    let statuses = status.container_statuses.iter().flatten();
    let waiting = statuses
        .filter(|status| status.name == container)
        .find_map(|status| status.state.as_ref()?.waiting.clone())?;
    Some((waiting.reason?, waiting.message?))
}

#[test]
fn who_must_not_be_root_waits_and_holds_nobody_up() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(1);
        let named = RegistryImage { username: "nobody".to_owned(), ..RegistryImage::default() };
        world.runtime.add_image(NAMED, named);
        world.manifest(
            "pod.yaml",
            &format!(
                "apiVersion: v1
kind: Pod
metadata: {{name: pod}}
spec:
  securityContext: {{runAsNonRoot: true}}
  containers:
  - {{name: root, image: {IMAGE}, imagePullPolicy: IfNotPresent}}
  - {{name: named, image: {NAMED}, imagePullPolicy: IfNotPresent}}
  - {{name: other, image: {IMAGE}, imagePullPolicy: IfNotPresent, securityContext: {{runAsUser: 7}}}}
"
            ),
        );
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("two refusals beside a container that runs", |pods| {
            pods.get("pod").is_some_and(|status| {
                let others = status.container_statuses.iter().flatten();
                let mut running =
                    others.filter(|other| other.state.as_ref().is_some_and(|s| s.running.is_some()));
                running.any(|other| other.name == "other")
                    && ["root", "named"].iter().all(|name| {
                        waiting(status, name)
                            .is_some_and(|(reason, _)| reason == "CreateContainerConfigError")
                    })
            })
        })
        .await;
        let status = node.by_name().await["pod"].clone();
        let of = |name: &str| waiting(&status, name).expect("it waits").1;
        let root = "container has runAsNonRoot and image will run as root (pod: \"pod-node_default(";
        assert!(
            of("root").starts_with(root) && of("root").ends_with(")\", container: root)"),
            "{}",
            of("root")
        );
        let name = "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root";
        assert!(of("named").starts_with(name), "{}", of("named"));
        let events = node.events().await;
        let told = events.iter().any(|event| *event.message == *format!("Error: {}", of("root")));
        assert!(told, "{events:?}");
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(world.runtime.counts().get(&Rpc::CreateContainer), Some(&1), "only the one that may run");
        world.remove_manifest("pod.yaml");
        node.until_empty().await;
    });
}
