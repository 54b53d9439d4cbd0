//! Private images: which pods may use one, while it is being pulled and once it is on the node.

use std::collections::BTreeMap;
use std::time::Duration;

use bridge_cri::Rpc;
use bridge_cri::fake::RegistryImage;
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use image_manager::Verification;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Event, Node, Pod, PodStatus, Secret};
use kubelet::wiring::Settings;
use messages::image_manager::DeleteUnusedImages;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::sandbox;

use crate::cluster::until;
use crate::life::world;

const IMAGE: &str = "registry.test:5000/team/app:1";
const NS: Option<&str> = Some("default");

/// A private image on the registry, whose pull takes this long, and an API server with a Node of ours.
fn private(seed: u64, takes: Duration) -> (World, FakeApi) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("it has one");
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).expect("a Node");
    api.put(&node);
    let credentials = Some(("me".to_owned(), "hush".to_owned()));
    world.runtime.publish(IMAGE, RegistryImage { credentials, takes, ..RegistryImage::default() });
    (world, api)
}

/// A secret for pulls with this as its content.
fn raw_secret(api: &FakeApi, name: &str, content: &str) {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" }, "type": "kubernetes.io/dockerconfigjson",
    });
    let mut secret: Secret = serde_json::from_value(json).expect("a secret");
    let content = ByteString(content.as_bytes().to_vec());
    secret.data = Some([(".dockerconfigjson".to_owned(), content)].into());
    api.put(&secret);
}

fn secret(api: &FakeApi, name: &str, password: &str) {
    let auths = json!({ "auths": { "registry.test:5000": { "username": "me", "password": password } } });
    raw_secret(api, name, &auths.to_string());
}

fn pod(api: &FakeApi, name: &str, policy: &str, secrets: &[&str]) {
    pod_of(api, name, IMAGE, policy, secrets);
}

fn pod_of(api: &FakeApi, name: &str, image: &str, policy: &str, secrets: &[&str]) {
    let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
    let json = json!({
        "metadata": { "name": name, "namespace": "default", "annotations": { "team": "red" } },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "imagePullSecrets": secrets,
            "containers": [{
                "name": "main", "image": image, "imagePullPolicy": policy, "command": ["serve"]
            }]
        }
    });
    api.put::<Pod>(&serde_json::from_value(json).expect("a pod"));
}

/// A pod with the private image as a volume.
fn pod_with_volume(api: &FakeApi, name: &str, secrets: &[&str]) {
    let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "imagePullSecrets": secrets,
            "volumes": [{ "name": "files", "image": { "reference": IMAGE, "pullPolicy": "IfNotPresent" } }],
            "containers": [{
                "name": "main", "image": testkit::node::IMAGE, "imagePullPolicy": "IfNotPresent",
                "command": ["serve"], "volumeMounts": [{ "name": "files", "mountPath": "/files" }]
            }]
        }
    });
    api.put::<Pod>(&serde_json::from_value(json).expect("a pod"));
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn runs(api: &FakeApi, name: &str) -> bool {
    is_ready(&status(api, name))
}

/// The waiting state of the only container of the pod.
fn waiting(api: &FakeApi, name: &str) -> ContainerStateWaiting {
    let containers = status(api, name).container_statuses.unwrap_or_default();
    let state = containers.into_iter().next().and_then(|container| container.state);
    state.and_then(|state| state.waiting).unwrap_or_default()
}

fn waits(api: &FakeApi, name: &str, reasons: &[&str]) -> bool {
    waiting(api, name).reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
}

/// The number of containers that were ever created for a pod.
fn containers(world: &World, pod: &str) -> usize {
    let containers = world.runtime.containers();
    let name = |labels: &BTreeMap<String, String>| labels.get("io.kubernetes.pod.name").cloned();
    containers.iter().filter(|container| name(&container.labels).as_deref() == Some(pod)).count()
}

/// The events about a pod, `<reason> <message>`.
fn told(api: &FakeApi, pod: &str) -> Vec<String> {
    let of_pod = |event: &&Event| event.involved_object.name.as_deref() == Some(pod);
    let text = |event: &Event| {
        format!(
            "{} {}",
            event.reason.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default()
        )
    };
    api.list::<Event>().iter().filter(of_pod).map(text).collect()
}

const FAILED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

