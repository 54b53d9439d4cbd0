use std::sync::Arc;

use k8s_openapi::api::core::v1::VolumeMountStatus;
use messages::runtime::{Effective, RuntimePod};

use crate::scenes::*;

#[test]
fn a_mount_of_an_image_tells_which_one_it_is_while_its_gate_is_on() {
    let mounts = serde_json::json!([
        {"name": "files", "mountPath": "files"}, {"name": "other", "mountPath": "/other"},
    ]);
    let spec = serde_json::json!({"containers": [{"name": "main", "volumeMounts": mounts}]});
    let mut scene = Scene::new(serde_json::from_value(spec).unwrap());
    let mounted_images = [(Arc::<str>::from("/files"), Arc::<str>::from("sha256:1"))].into();
    let effective = Effective { mounted_images, ..Effective::default() };
    let mut pod = observed(vec![running("main", "1", 0)]);
    pod.containers[0].effective = Some(Arc::new(effective));
    let mut told = |on: bool, pod: &RuntimePod| -> Vec<Option<String>> {
        scene.node.image_volume_digests = on;
        let mounts = of(scene.observed(pod.clone()), "main").volume_mounts.clone().unwrap();
        let image = |mount: VolumeMountStatus| Some(mount.volume_status?.image?.image_ref);
        mounts.into_iter().map(image).collect()
    };
    assert_eq!(told(false, &pod), [None, None]);
    assert_eq!(told(true, &pod), [Some("sha256:1".to_owned()), None]);
    pod.containers[0].effective = None;
    assert_eq!(told(true, &pod), [None, None], "the runtime does not tell");
}
