//! Image volumes: what a worker asks for, and what becomes of an answer.

use bridge_cri::fake::{Behaviour, Match};
use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use messages::image_manager::{ImageError, PullPolicy};

use super::*;

const FILES: &str = "registry.test/files:1";

/// The pod with two volumes of one image, which its container mounts.
fn with_volumes() -> DesiredPod {
    let mut with = (*pod(0)).clone();
    let spec = Arc::make_mut(&mut with.pod).spec.as_mut().unwrap();
    let volumes = ["files", "more"].map(|name| -> Volume {
        let image = serde_json::json!({"reference": FILES, "pullPolicy": "Always"});
        serde_json::from_value(serde_json::json!({"name": name, "image": image})).unwrap()
    });
    let mounts = ["files", "more"].map(|name| VolumeMount {
        name: name.to_owned(),
        mount_path: format!("/{name}"),
        ..VolumeMount::default()
    });
    spec.volumes.get_or_insert_default().extend(volumes);
    spec.containers[0].volume_mounts.get_or_insert_default().extend(mounts);
    with
}

/// The pool with that pod. VolumeManager has nothing to mount for its images.
fn begin(stage: &Stage<'_>, near: &Neighbours) -> (Supervised<PodWorkerPool>, PodWorkerMetrics) {
    near.mount.answer(|_| {
        let mut volumes = (*mounted()).clone();
        volumes.host_paths.extend(["files", "more"].map(|name| (name.to_owned(), String::new())));
        Ok(Arc::new(volumes))
    });
    let seat = stage.tree.seat::<PodWorkerPool>(Vitality::Vital);
    let (runtime, looks) = (stage.fakes.runtime.clone(), seat.address());
    near.pleg.answer(move |touched| {
        let _ = looks.tell(told([look(&runtime, touched)]));
    });
    let deps = near.deps(stage, &seat);
    let metrics = deps.worker.metrics.clone();
    let actor = seat.start(&Place::Here, move || PodWorkerPool::new(deps.clone()));
    actor.address().tell(RuntimeObserved(runtime_well())).unwrap();
    actor.address().tell(desired_of(&[Arc::new(with_volumes())])).unwrap();
    (actor, metrics)
}

fn present(stage: &Stage<'_>) -> Arc<PresentImage> {
    let image_ref = stage.fakes.runtime.add_image(IMAGE, RegistryImage::default());
    Arc::new(PresentImage { image_ref, uid: None, username: String::new() })
}

/// What the asks for images were for, in their order.
fn asked_for(near: &Neighbours) -> Vec<String> {
    near.images.heard().iter().map(|ask| ask.container.to_string()).collect()
}

#[test]
fn the_image_of_volumes_is_asked_for_once_and_first_and_again_after_a_crash() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        near.images.fall_silent();
        let (_actor, metrics) = begin(stage, &near);
        stage.until("the image to be asked for", || near.images.count() > 0).await;
        stage.pass(20 * SECOND).await;
        let ask = near.images.last().unwrap();
        assert_eq!((&*ask.image, &*ask.field_path, ask.policy), (FILES, "", PullPolicy::Always));
        // By the sync, and then apart from it.
        assert_eq!(asked_for(&near), ["volume/files", "volume/files"]);
        let image = present(stage);
        near.images.answer(move |_| Ok(image.clone()));
        near.images.take();
        stage.expect_crashes();
        stage.tree.kill(&format!("PodWorker/{}", pod(0).pod_ref.uid)).unwrap();
        stage.until("the container to run", || runs(stage)).await;
        assert_eq!(asked_for(&near), ["volume/files", "web"]);
        assert_eq!((metrics.image_volumes_requested.get(), metrics.image_volumes_mounted.get()), (2, 2));
        let container = stage.fakes.runtime.containers().remove(0);
        let images = container.mounts.iter().filter(|mount| mount.image.is_some() && mount.readonly);
        assert_eq!(images.map(|mount| &*mount.container_path).collect::<Vec<_>>(), ["/files", "/more"]);
    });
}

#[test]
fn a_container_waits_with_the_reason_of_its_volumes_image() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let image = present(stage);
        let own = image.clone();
        near.images.answer(move |ask| match &*ask.container {
            "volume/files" => Err(ImageError {
                reason: "ErrImagePull".to_owned(),
                message: "not found".to_owned(),
                retry_after_ms: Some(5000),
            }),
            _ => Ok(own.clone()),
        });
        let (_actor, _) = begin(stage, &near);
        let said = || near.events.heard().iter().any(|event| &*event.message == "Error: ErrImagePull");
        stage.until("the failure to be told", said).await;
        stage.pass(20 * SECOND).await;
        assert!((2..=8).contains(&near.images.count()), "asked {} times", near.images.count());
        assert!(!asked_for(&near).contains(&"web".to_owned()), "its own image comes after it");
        assert_eq!(calls(stage, Rpc::CreateContainer), 0);
        near.images.answer(move |_| Ok(image.clone()));
        stage.until("the container to run", || runs(stage)).await;
    });
}

#[test]
fn an_image_that_the_runtime_cannot_mount_is_counted() {
    alone(async |stage| {
        let near = Neighbours::new(stage);
        let create_error = Some("failed to mount: ImageVolumeMountFailed: no such part".to_owned());
        let behaviour = Behaviour { create_error, ..Behaviour::forever() };
        stage.fakes.runtime.behave(Match::Any, vec![behaviour]);
        let (_actor, metrics) = begin(stage, &near);
        stage.until("the failure", || metrics.image_volumes_errors.get() >= 2).await;
        assert_eq!(metrics.image_volumes_mounted.get(), 0);
        let said = |event: &RecordEvent| event.message.contains("ImageVolumeMountFailed: no such part");
        stage.until("it to be told", || near.events.heard().iter().any(said)).await;
    });
}
