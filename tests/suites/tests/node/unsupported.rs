//! Pods with fields that this kubelet does not support yet: they wait for a kubelet that does.

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_kube::Patch;
use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::{Event, Pod, PodStatus};
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, is_ready, settings};
use testkit::sandbox;

use crate::cluster::{clustered, pod, until};

const NS: Option<&str> = Some("default");
const WHY: &str = "spec.volumes[0].rbd is not supported by this version of the kubelet";

fn wants_rbd(name: &str) -> Pod {
    let mut wants = pod(name, "serve");
    let volume = json!([{ "name": "v", "rbd": { "monitors": ["m"], "image": "i" } }]);
    wants.spec.as_mut().expect("a spec").volumes = serde_json::from_value(volume).expect("volumes");
    wants
}

fn status(api: &FakeApi, name: &str) -> PodStatus {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).unwrap_or_default()
}

fn waits(status: &PodStatus, why: &str) -> bool {
    let mut containers = status.container_statuses.iter().flatten();
    let is_created = containers.any(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("ContainerCreating"))
    });
    status.phase.as_deref() == Some("Pending")
        && status.reason.as_deref() == Some("UnsupportedFields")
        && status.message.as_deref() == Some(why)
        && status.start_time.is_none()
        && is_created
}

fn patch(api: &FakeApi, name: &str, subresource: Option<&str>, change: Value) {
    api.change::<Pod>(NS, name, subresource, &Patch::Strategic(change));
}

/// Warnings about a pod at the API server, with their counts.
fn warnings(api: &FakeApi, name: &str) -> Vec<(String, i32)> {
    let events: Vec<Event> = api.list();
    let about = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
    let warnings = about.filter(|event| event.type_.as_deref() == Some("Warning"));
    warnings.map(|event| (event.reason.unwrap_or_default(), event.count.unwrap_or(1))).collect()
}

#[test]
fn it_stays_pending_over_restarts_takes_no_room_and_is_deleted_at_once() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(61);
        api.put(&wants_rbd("rbd"));
        let mut settings = settings();
        settings.admission.pods_max = 1;
        let node = FakeNode::start(sandbox, &world, &settings);
        until("the reason to be told", || waits(&status(&api, "rbd"), WHY)).await;
        sandbox.pass(Duration::from_secs(90)).await;
        assert_eq!(warnings(&api, "rbd"), [("UnsupportedFields".to_owned(), 1)]);
        // Neither a restart of the kubelet nor a status from another writer starts the pod.
        let forged = json!({ "status": {
            "startTime": "2026-01-01T00:00:00Z",
            "containerStatuses": [{ "name": "main", "containerID": "containerd://c", "image": "i", "imageID": "i",
                "ready": true, "restartCount": 0, "state": { "running": {} } }]
        } });
        patch(&api, "rbd", Some("status"), forged);
        let node = node.restart(&settings, Policy::default()).await;
        api.put(&pod("fits", "serve"));
        until("the only place to be taken", || is_ready(&status(&api, "fits"))).await;
        assert_eq!(status(&api, "rbd").phase.as_deref(), Some("Pending"));
        assert_eq!(world.runtime.counts().get(&Rpc::RunPodSandbox), Some(&1), "the other one");
        let begun = tokio::time::Instant::now();
        api.delete::<Pod>(NS, "rbd", None);
        until("it to be gone", || api.get::<Pod>(NS, "rbd").is_none()).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        node.stop().await;
    });
}

#[test]
fn a_static_one_is_pending_too_and_its_mirror_says_so() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(63);
        let manifest = "apiVersion: v1
kind: Pod
metadata: {name: wants}
spec:
  containers: [{name: main, image: i}]
  volumes: [{name: v, rbd: {monitors: [m], image: i}}]
";
        world.manifest("wants.yaml", manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the mirror to say so", || waits(&status(&api, "wants-node"), WHY)).await;
        assert!(waits(&node.by_name().await["wants"], WHY));
        assert!(world.runtime.sandboxes().is_empty());
        world.manifest(
            "wants.yaml",
            &manifest.replace("  volumes: [{name: v, rbd: {monitors: [m], image: i}}]\n", ""),
        );
        node.until("the edited one to be tried", |pods| {
            pods.get("wants").is_some_and(|status| status.reason.is_none() && status.start_time.is_some())
        })
        .await;
        world.remove_manifest("wants.yaml");
        node.until_empty().await;
        node.stop().await;
    });
}
