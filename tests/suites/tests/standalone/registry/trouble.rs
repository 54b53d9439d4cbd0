//! Registries that fail: the pod's status says why, other pods go on, and the pod starts when the registry works again.

use std::sync::Arc;

use serde_json::json;
use testkit::process::{eventually, free_ports};

use super::nasty::{Mood, Nasty};
use super::server::{Registry, layer};
use super::sleeper_of;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::pod::PodFile;
use crate::spec::{containers, sleeper};

pub const ALL: &[(&str, Alone)] = &[("registries_that_misbehave_are_told_of_and_outlived", misbehaving)];

/// Waits until the pod's status says that its image could not be pulled, with one of these words.
fn says(file: &PodFile<'_>, words: &[&str]) {
    let pod = file.wait("why there is no image", LATER, |pod| {
        matches!(pod.waiting("main").0, "ErrImagePull" | "ImagePullBackOff")
    });
    let message = pod.waiting("main").1;
    assert!(
        words.iter().any(|words| message.contains(words)),
        "{}: none of {words:?} in {message}",
        file.base
    );
    file.event(&pod, "Warning", "Failed", "Failed to pull image ");
}

fn misbehaving(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let nasty = Nasty::start(0, registry.port);
    let [closed] = free_ports();
    let moods = [
        ("broken", Mood::Status(500), &["500"][..]),
        ("busy", Mood::Status(429), &["429", "Too Many Requests", "TooManyRequests"]),
        ("short", Mood::ShortLength, &["EOF", "size", "length", "expected"]),
        ("away", Mood::GoesAway, &["EOF", "size", "closed", "reset"]),
    ];
    for (repository, mood, _) in moods {
        registry.push(&format!("{repository}:1"), 100_000);
        nasty.be(repository, mood);
    }
    let slow = registry.push("slow:1", 100_000);
    nasty.be("slow", Mood::Slow);
    // Some runtimes notice the wrong length, since the manifest has the size, too: then the pod runs.
    let long = registry.push("long:1", 100_000);
    nasty.be("long", Mood::LongLength);
    let refused = registry.push("refused:1", 100_000);
    let lied = layer(100_000);
    registry.push_layer("lies:1", &lied, 1000);

    let options = Options { kubelet: json!({"maxParallelImagePulls": 10}), ..Options::default() };
    let node = Node::alone(environment, "trouble", options);
    let pod = |name: &str, image: &str| node.pod(name, containers([sleeper_of(image, "IfNotPresent")]));
    let dripping = pod("slow", &slow.at(nasty.port));
    let unheard = pod("refused", &refused.at(closed));
    let seen_through = pod("long", &long.at(nasty.port));
    let liar = pod("lies", &format!("127.0.0.1:{}/lies:1", nasty.port));
    let others = moods.map(|(name, ..)| pod(name, &format!("127.0.0.1:{}/{name}:1", nasty.port)));
    eventually("the slow layer comes", SOON, || if nasty.slow() == 1 { Ok(()) } else { Err(String::new()) });
    node.pod("bystander", containers([sleeper("main")])).ready();

    for (file, (_, _, words)) in others.iter().zip(moods) {
        says(file, words);
    }
    says(&unheard, &["connection refused"]);
    says(&liar, &["EOF", "size", "expected"]);
    let waiting = dripping.look().expect("it is listed");
    assert_eq!(waiting.waiting("main").0, "ContainerCreating", "it still comes: {}", waiting.status());
    node.pod("late-bystander", containers([sleeper("main")])).ready();

    nasty.be_good();
    let _listens = Nasty::start(closed, registry.port);
    registry.push_layer("lies:1", &lied, 0);
    dripping.ready();
    for file in others.iter().chain([&unheard, &liar, &seen_through]) {
        file.wait("Running", LATER, |pod| pod.is_running("main"));
    }
}