#[test]
fn a_pull_gives_its_image_to_those_alone_who_have_its_credentials() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(91, Duration::from_secs(120));
        secret(&api, "good", "hush");
        secret(&api, "bad", "guessed");
        pod(&api, "mine", "IfNotPresent", &["good"]);
        pod(&api, "too", "Always", &["good"]);
        let strangers =
            [("always", "Always", &[][..]), ("lazy", "IfNotPresent", &[]), ("wrong", "Always", &["bad"])];
        for (name, policy, secrets) in strangers {
            pod(&api, name, policy, secrets);
        }
        pod(&api, "never", "Never", &[]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the strangers to be refused", || {
            strangers.iter().all(|(name, ..)| waits(&api, name, &FAILED))
                && waits(&api, "never", &["ErrImageNeverPull"])
        })
        .await;
        assert_eq!(node.node.operations.pulls_in_flight().len(), 1, "those who may share it have one pull");
        assert_eq!(world.runtime.containers().len(), 0);

        // A crash of ImageManager does not let other pods have the image: the pull goes on, and the pod that may have
        // it joins it.
        sandbox.expect_crashes();
        let crash = messages::supervision::Fault::PanicNow;
        sandbox.tree.inject("ImageManager", crash).expect("it is in the tree");
        until("both to run", || runs(&api, "mine") && runs(&api, "too")).await;
        for name in ["mine", "too"] {
            let told = told(&api, name);
            assert!(!told.iter().any(|event| event.starts_with("BackOff")), "no failure of others: {told:?}");
            assert!(
                !told.iter().any(|event| event.starts_with("Failed Failed")),
                "no failure of others: {told:?}"
            );
        }
        sandbox.pass(Duration::from_secs(400)).await;
        for name in ["always", "wrong"] {
            assert!(waits(&api, name, &FAILED), "{name}: {:?}", waiting(&api, name));
            assert_eq!(containers(&world, name), 0, "{name}");
        }
        let refused = format!(
            "Failed Failed to pull image {IMAGE:?}: failed to pull and unpack image {IMAGE:?}: authorization failed: \
             no basic auth credentials"
        );
        let told = told(&api, "always");
        assert!(
            told.contains(&refused) && told.contains(&"Failed Error: ErrImagePull".to_owned()),
            "{told:?}"
        );
        assert!(!format!("{:?}", node.events().await).contains("hush"));
        node.stop().await;
    });
}

#[test]
fn a_secret_that_cannot_be_read_fails_its_pods_pulls_and_is_read_again() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(92, Duration::ZERO);
        raw_secret(&api, "broken", "{\"auths\": {\"registry.test:5000\": {\"auth\": \"hush!\"}}}");
        secret(&api, "good", "hush");
        pod(&api, "mine", "IfNotPresent", &["good", "broken", "absent"]);
        pod(&api, "other", "IfNotPresent", &["absent", "good"]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the other one to run", || runs(&api, "other")).await;
        until("the broken secret to be told of", || waits(&api, "mine", &["ErrImagePull"])).await;
        let message =
            "secret \"default/broken\": .dockerconfigjson: auths[\"registry.test:5000\"].auth: not base64";
        assert_eq!(waiting(&api, "mine").message.as_deref(), Some(message));
        let missing = "FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (absent); \
                       attempting to pull the image may not succeed.";
        for name in ["mine", "other"] {
            let told = told(&api, name);
            assert!(told.iter().any(|event| event == missing), "{name}: {told:?}");
        }
        let mended = Patch::Merge(json!({ "data": { ".dockerconfigjson": "e30=" } }));
        api.change::<Secret>(NS, "broken", None, &mended);
        until("the pod to run", || runs(&api, "mine")).await;
        node.stop().await;
    });
}

/// The name of the record about [`IMAGE`].
const INTENT_FILE: &str = "sha256-e33e331fc4a3bf409f970cbe1a243cd0ffd2e62c4cea29386b787de94075d073";
const PULLED: &str = "/var/lib/kubelet/image_manager/pulled";
const PULLING: &str = "/var/lib/kubelet/image_manager/pulling";

/// The records of a kind, as JSON.
fn records(world: &World, directory: &str) -> Vec<Value> {
    let files = world.disk.files_below(directory);
    files.values().map(|content| serde_json::from_slice(content).expect("a record is JSON")).collect()
}

