//! Static pods and their mirrors.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use testkit::process::eventually;

use crate::Shared;
use crate::member::Member;
use crate::node::{LATER, SOON};
use crate::spec::{containers, sleeper};
use crate::view::PodView;

pub const ALL: &[(&str, Shared)] = &[("a_static_pod_has_a_mirror_as_long_as_it_lives", mirrored)];

const MIRROR: &str = "/metadata/annotations/kubernetes.io~1config.mirror";

fn mirrored(member: &Member) {
    let file = member.node.pod("fixed", containers([sleeper("main")]));
    let running = file.ready();
    let mirror = member.named_pod(running.name().to_owned());
    let seen = mirror.ready();
    let same_container = |mirror: &PodView| {
        assert_eq!(mirror.container_id("main"), running.container_id("main"));
        assert_eq!(mirror.text(MIRROR), running.text("/metadata/annotations/kubernetes.io~1config.hash"));
    };
    same_container(&seen);
    let owner = &seen.0["metadata"]["ownerReferences"][0];
    let node = member.object().expect("the Node");
    assert_eq!((&owner["kind"], &owner["uid"]), (&json!("Node"), &node["metadata"]["uid"]));
    assert_eq!(seen.text("/metadata/annotations/kubernetes.io~1config.source"), "file");

    // Deleting the mirror ends nothing: another mirror is made for the same pod.
    for grace in [Some(0), None] {
        let before = mirror.look().expect("the mirror");
        mirror.delete(grace);
        let back = mirror.wait("another mirror", LATER, |pod| pod.uid() != before.uid() && pod.is_ready());
        same_container(&back);
    }
    file.write(containers([sleeper("changed")]));
    mirror.wait("the mirror follows the file", LATER, |pod| pod.is_running("changed") && pod.is_ready());
    file.remove();
    eventually("the mirror goes with the file", SOON, || {
        match member.api.get::<Pod>(member.ns(), mirror.name())? {
            None => Ok(()),
            Some(still) => Err(still.to_string()),
        }
    });
    file.gone(&running);
}
