//! Images that do not exist. No registry is asked: nothing listens on port 1.

use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::node::{LATER, Node, SOON};
use crate::spec::{containers, sleeper, with};

pub const ALL: &[(&str, Shared)] = &[
    ("an_image_that_cannot_be_pulled_backs_off", unknown),
    ("an_image_that_must_not_be_pulled_is_told", never),
    ("an_image_without_a_valid_name_is_told", invalid),
];

fn unknown(node: &Node) {
    let image = "127.0.0.1:1/understudy/absent:1";
    let main = with(sleeper("main"), json!({"image": image, "imagePullPolicy": "IfNotPresent"}));
    let file = node.pod("absent", containers([main]));
    let pod = file.wait("ErrImagePull", SOON, |pod| pod.waiting("main").0 == "ErrImagePull");
    assert_eq!(pod.phase(), "Pending");
    assert!(pod.waiting("main").1.contains("127.0.0.1:1"), "the cause is told: {}", pod.waiting("main").1);
    let pod = file.wait("ImagePullBackOff", LATER, |pod| pod.waiting("main").0 == "ImagePullBackOff");
    let said = format!("Back-off pulling image \"{image}\": ErrImagePull: ");
    assert!(pod.waiting("main").1.starts_with(&said), "{}", pod.waiting("main").1);
    for (kind, reason, message) in [
        ("Normal", "Pulling", format!("Pulling image \"{image}\"")),
        ("Warning", "Failed", format!("Failed to pull image \"{image}\": ")),
        ("Warning", "Failed", "Error: ErrImagePull".to_owned()),
        ("Normal", "BackOff", format!("Back-off pulling image \"{image}\"")),
        ("Warning", "Failed", "Error: ImagePullBackOff".to_owned()),
    ] {
        let event = file.event(&pod, kind, reason, &message);
        assert_eq!(event.field, "spec.containers{main}");
    }
}

fn never(node: &Node) {
    let image = "understudy.dev/absent:1";
    let main = with(sleeper("main"), json!({"image": image, "imagePullPolicy": "Never"}));
    let file = node.pod("never-pulled", containers([main, sleeper("other")]));
    let said = format!("Container image \"{image}\" is not present with pull policy of Never");
    let pod = file.wait("ErrImageNeverPull", SOON, |pod| pod.waiting("main") == ("ErrImageNeverPull", &said));
    file.event(&pod, "Warning", "ErrImageNeverPull", &said);
    file.event(&pod, "Warning", "Failed", "Error: ErrImageNeverPull");
    file.wait("the other container runs", SOON, |pod| pod.is_running("other"));
}

fn invalid(node: &Node) {
    let main = with(sleeper("main"), json!({"image": "Not/An:Image:Name"}));
    let file = node.pod("invalid-image", containers([main]));
    eventually("InvalidImageName on the pod, or the manifest refused", SOON, || {
        let pod = file.look()?;
        match pod.waiting("main") {
            ("InvalidImageName", message) if message.contains("Not/An:Image:Name") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}
