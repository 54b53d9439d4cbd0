//! When images are pulled, and the status of a pod that cannot have its image.

use std::sync::Arc;

use super::server::Registry;
use super::sleeper_of;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{LATER, Node, Options, SOON};
use crate::spec::containers;

pub const ALL: &[(&str, Alone)] = &[
    ("policies_decide_when_an_image_is_pulled", policies),
    ("a_missing_image_is_pulled_once_it_is_there", missing),
];

/// Waits for the event that a pull has succeeded, with its times and the size.
fn pulled(file: &crate::pod::PodFile<'_>, pod: &crate::view::PodView, image: &str) {
    let said = format!("Successfully pulled image \"{image}\" in ");
    let event = file.event(pod, "Normal", "Pulled", &said);
    let rest = event.message.strip_prefix(&said).expect("it begins so");
    let (took, rest) = rest.split_once(" (").expect("the pull alone");
    let (waited, size) = rest.split_once(" including waiting). Image size: ").expect("all the waiting");
    let size: u64 = size.strip_suffix(" bytes.").expect("a size").parse().expect("a number");
    assert!(took.ends_with('s') && waited.ends_with('s') && size > 100_000, "{}", event.message);
}

fn policies(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let node = Node::alone(environment, "policies", Options::default());
    let image = registry.push("policies:1", 100_000);
    let (tagged, port) = (image.at(registry.port), registry.port);

    let never = node.pod("never", containers([sleeper_of(&tagged, "Never")]));
    let said = format!("Container image \"{tagged}\" is not present with pull policy of Never");
    never.wait("ErrImageNeverPull", SOON, |pod| pod.waiting("main") == ("ErrImageNeverPull", &said));
    let absent =
        node.pod("absent", containers([sleeper_of(&format!("127.0.0.1:{port}/no/such:1"), "Always")]));
    let digest = format!("127.0.0.1:{port}/policies@{}", image.digest);
    let pinned = node.pod("pinned", containers([sleeper_of(&digest, "IfNotPresent")]));
    let pod = pinned.ready();
    pinned.event(&pod, "Normal", "Pulling", &format!("Pulling image \"{digest}\""));
    pulled(&pinned, &pod, &digest);
    let shown = pod.container("main")["imageID"].as_str().unwrap_or_default().to_owned();
    assert!(shown.starts_with("sha256:") || shown.contains(&image.digest), "{shown}");

    let first = node.pod("first", containers([sleeper_of(&tagged, "IfNotPresent")]));
    let pod = first.ready();
    pulled(&first, &pod, &tagged);
    // Another pod has had the image pulled: now the pod may run.
    never.wait("Running", LATER, |pod| pod.is_running("main"));
    let second = node.pod("second", containers([sleeper_of(&tagged, "IfNotPresent")]));
    let pod = second.ready();
    let said =
        format!("Container image \"{tagged}\" already present on machine and can be accessed by the pod");
    second.event(&pod, "Normal", "Pulled", &said);
    let events = second.events(pod.uid()).expect("events");
    assert!(!events.iter().any(|event| event.reason == "Pulling"), "{events:?}");

    // The tag gets another image: only a pod that always pulls gets that.
    let other = registry.push("policies:1", 50_000);
    assert_ne!(other.digest, image.digest);
    let always = node.pod("always", containers([sleeper_of(&tagged, "Always")]));
    let newer = always.ready();
    pulled(&always, &newer, &tagged);
    assert_ne!(newer.container("main")["imageID"], pod.container("main")["imageID"]);

    let pod = absent.wait("ErrImagePull", SOON, |pod| {
        matches!(pod.waiting("main").0, "ErrImagePull" | "ImagePullBackOff")
    });
    let message = pod.waiting("main").1.to_owned();
    assert!(
        message.contains(&format!("127.0.0.1:{port}/no/such:1")) && message.contains("not found"),
        "{message}"
    );
}

fn missing(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let node = Node::alone(environment, "missing", Options::default());
    let image = format!("127.0.0.1:{}/late:1", registry.port);
    let file = node.pod("late", containers([sleeper_of(&image, "IfNotPresent")]));
    let bystander = node.pod("bystander", containers([crate::spec::sleeper("main")]));
    file.wait("ErrImagePull", SOON, |pod| pod.waiting("main").0 == "ErrImagePull");
    let pod = file.wait("ImagePullBackOff", SOON, |pod| pod.waiting("main").0 == "ImagePullBackOff");
    let said = format!("Back-off pulling image \"{image}\"");
    assert!(
        pod.waiting("main").1.starts_with(&format!("{said}: ErrImagePull: ")),
        "{}",
        pod.waiting("main").1
    );
    file.event(&pod, "Warning", "Failed", &format!("Failed to pull image \"{image}\": "));
    file.event(&pod, "Normal", "BackOff", &said);
    bystander.ready();
    registry.push("late:1", 1000);
    let pod = file.wait("Running", LATER, |pod| pod.is_running("main"));
    assert_eq!(pod.restarts("main"), 0, "no run was lost");
    pulled(&file, &pod, &image);
}
