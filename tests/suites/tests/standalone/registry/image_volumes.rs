//! Images as volumes: of a runtime that can mount them their files are there, read-only; of another one its answer is told.

use std::sync::Arc;

use serde_json::json;
use testkit::process::eventually;

use super::server::Registry;
use crate::Alone;
use crate::environment::Environment;
use crate::node::{Node, Options, SOON};
use crate::spec::{OBEDIENT, containers, shell, with};

pub const ALL: &[(&str, Alone)] = &[("the_files_of_an_image_are_a_volume", volumes)];

fn volumes(environment: &Arc<Environment>) {
    let registry = Registry::open(environment);
    let node = Node::alone(environment, "image-volumes", Options::default());
    let image = registry.push("files:1", 12_345).at(registry.port);
    let script = format!(
        "wc -c </files/filler; touch /files/new 2>/dev/null || echo read-only; grep -c ^root: /part/passwd; {OBEDIENT}"
    );
    let mounts = json!({"volumeMounts": [
        {"name": "files", "mountPath": "/files"},
        {"name": "files", "mountPath": "/part", "subPath": "etc"},
    ]});
    let source = json!({"name": "files", "image": {"reference": image, "pullPolicy": "IfNotPresent"}});
    let spec = with(containers([with(shell("main", &script), mounts)]), json!({"volumes": [source]}));
    let file = node.pod("files", spec);
    if !node.cri.mounts_images() {
        let pod = file.wait("an answer", SOON, |pod| pod.waiting("main").0 == "CreateContainerError");
        assert!(pod.waiting("main").1.contains("failed to mkdir"), "{:?}", pod.waiting("main"));
        file.remove();
        return file.gone(&pod);
    }
    let pod = file.ready();
    file.event(&pod, "Normal", "Pulled", &format!("Successfully pulled image \"{image}\" in "));
    eventually("the files are there, read-only, whole and in part", SOON, || {
        let log = file.log(&pod, "main", 0)?;
        if log == ["12345", "read-only", "1"] { Ok(()) } else { Err(format!("{log:?}")) }
    });
    let container = file.running(pod.uid()).pop().expect("it runs");
    let status = node.cri.status(&container.id).expect("it is there");
    let mounted: Vec<_> = status.mounts.iter().filter_map(|mount| mount.image.as_ref()).collect();
    assert!(mounted.len() == 2 && mounted.iter().all(|spec| !spec.image.is_empty()), "{status:?}");
    file.remove();
    file.gone(&pod);
}
