//! Images that need credentials.

use std::fs;
use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use super::server::{PASSWORD, Registry, USER, basic};
use super::sleeper_of;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::containers;

pub const ALL: &[(&str, Alone)] = &[("a_private_image_needs_the_nodes_credentials", private)];

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
