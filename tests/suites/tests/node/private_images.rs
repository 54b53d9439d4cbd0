//! Private images: who may have one, while it is being pulled and once it is there.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Event, Node, Pod, PodStatus, Secret};
use runtime_bridge::cri::fake::RegistryImage;
use runtime_bridge::kube::Patch;
use runtime_bridge::kube::fake::FakeApi;
use serde_json::json;
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
    let secrets: Vec<_> = secrets.iter().map(|name| json!({ "name": name })).collect();
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "imagePullSecrets": secrets,
            "containers": [{
                "name": "main", "image": IMAGE, "imagePullPolicy": policy, "command": ["serve"]
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

/// Why the only container of the pod waits.
fn waiting(api: &FakeApi, name: &str) -> ContainerStateWaiting {
    let containers = status(api, name).container_statuses.unwrap_or_default();
    let state = containers.into_iter().next().and_then(|container| container.state);
    state.and_then(|state| state.waiting).unwrap_or_default()
}

fn waits(api: &FakeApi, name: &str, reasons: &[&str]) -> bool {
    waiting(api, name).reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
}

/// Containers that were ever made for a pod.
fn containers(world: &World, pod: &str) -> usize {
    let containers = world.runtime.containers();
    let name = |labels: &BTreeMap<String, String>| labels.get("io.kubernetes.pod.name").cloned();
    containers.iter().filter(|container| name(&container.labels).as_deref() == Some(pod)).count()
}

/// What was told of a pod, `<reason> <message>`.
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

        // A crash of ImageManager gives it to nobody else either: the pull goes on, and is joined by whom it is for.
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
