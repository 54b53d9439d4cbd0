//! Images that need credentials.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use super::server::{PASSWORD, Registry, USER, basic};
use super::sleeper_of;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::containers;

pub const ALL: &[(&str, Alone)] = &[
    ("a_private_image_needs_the_nodes_credentials", private),
    ("a_credential_provider_opens_a_private_image", provided),
];

const WRONG: &str = "not the password";

fn private(environment: &Arc<Environment>) {
    let registry = Registry::private(environment);
    let host = format!("127.0.0.1:{}", registry.port);
    let node = Node::alone(environment, "private", Options::default());
    let config = node.root().join("config.json");
    let refused = |name: &str| {
        let image = registry.push(&format!("{name}:1"), 1000).at(registry.port);
        let file = node.pod(name, containers([sleeper_of(&image, "IfNotPresent")]));
        let pod = file.wait("ErrImagePull", SOON, |pod| pod.waiting("main").0 == "ErrImagePull");
        let message = pod.waiting("main").1.to_lowercase();
        let told = message.contains("401") || message.contains("authorization");
        assert!(told && message.contains(&host), "{name}: {message}");
        file
    };
    let none = refused("none");
    fs::write(&config, "{\"auths\": {\"broken\": {\"auth\": \"hush!\"}}}").expect("a file of the node's");
    let broken = refused("broken");
    eventually("the broken file is named", SOON, || {
        let log = node.log();
        let named = log
            .lines()
            .any(|line| line.contains(&config.display().to_string()) && line.contains("not base64"));
        if named { Ok(()) } else { Err(node.log_tail()) }
    });
    let wrong = json!({"auths": {&host: {"username": USER, "password": WRONG}}});
    fs::write(&config, wrong.to_string()).expect("a file of the node's");
    let denied = refused("denied");

    // The more specific credential is wrong: the next one is tried. The file is read again for each pull.
    let right = json!({"auths": {
        format!("https://{host}/none"): {"username": USER, "password": WRONG},
        format!("http://{host}/v2/"): {"auth": basic(USER, PASSWORD)},
    }});
    let new = config.with_extension("new");
    fs::write(&new, right.to_string())
        .and_then(|()| fs::rename(&new, &config))
        .expect("a file of the node's");
    for file in [none, broken, denied] {
        file.wait("Running", LATER, |pod| pod.is_running("main"));
    }
    for (what, text) in [
        ("the log", node.log()),
        ("/events", node.read_only.text("/events").expect("events")),
        ("/supervision", node.read_only.text("/supervision").expect("the tree")),
        ("/pods", node.read_only.text("/pods").expect("pods")),
    ] {
        for secret in [PASSWORD, WRONG, "hush", &basic(USER, PASSWORD)] {
            assert!(!text.contains(secret), "{what} shows {secret}");
        }
    }
}

/// A plugin in shell, which notes each of its runs and has to be told the image and its own environment.
fn plugin(host: &str, dir: &std::path::Path) -> String {
    let auth = json!({host: {"username": USER, "password": PASSWORD}});
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "cacheDuration": "1h", "auth": auth,
    });
    format!(
        "#!/bin/sh\nrequest=$(cat)\necho \"$1 $PROFILE $request\" >>{dir}/runs\necho 'hush of the plugin' >&2\n\
         [ -e {dir}/works ] || exit 3\ncat <<'END'\n{answer}\nEND\n",
        dir = dir.display()
    )
}

fn provided(environment: &Arc<Environment>) {
    let registry = Registry::private(environment);
    let host = format!("127.0.0.1:{}", registry.port);
    let dir = tempfile::Builder::new().prefix("understudy-plugins-").tempdir().expect("a directory");
    let (program, config) = (dir.path().join("plugin"), dir.path().join("config.yaml"));
    fs::write(&program, plugin(&host, dir.path()))
        .and_then(|()| fs::set_permissions(&program, fs::Permissions::from_mode(0o755)))
        .expect("a file of the test's");
    let provider = json!({
        "name": "plugin", "matchImages": [host], "defaultCacheDuration": "0s",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "args": ["argument"],
        "env": [{"name": "PROFILE", "value": "profile"}],
    });
    let json = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider],
    });
    fs::write(&config, json.to_string()).expect("a file of the test's");
    let flags = [
        format!("--image-credential-provider-config={}", config.display()),
        format!("--image-credential-provider-bin-dir={}", dir.path().display()),
    ];
    let options = Options { flags: flags.map(Into::into).into(), ..Options::default() };
    let node = Node::alone(environment, "provided", options);
    let image = |name: &str| registry.push(&format!("{name}:1"), 1000).at(registry.port);
    let pod = |name: &str| node.pod(name, containers([sleeper_of(&image(name), "IfNotPresent")]));
    let failing = pod("failing");
    failing.wait("ErrImagePull", SOON, |pod| pod.waiting("main").0 == "ErrImagePull");
    fs::write(dir.path().join("works"), "").expect("a file of the test's");
    failing.wait("Running", LATER, |pod| pod.is_running("main"));
    let runs = || fs::read_to_string(dir.path().join("runs")).unwrap_or_default();
    let before = runs();
    let asked = "argument profile {\"kind\":\"CredentialProviderRequest\",";
    let of_image = format!("\"image\":\"{host}/failing\"}}");
    let is_asked = |line: &str| line.starts_with(asked) && line.ends_with(&of_image);
    assert!(before.lines().all(is_asked), "{before}");
    pod("other").wait("Running", SOON, |pod| pod.is_running("main"));
    assert_eq!(runs(), before, "the answer holds for the registry");
    let metrics = node.read_only.text("/metrics").expect("metrics");
    assert!(
        metrics.contains("kubelet_credential_provider_plugin_errors_total{plugin_name=\"plugin\"}"),
        "{metrics}"
    );
    assert!(node.log().contains("exit status 3"), "{}", node.log_tail());
    for (what, text) in [
        ("the log", node.log()),
        ("/events", node.read_only.text("/events").expect("events")),
        ("/supervision", node.read_only.text("/supervision").expect("the tree")),
    ] {
        for secret in [PASSWORD, "hush of the plugin"] {
            assert!(!text.contains(secret), "{what} shows {secret}");
        }
    }
}