fn verifying(verification: Verification) -> Settings {
    let mut settings = settings();
    settings.images.verification = verification;
    settings
}

#[test]
fn an_image_that_is_there_is_for_those_alone_who_may_have_it() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(93, Duration::ZERO);
        secret(&api, "good", "hush");
        secret(&api, "same", "hush");
        pod(&api, "mine", "IfNotPresent", &["good"]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("mine to run", || runs(&api, "mine")).await;
        let pull = world.runtime.pulls().pop().expect("it was pulled");
        let sandbox_of = pull.sandbox_config.and_then(|config| config.metadata).unwrap_or_default();
        assert_eq!((&*sandbox_of.name, &*sandbox_of.namespace), ("mine", "default"));
        assert_eq!(pull.image.unwrap_or_default().annotations.get("team").map(String::as_str), Some("red"));
        let record = records(&world, PULLED).pop().expect("the pull is recorded");
        assert_eq!(record["kind"], "ImagePulledRecord");
        let known = &record["credentialMapping"]["registry.test:5000/team/app"]["kubernetesSecrets"];
        assert_eq!((&known[0]["name"], &known[0]["namespace"]), (&json!("good"), &json!("default")));
        until("the intent to go", || records(&world, PULLING).is_empty()).await;

        pod(&api, "too", "Never", &["same"]);
        pod(&api, "lazy", "IfNotPresent", &[]);
        pod(&api, "never", "Never", &[]);
        until("who has the credentials to run", || runs(&api, "too")).await;
        until("the others to be refused", || {
            waits(&api, "lazy", &FAILED) && waits(&api, "never", &["ErrImageNeverPull"])
        })
        .await;
        let absent = format!("Container image {IMAGE:?} is not present with pull policy of Never");
        assert_eq!(waiting(&api, "never").message, Some(absent), "that it is there is nobody's concern");
        assert!(told(&api, "too").iter().any(|event| {
            *event == format!("Pulled Container image {IMAGE:?} already present on machine and can be accessed by the pod")
        }));

        // The next kubelet with the same disk knows it too, and a secret with new content still counts.
        let node = node.restart(&settings(), Policy::default()).await;
        secret(&api, "good", "changed");
        pod(&api, "later", "IfNotPresent", &["good"]);
        until("who has the secret to run", || runs(&api, "later")).await;
        sandbox.pass(Duration::from_secs(400)).await;
        assert_eq!(containers(&world, "lazy") + containers(&world, "never"), 0);

        // The image is removed with its record, once it is old enough.
        for name in ["mine", "too", "lazy", "never", "later"] {
            api.delete::<Pod>(NS, name, None);
        }
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(1000)).await;
        assert_eq!(records(&world, PULLED).len(), 1, "its image is there");
        let deleted = node.node.delete_images.ask(DeleteUnusedImages, Duration::from_secs(60)).await;
        assert!(deleted.is_ok_and(|deleted| deleted > 0));
        sandbox.until("the record to go", || records(&world, PULLED).is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn policies_decide_about_images_that_were_loaded_by_others() {
    sandbox(Policy::default(), async |sandbox| {
        let allow = |pattern: &str| Verification::NeverVerifyAllowlistedImages([pattern.to_owned()].into());
        for (seed, verification, runs_it) in [
            (94, Verification::Off, true),
            (95, Verification::NeverVerify, true),
            (96, Verification::NeverVerifyPreloadedImages, true),
            (97, allow("registry.test:5000/team/*"), true),
            (98, allow("registry.test:5000/other"), false),
            (99, Verification::AlwaysVerify, false),
        ] {
            let (world, api) = private(seed, Duration::ZERO);
            world.runtime.add_image(IMAGE, RegistryImage::default());
            pod(&api, "lazy", "IfNotPresent", &[]);
            pod(&api, "never", "Never", &[]);
            let node = FakeNode::start(sandbox, &world, &verifying(verification.clone()));
            if runs_it {
                until("both to run", || runs(&api, "lazy") && runs(&api, "never")).await;
            } else {
                until("both to be refused", || {
                    waits(&api, "lazy", &FAILED) && waits(&api, "never", &["ErrImageNeverPull"])
                })
                .await;
                assert_eq!(world.runtime.containers().len(), 0, "{verification:?}");
            }
            assert_eq!(
                world.disk.files_below("/var/lib/kubelet/image_manager").len(),
                0,
                "nothing was pulled"
            );
            node.stop().await;
        }
    });
}

#[test]
fn an_image_that_was_loaded_by_others_stays_open_when_a_pod_pulls_it_with_a_secret() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(102, Duration::ZERO);
        let tool = "registry.test:5000/public/tool:1";
        let credentials = Some(("me".to_owned(), "hush".to_owned()));
        let image =
            RegistryImage { credentials, content: Some("tool".to_owned()), ..RegistryImage::default() };
        world.runtime.add_image(tool, image.clone());
        world.runtime.publish(IMAGE, image);
        secret(&api, "good", "hush");
        pod(&api, "mine", "IfNotPresent", &["good"]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("mine to run", || runs(&api, "mine")).await;
        pod_of(&api, "lazy", tool, "IfNotPresent", &[]);
        until("the other one to run", || runs(&api, "lazy")).await;
        until("the intent to go", || records(&world, PULLING).is_empty()).await;
        let node = node.restart(&settings(), Policy::default()).await;
        pod_of(&api, "never", tool, "Never", &[]);
        until("the last one to run", || runs(&api, "never")).await;
        assert_eq!((world.runtime.pulls().len(), records(&world, PULLED).len()), (1, 0));
        node.stop().await;
    });
}

