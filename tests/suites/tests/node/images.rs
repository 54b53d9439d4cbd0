//! Images: credentials, and pulls that no pod waits for any more.

use std::time::Duration;

use bridge_cri::fake::RegistryImage;
use k8s_openapi::api::core::v1::PodStatus;
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::sandbox;

use crate::life::world;

const IMAGE: &str = "registry.test:5000/team/app:1";
const CONFIG: &str = "/var/lib/kubelet/config.json";

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: main, image: \"{IMAGE}\", imagePullPolicy: IfNotPresent, command: [serve]}}]
"
    )
}

fn waits_for(status: &PodStatus, reasons: &[&str]) -> bool {
    status.container_statuses.iter().flatten().any(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.and_then(|waiting| waiting.reason.as_deref()).is_some_and(|reason| reasons.contains(&reason))
    })
}

#[test]
fn credentials_are_read_again_when_their_file_changes() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(41);
        let credentials = Some(("me".to_owned(), "hush".to_owned()));
        world.runtime.publish(IMAGE, RegistryImage { credentials, ..RegistryImage::default() });
        world.disk.write(CONFIG, "no JSON at all: hush", 0o600);
        world.manifest("private.yaml", &pod("private"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the image to be refused", |pods| {
            pods.get("private").is_some_and(|status| waits_for(status, &["ErrImagePull"]))
        })
        .await;
        let tree = format!("{:?}", node.tree.snapshot().await);
        assert!(tree.contains("config.json is passed over") && !tree.contains("hush"), "{tree}");
        // Several that fit are tried in turn.
        let auths = r#"{"auths": {
            "registry.test:5000/team": {"username": "me", "password": "wrong"},
            "*.test:5000": {"username": "me", "password": "hush"}}}"#;
        world.disk.write(CONFIG, auths, 0o600);
        let running = |status: &PodStatus| status.phase.as_deref() == Some("Running");
        node.until("private to run", |pods| pods.get("private").is_some_and(|status| running(status))).await;
        let events = node.events().await;
        assert!(!format!("{events:?}").contains("hush"), "{events:?}");
        node.stop().await;
    });
}

#[test]
fn a_pull_goes_on_as_long_as_somebody_waits_for_it() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(42);
        let takes = Duration::from_secs(3600);
        world.runtime.publish(IMAGE, RegistryImage { takes, ..RegistryImage::default() });
        world.manifest("one.yaml", &pod("one"));
        world.manifest("other.yaml", &pod("other"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("both to wait", |pods| {
            ["one", "other"]
                .iter()
                .all(|name| pods.get(*name).is_some_and(|status| waits_for(status, &["ContainerCreating"])))
        })
        .await;
        let pulls = || node.node.operations.pulls_in_flight().len();
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(pulls(), 1, "one pull for both");
        world.remove_manifest("one.yaml");
        node.until("one to be gone", |pods| !pods.contains_key("one")).await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(pulls(), 1, "the other still waits");
        world.remove_manifest("other.yaml");
        node.until("both to be gone", |pods| pods.is_empty()).await;
        sandbox.pass(Duration::from_secs(20)).await;
        assert_eq!(pulls(), 0, "nobody waits");
        node.until_empty().await;
        node.stop().await;
    });
}

#[test]
fn a_pod_says_once_that_it_pulls_however_often_it_asks() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(43);
        let takes = Duration::from_secs(100);
        world.runtime.publish(IMAGE, RegistryImage { takes, ..RegistryImage::default() });
        world.manifest("slow.yaml", &pod("slow"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("slow to run", |pods| {
            pods.get("slow").is_some_and(|status| status.phase.as_deref() == Some("Running"))
        })
        .await;
        let events = node.events().await;
        let about = |reason: &str| -> Vec<String> {
            let fitting = events.iter().filter(|event| &*event.reason == reason);
            fitting.map(|event| format!("{} x{}", event.message, event.count)).collect()
        };
        assert_eq!(about("Pulling"), [format!("Pulling image \"{IMAGE}\" x1")]);
        let pulled = about("Pulled");
        let said = format!("Successfully pulled image \"{IMAGE}\" in 1m40");
        assert!(pulled.len() == 1 && pulled[0].starts_with(&said), "{pulled:?}");
        node.stop().await;
    });
}

#[test]
fn containers_start_in_order_also_while_an_image_is_on_its_way() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(44);
        let takes = Duration::from_secs(100);
        world.runtime.publish(IMAGE, RegistryImage { takes, ..RegistryImage::default() });
        let quick = "registry.test:5000/team/quick:1";
        world.runtime.publish(quick, RegistryImage::default());
        let second = format!(
            "  - {{name: second, image: \"{quick}\", imagePullPolicy: IfNotPresent, command: [serve]}}\n"
        );
        let first = format!(
            "\n  - {{name: first, image: \"{IMAGE}\", imagePullPolicy: IfNotPresent, command: [serve]}}\n"
        );
        let manifest = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: ordered}}\nspec:\n  terminationGracePeriodSeconds: 1\n  \
             containers: {first}{second}"
        );
        world.manifest("ordered.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        let started = |status: &PodStatus| {
            let of = |name: &str| {
                let found =
                    status.container_statuses.iter().flatten().find(|container| container.name == name);
                found.and_then(|container| {
                    Some(container.state.as_ref()?.running.as_ref()?.started_at.clone()?.0)
                })
            };
            (of("first"), of("second"))
        };
        sandbox.pass(Duration::from_secs(50)).await;
        let now = node.by_name().await;
        assert_eq!(
            started(&now["ordered"]),
            (None, None),
            "the second has its image and waits for the first"
        );
        node.until("both to run", |pods| {
            pods.get("ordered").is_some_and(|status| matches!(started(status), (Some(_), Some(_))))
        })
        .await;
        let (first, second) = started(&node.by_name().await["ordered"]);
        assert!(first <= second, "{first:?} {second:?}");
        node.stop().await;
    });
}
