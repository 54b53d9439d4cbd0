//! Credential providers of a node: a pod's service account opens an image to the pods of that account alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::RegistryImage;
use bridge_kube::fake::FakeApi;
use bridge_node::host::PluginError;
use image_manager::{CredentialProvider, CredentialProviders, TokenAttributes, TokenCache};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, ServiceAccount};
use kubelet::wiring::Settings;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, World, is_ready, settings};
use testkit::sandbox;

use crate::cluster::until;
use crate::life::world;

const IMAGE: &str = "registry.test:5000/team/app:1";
const NS: Option<&str> = Some("default");
const API: &str = "credentialprovider.kubelet.k8s.io/v1";

/// A private image on the registry, and an API server with a Node of ours and two service accounts.
fn private(seed: u64) -> (World, FakeApi) {
    let world = world(seed).with_api();
    let api = world.api.clone().expect("it has one");
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "node" } })).expect("a Node");
    api.put(&node);
    for name in ["robot", "stranger"] {
        let account = json!({
            "metadata": { "name": name, "namespace": "default", "annotations": { "registry": name } }
        });
        api.put::<ServiceAccount>(&serde_json::from_value(account).expect("a service account"));
    }
    let credentials = Some(("robot".to_owned(), "hush".to_owned()));
    world.runtime.publish(IMAGE, RegistryImage { credentials, ..RegistryImage::default() });
    (world, api)
}

fn provided(tokens: Option<TokenAttributes>) -> Settings {
    let mut settings = settings();
    let provider = CredentialProvider {
        name: "plugin".to_owned(),
        program: PathBuf::from("/plugins/plugin"),
        match_images: vec!["registry.test:5000/team".to_owned()],
        default_cache: Duration::from_secs(3600),
        api_version: API.to_owned(),
        args: Arc::default(),
        env: Arc::default(),
        tokens,
    };
    settings.images.providers = CredentialProviders::new(&[b"configured".to_vec()], vec![provider]);
    settings
}

fn pod(api: &FakeApi, name: &str, account: &str, policy: &str) {
    let json = json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": account,
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

fn waits(api: &FakeApi, name: &str, reasons: &[&str]) -> bool {
    let containers = status(api, name).container_statuses.unwrap_or_default();
    let state = containers.into_iter().next().and_then(|container| container.state);
    let reason = state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason);
    reason.is_some_and(|reason| reasons.contains(&reason.as_str()))
}

/// A plugin's answer with the user that it was told as the account's annotation.
fn answer(request: &Value) -> Vec<u8> {
    let user = request["serviceAccountAnnotations"]["registry"].as_str().unwrap_or("node");
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": API, "cacheKeyType": "Registry",
        "auth": { "registry.test:5000": { "username": user, "password": "hush" } }
    });
    answer.to_string().into_bytes()
}

const FAILED: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

#[test]
fn a_provider_opens_an_image_to_the_pods_of_a_service_account() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(110);
        world.credential_plugins.install("/plugins/plugin", Duration::from_secs(1), |run| {
            Ok(answer(&serde_json::from_slice(run.input.expose()).expect("a request is JSON")))
        });
        pod(&api, "mine", "robot", "IfNotPresent");
        let tokens = TokenAttributes {
            audience: Arc::from("registry"),
            cache: TokenCache::ServiceAccount,
            required: true,
            required_keys: vec!["registry".to_owned()],
            optional_keys: Vec::new(),
        };
        let settings = provided(Some(tokens));
        let node = FakeNode::start(sandbox, &world, &settings);
        until("mine to run", || runs(&api, "mine")).await;
        let asked = world.credential_plugins.runs();
        let request: Value = serde_json::from_slice(asked[0].input.expose()).expect("a request is JSON");
        assert_eq!((asked.len(), &request["image"]), (1, &json!("registry.test:5000/team/app")));
        assert!(request["serviceAccountToken"].as_str().is_some_and(|token| !token.is_empty()));

        pod(&api, "too", "robot", "Never");
        pod(&api, "other", "stranger", "IfNotPresent");
        until("the pod of the same account to run", || runs(&api, "too")).await;
        until("the other to be refused", || waits(&api, "other", &FAILED)).await;

        // The record outlives the kubelet, and its successor asks the plugin itself.
        let node = node.restart(&settings, Policy::default()).await;
        let before = world.credential_plugins.runs().len();
        pod(&api, "later", "robot", "Never");
        until("it to run", || runs(&api, "later")).await;
        assert!(world.credential_plugins.runs().len() > before);
        let shown = format!("{:?}", node.events().await);
        assert!(!shown.contains("hush"), "{shown}");
        node.stop().await;
    });
}

#[test]
fn a_provider_that_fails_is_told_of_in_figures_and_holds_up_no_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = private(111);
        world.credential_plugins.install("/plugins/plugin", Duration::from_secs(1), |_| {
            Err(PluginError::Failed { status: "exit status 1".to_owned(), said: 4 })
        });
        world.runtime.publish("registry.test:5000/team/app:1", RegistryImage::default());
        pod(&api, "mine", "robot", "IfNotPresent");
        let node = FakeNode::start(sandbox, &world, &provided(None));
        until("the pod to run, since the image needs no credentials", || runs(&api, "mine")).await;
        let families = node.registry.gather();
        for name in [
            "kubelet_credential_provider_plugin_errors_total",
            "kubelet_credential_provider_plugin_duration",
            "kubelet_credential_provider_config_info",
        ] {
            assert!(families.iter().any(|family| family.name() == name), "{name}");
        }
        node.stop().await;
    });
}
