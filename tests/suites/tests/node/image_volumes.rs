//! Images as volumes (row 6.8): had like the images of containers, and mounted by the runtime.

use std::time::Duration;

use bridge_cri::CriErrorKind;
use bridge_cri::fake::RegistryImage;
use bridge_cri::wire::Mount;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use kubelet::wiring::Settings;
use messages::event_recorder::EventObject;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

const FILES: &str = "registry.test:5000/team/files:1";

/// A pod with two volumes of one image; of its containers `main` mounts both, `side` one, and `plain` none.
fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    volumeMounts:
    - {{name: files, mountPath: /files}}
    - {{name: more, mountPath: /part, subPath: a/b}}
  - name: side
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    volumeMounts: [{{name: more, mountPath: /files}}]
  - {{name: plain, image: \"{IMAGE}\", imagePullPolicy: IfNotPresent, command: [serve]}}
  volumes:
  - {{name: files, image: {{reference: \"{FILES}\", pullPolicy: IfNotPresent}}}}
  - {{name: more, image: {{reference: \"{FILES}\", pullPolicy: IfNotPresent}}}}
"
    )
}

fn plain(name: &str) -> String {
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

fn of<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == name)
}

fn is_running(status: &PodStatus, name: &str) -> bool {
    let state = of(status, name).and_then(|container| container.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

/// The reason and message of a container that waits.
fn waiting(status: &PodStatus, name: &str) -> (String, String) {
    let state = of(status, name).and_then(|container| container.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.clone()).unwrap_or_default();
    (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default())
}

/// The image mounts of the containers of this name.
fn mounts(world: &World, container: &str) -> Vec<Mount> {
    let all = world.runtime.containers();
    let own = all
        .into_iter()
        .filter(|found| found.metadata.as_ref().is_some_and(|metadata| metadata.name == container));
    own.flat_map(|found| found.mounts).filter(|mount| mount.image.is_some()).collect()
}

/// The events about the pod with this reason: field path and message.
async fn told(node: &FakeNode, reason: &str) -> Vec<(String, String)> {
    let events = node.events().await;
    let about = events.into_iter().filter(|event| &*event.reason == reason);
    let told = about.filter_map(|event| {
        let EventObject::Pod { field_path, .. } = &event.object else { return None };
        Some((field_path.to_string(), event.message.to_string()))
    });
    told.collect()
}

async fn ready(node: &FakeNode, name: &'static str) {
    node.until("the pod to be Ready", move |pods| pods.get(name).is_some_and(|status| is_ready(status)))
        .await;
}

#[test]
fn the_runtime_mounts_an_image_that_was_pulled_once_for_all_volumes() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(45);
        world.runtime.publish(FILES, RegistryImage::default());
        world.manifest("files.yaml", &pod("files"));
        let node = FakeNode::start(sandbox, &world, &Settings { image_volume_digests: true, ..settings() });
        ready(&node, "files").await;
        assert_eq!(world.runtime.pulls().len(), 1);
        let (main, side) = (mounts(&world, "main"), mounts(&world, "side"));
        let image = main[0].image.clone().expect("an image");
        assert!(image.image.starts_with("sha256:") && image.user_specified_image == FILES, "{image:?}");
        let shown = |mount: &Mount| (mount.container_path.clone(), mount.image_sub_path.clone());
        let shown: Vec<_> = main.iter().chain(&side).map(shown).collect();
        let expected = [("/files", ""), ("/part", "a/b"), ("/files", "")];
        assert_eq!(shown, expected.map(|(path, part)| (path.to_owned(), part.to_owned())));
        for mount in main.iter().chain(&side) {
            assert_eq!(
                (mount.image.as_ref(), mount.host_path.as_str(), mount.readonly),
                (Some(&image), "", true)
            );
        }
        assert!(mounts(&world, "plain").is_empty() && world.disk.mounts().is_empty());
        let about_pod = (String::new(), format!("Pulling image \"{FILES}\""));
        assert_eq!(told(&node, "Pulling").await, [about_pod]);
        let status = node.by_name().await["files"].clone();
        let tells = |name: &str| -> Vec<Option<String>> {
            let mounts = of(&status, name).and_then(|container| container.volume_mounts.clone());
            let image = |mount: k8s_openapi::api::core::v1::VolumeMountStatus| {
                Some(mount.volume_status?.image?.image_ref)
            };
            mounts.into_iter().flatten().map(image).collect()
        };
        let told = Some(image.image.clone());
        assert_eq!((tells("main"), tells("side")), (vec![told.clone(), told.clone()], vec![told]));
        world.remove_manifest("files.yaml");
        node.until_empty().await;
        node.until("the pod to be forgotten", |pods| pods.is_empty()).await;
    });
}

#[test]
fn a_volumes_image_that_cannot_be_had_keeps_those_that_mount_it_waiting() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(46);
        let error = Some((CriErrorKind::Other, "no such registry".to_owned()));
        world.runtime.publish(FILES, RegistryImage { error, ..RegistryImage::default() });
        world.manifest("files.yaml", &pod("files"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let waits = |reason: &'static str| {
            move |status: &PodStatus| ["main", "side"].iter().all(|name| waiting(status, name).0 == reason)
        };
        let backs_off = waits("ImagePullBackOff");
        node.until("both to back off", |pods| pods.get("files").is_some_and(|status| backs_off(status)))
            .await;
        let status = node.by_name().await["files"].clone();
        assert!(is_running(&status, "plain"), "it mounts none");
        let (_, message) = waiting(&status, "main");
        let said = format!("Back-off pulling image \"{FILES}\": ErrImagePull: ");
        assert!(message.starts_with(&said) && message.contains("no such registry"), "{message}");
        let failed = told(&node, "Failed").await;
        let about = |path: &str, begins: &str| {
            failed.iter().any(|(about, message)| about == path && message.starts_with(begins))
        };
        assert!(about("", &format!("Failed to pull image \"{FILES}\": ")), "{failed:?}");
        assert!(about("spec.containers{main}", "Error: ErrImagePull"), "{failed:?}");
        assert!(about("spec.containers{side}", "Error: ImagePullBackOff"), "{failed:?}");
        world.runtime.publish(FILES, RegistryImage::default());
        ready(&node, "files").await;
        node.stop().await;
    });
}

#[test]
fn a_volumes_image_that_takes_long_holds_up_its_pod_alone_and_is_pulled_once_over_crashes() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(47);
        let takes = Duration::from_secs(100);
        world.runtime.publish(FILES, RegistryImage { takes, ..RegistryImage::default() });
        world.manifest("slow.yaml", &pod("slow"));
        let node = FakeNode::start(sandbox, &world, &settings());
        let pulls = || node.node.operations.pulls_in_flight().len();
        node.until("the pull", |_| pulls() == 1).await;
        world.manifest("quick.yaml", &plain("quick"));
        ready(&node, "quick").await;
        assert!(mounts(&world, "main").is_empty());
        for report in node.tree.snapshot().await.actors {
            if report.kind == "PodWorker" || report.name == "ImageManager" {
                node.tree.kill(&report.name).expect("it was just seen");
            }
        }
        sandbox.pass(Duration::from_secs(5)).await;
        assert_eq!(pulls(), 1, "it goes on");
        ready(&node, "slow").await;
        assert_eq!((world.runtime.pulls().len(), mounts(&world, "main").len()), (1, 2));
        node.stop().await;
    });
}

#[test]
fn a_runtime_that_cannot_mount_images_is_told_in_its_words() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(48);
        world.runtime.set_mounts_images(false);
        world.runtime.publish(FILES, RegistryImage::default());
        world.manifest("files.yaml", &pod("files"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("an answer", |pods| {
            let status = pods.get("files").filter(|status| is_running(status, "plain"));
            status.is_some_and(|status| waiting(status, "main").0 == "CreateContainerError")
        })
        .await;
        let status = node.by_name().await["files"].clone();
        let (_, message) = waiting(&status, "main");
        assert!(message.contains("failed to mkdir"), "{message}");
        world.runtime.set_mounts_images(true);
        ready(&node, "files").await;
        node.stop().await;
    });
}