#[test]
fn a_pull_cut_off_by_a_crash_opens_its_image_to_nobody() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(100, Duration::ZERO);
        // The record of an earlier process, whose pull ended well and which died before it could note that. The hash is
        // that of the name.
        let intent = |image: &str| {
            format!(
                "{{\"kind\":\"ImagePullIntent\",\"apiVersion\":\"kubelet.config.k8s.io/v1alpha1\",\"image\":\"{image}\"}}\n"
            )
        };
        world.disk.mkdir(PULLING, 0o700);
        world.disk.mkdir(PULLED, 0o700);
        world.disk.write(format!("{PULLING}/{INTENT_FILE}"), intent(IMAGE), 0o600);
        world.disk.write(format!("{PULLED}/sha256-00"), "no record", 0o600);
        let id = world.runtime.add_image(IMAGE, RegistryImage::default());
        secret(&api, "good", "hush");
        pod(&api, "lazy", "IfNotPresent", &[]);
        pod(&api, "mine", "IfNotPresent", &["good"]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the owner to run", || runs(&api, "mine")).await;
        until("the other one to be refused", || waits(&api, "lazy", &FAILED)).await;
        assert_eq!(containers(&world, "lazy"), 0);
        until("the intent to go", || world.disk.files_below(PULLING).is_empty()).await;
        let files = world.disk.files_below(PULLED);
        assert_eq!(files.len(), 2, "the broken one is left, and hides nothing");
        assert!(files.values().any(|content| String::from_utf8_lossy(content).contains(&id)));
        node.stop().await;
    });
}

#[test]
fn no_pull_begins_that_cannot_be_recorded() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(101, Duration::ZERO);
        world.disk.fail(
            "write_pull_record",
            format!("{PULLING}/{INTENT_FILE}"),
            1,
            "no space left on device",
        );
        secret(&api, "good", "hush");
        pod(&api, "mine", "IfNotPresent", &["good"]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the disk to be told of", || waits(&api, "mine", &["ErrImagePull"])).await;
        let message = waiting(&api, "mine").message.unwrap_or_default();
        let said = format!("Failed to record image pull intent for container image {IMAGE:?}: ");
        assert!(message.starts_with(&said) && message.ends_with("no space left on device"), "{message}");
        assert_eq!(world.runtime.counts().get(&Rpc::PullImage), None);
        until("mine to run", || runs(&api, "mine")).await;
        node.stop().await;
    });
}

#[test]
fn the_images_of_volumes_are_had_with_the_pods_secrets() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(99, Duration::ZERO);
        secret(&api, "good", "hush");
        pod_with_volume(&api, "mine", &["good"]);
        pod_with_volume(&api, "stranger", &[]);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the one to run and the other to be refused", || {
            runs(&api, "mine") && waits(&api, "stranger", &FAILED)
        })
        .await;
        assert_eq!((containers(&world, "mine"), containers(&world, "stranger")), (1, 0));
        node.stop().await;
    });
}
