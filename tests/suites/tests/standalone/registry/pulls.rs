//! Pulls that several pods wait for, or no pod any more.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use testkit::process::{eventually, holds};

use super::nasty::{Mood, Nasty};
use super::server::Registry;
use super::sleeper_of;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::containers;

pub const ALL: &[(&str, Alone)] = &[
    ("pods_share_the_pull_of_an_image", shared),
    ("a_pod_deleted_while_its_image_is_pulled_is_gone", deleted),
];

/// An actor's own part of its report.
fn observed(node: &Node, kind: &str, about: impl Fn(&Value) -> bool) -> Result<Value, String> {
    let tree = node.read_only.json("/supervision")?;
    let actors = tree["actors"].as_array().into_iter().flatten();
    let found = actors.into_iter().find(|actor| actor["kind"] == kind && about(&actor["observed"]));
    found.map(|actor| actor["observed"].clone()).ok_or_else(|| format!("no such {kind} in {tree}"))
}

fn shared(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let nasty = Nasty::start(0, registry.port);
    nasty.be("shared", Mood::Slow);
    let node = Node::alone(environment, "shared-pull", Options::default());
    let pushed = registry.push("shared:1", 200_000);
    let image = pushed.at(nasty.port);
    let files = ["one", "other", "third"]
        .map(|name| node.pod(name, containers([sleeper_of(&image, "IfNotPresent")])));
    eventually("all wait for the image", SOON, || {
        let observed = observed(&node, "ImageManager", |_| true)?;
        let pulls = observed["pulls"].as_array().ok_or("no pulls")?.clone();
        let ours = pulls.iter().find(|pull| pull["image"] == image.as_str() && pull["state"] == "pulling");
        let waiting = ours.and_then(|pull| pull["waiting"].as_array()).map_or(0, Vec::len);
        if waiting == 3 && nasty.slow() == 1 { Ok(()) } else { Err(observed.to_string()) }
    });
    eventually("their workers say what they wait for", SOON, || {
        observed(&node, "PodWorker", |worker| {
            worker["blockedOn"].as_str().is_some_and(|step| step.contains(&image))
        })
    });
    nasty.be_good();
    for file in &files {
        let pod = file.ready();
        file.event(&pod, "Normal", "Pulled", &format!("Successfully pulled image \"{image}\" in "));
        let events = file.events(pod.uid()).expect("events");
        let pulling = events.iter().filter(|event| event.reason == "Pulling").count();
        assert_eq!(pulling, 1, "it is one wait: {events:?}");
    }
    assert_eq!(nasty.asked_for(&pushed.layer), 1, "the layer was asked for once");
}

fn deleted(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let nasty = Nasty::start(0, registry.port);
    nasty.be("wanted", Mood::Slow);
    nasty.be("unwanted", Mood::Slow);
    let node = Node::alone(environment, "deleted", Options::default());
    let start = |name: &str, repository: &str| {
        let image = registry.push(&format!("{repository}:1"), 200_000).at(nasty.port);
        node.pod(name, containers([sleeper_of(&image, "IfNotPresent")]))
    };
    let alone = start("alone", "unwanted");
    eventually(
        "its layer comes slowly",
        SOON,
        || if nasty.slow() == 1 { Ok(()) } else { Err(String::new()) },
    );
    let leaves = start("leaves", "wanted");
    let stays = node.pod("stays", {
        let image = format!("127.0.0.1:{}/wanted:1", nasty.port);
        containers([sleeper_of(&image, "IfNotPresent")])
    });
    eventually("both layers come slowly", SOON, || {
        let slow = nasty.slow();
        if slow == 2 { Ok(()) } else { Err(slow.to_string()) }
    });
    let [alone_pod, leaves_pod, _] = [&alone, &leaves, &stays]
        .map(|file| file.wait("ContainerCreating", SOON, |pod| pod.waiting("main").0 == "ContainerCreating"));
    alone.remove();
    leaves.remove();
    // The pods end at once, and not after a deadline of a pull.
    alone.stopped(alone_pod.uid(), SOON);
    leaves.stopped(leaves_pod.uid(), SOON);
    alone.gone(&alone_pod);
    leaves.gone(&leaves_pod);
    eventually("the pull that nobody wants is given up", LATER, || match nasty.slow() {
        1 => Ok(()),
        slow => Err(format!("{slow} layers come slowly")),
    });
    holds("the other one goes on", Duration::from_secs(5), || match nasty.slow() {
        1 => Ok(()),
        slow => Err(format!("{slow} layers come slowly")),
    });
    nasty.be_good();
    stays.ready();
}
