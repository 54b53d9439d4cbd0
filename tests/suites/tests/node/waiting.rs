//! Pods that wait for objects of their volumes and variables: nothing is made for them meanwhile, and they start when
//! the objects exist (rows 5.3 and 10.1).

use std::time::Duration;

use bridge_cri::Rpc;
use bridge_kube::Patch;
use bridge_kube::fake::{FakeApi, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use serde_json::json;
use supervision::Policy;
use testkit::node::{FakeNode, World, settings};
use testkit::sandbox;
use tokio::time::Instant;

use crate::objects::{
    NS, clustered, config_map, mounts_v, pod, read, secret, told_ready, until, volume, waits,
};

/// The time from the object that a pod waits for until the pod is Ready at the API server.
const AT_ONCE: Duration = Duration::from_secs(2);

async fn ready_at_once(api: &FakeApi) {
    let began = Instant::now();
    until("the pod to be Ready", || told_ready(api)).await;
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
}

fn condition(api: &FakeApi, kind: &str) -> Option<String> {
    let conditions = api.get::<Pod>(NS, "web")?.status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == kind).map(|condition| condition.status)
}

/// Counts and messages of the events FailedMount.
fn failed_mounts(api: &FakeApi, part: &str) -> Vec<(i32, String)> {
    let events: Vec<Event> = api.list();
    let mounts = events.into_iter().filter(|event| event.reason.as_deref() == Some("FailedMount"));
    let told = mounts.filter_map(|event| Some((event.count.unwrap_or(1), event.message?)));
    told.filter(|(_, message)| message.contains(part)).collect()
}

fn nothing_was_made(world: &World) -> bool {
    let counts = world.runtime.counts();
    [Rpc::RunPodSandbox, Rpc::PullImage, Rpc::CreateContainer]
        .iter()
        .all(|rpc| counts.get(rpc).copied().unwrap_or(0) == 0)
}

#[test]
fn a_pod_that_waits_for_its_secret_has_no_sandbox_and_starts_when_the_secret_comes() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(81);
        let items = json!([{"key": "a", "path": "a"}]);
        pod(&api, mounts_v(), json!([{"name": "v", "secret": {"secretName": "late", "items": items}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        let waiting = || condition(&api, "PodReadyToStartContainers").as_deref() == Some("False");
        until("the pod to wait", waiting).await;
        let missing = "MountVolume.SetUp failed for volume \"v\" : secret \"late\" not found";
        until("word of the secret", || !failed_mounts(&api, missing).is_empty()).await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(nothing_was_made(&world), "{:?}", world.runtime.counts());
        let status = api.get::<Pod>(NS, "web").and_then(|pod| pod.status).expect("a status");
        assert_eq!((status.pod_ip.clone(), status.pod_ips.clone()), (None, None));
        assert!(waiting());
        let containers = status.container_statuses.expect("containers");
        let reason =
            containers[0].state.clone().and_then(|state| state.waiting).and_then(|waiting| waiting.reason);
        assert_eq!(reason.as_deref(), Some("ContainerCreating"));

        // By now the pause is long, and ends nevertheless as soon as all objects exist.
        secret(&api, "late", json!({"b": "Yg=="}));
        let key = "MountVolume.SetUp failed for volume \"v\" : references non-existent secret key: a";
        until("word of the key", || !failed_mounts(&api, key).is_empty()).await;
        assert!(nothing_was_made(&world));
        sandbox.pass(Duration::from_secs(100)).await;
        api.change::<Secret>(NS, "late", None, &Patch::Merge(json!({"data": {"a": "YQ=="}})));
        ready_at_once(&api).await;
        assert_eq!(condition(&api, "PodReadyToStartContainers").as_deref(), Some("True"));
        node.stop().await;
    });
}

#[test]
fn a_missing_volume_is_tried_less_and_less_often_and_a_lasting_wait_is_told_of() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(82);
        pod(&api, mounts_v(), json!([{"name": "v", "configMap": {"name": "late"}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        let tries = async || {
            let events = node.events().await;
            let mount = "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found";
            events.iter().filter(|event| &*event.message == mount).map(|event| event.count).sum::<u32>()
        };
        until("the first try", || !failed_mounts(&api, "MountVolume.SetUp").is_empty()).await;
        // After 0.5, 1, 2, 4, 8, 16, 32 and 64 seconds, and then every 122.
        sandbox.pass(Duration::from_secs(6)).await;
        assert_eq!(tries().await, 4);
        sandbox.pass(Duration::from_secs(64)).await;
        assert_eq!(tries().await, 8);
        assert!(failed_mounts(&api, "Unable to attach").is_empty(), "two minutes are not over");
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(tries().await, 9);
        let told = failed_mounts(&api, "Unable to attach");
        assert_eq!(
            told,
            [(1, "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition".to_owned())]
        );
        sandbox.pass(Duration::from_secs(610)).await;
        assert_eq!(tries().await, 14);
        assert_eq!(api.count(Verb::List, "configmaps"), 1, "tries cost the server nothing");
        config_map(&api, "late", json!({"a": "one"}));
        ready_at_once(&api).await;
        node.stop().await;
    });
}

#[test]
fn what_holds_a_volume_back_holds_no_other_volume() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(83);
        let both =
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"}]});
        let volumes = json!([
            {"name": "v", "configMap": {"name": "late"}}, {"name": "w", "secret": {"secretName": "later"}}
        ]);
        pod(&api, both, volumes);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("both to be missed", || failed_mounts(&api, "MountVolume.SetUp").len() == 2).await;
        sandbox.pass(Duration::from_secs(5)).await;
        config_map(&api, "late", json!({"a": "one"}));
        let v = volume(&world, "configmap");
        until("the one to be mounted", || read(&world, &v, "a").is_some()).await;
        sandbox.pass(Duration::from_secs(130)).await;
        let told = failed_mounts(&api, "Unable to attach");
        assert!(told.len() == 1 && told[0].1.contains("unmounted volumes=[w], "), "{told:?}");
        secret(&api, "later", json!({"a": "YQ=="}));
        ready_at_once(&api).await;
        node.stop().await;
    });
}

#[test]
fn variables_have_their_container_started_as_soon_as_they_are_there() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(84);
        let env =
            json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "a"}}}]});
        pod(&api, env, json!([]));
        let node = FakeNode::start(sandbox, &world, &settings());
        let says =
            |text: &str| waits(&api) == Some(("CreateContainerConfigError".to_owned(), text.to_owned()));
        until("word of the object", || says("configmap \"late\" not found")).await;
        config_map(&api, "late", json!({"b": "two"}));
        let began = Instant::now();
        until("word of the key", || says("couldn't find key a in ConfigMap default/late")).await;
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        api.change::<ConfigMap>(NS, "late", None, &Patch::Merge(json!({"data": {"a": "one"}})));
        ready_at_once(&api).await;
        assert_eq!(world.runtime.sandboxes().len(), 1);
        node.stop().await;
    });
}

#[test]
fn volumes_that_are_there_hold_no_later_sandbox_up() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(87);
        secret(&api, "gone", json!({"a": "YQ=="}));
        pod(&api, mounts_v(), json!([{"name": "v", "secret": {"secretName": "gone"}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        api.delete::<Secret>(NS, "gone", None);
        sandbox.pass(Duration::from_secs(5)).await;
        let before = world.runtime.sandboxes()[0].id.clone();
        assert!(world.runtime.kill_sandbox(&before));
        let runs_again = || {
            let sandboxes = world.runtime.sandboxes();
            sandboxes.iter().any(|one| one.id != before) && told_ready(&api)
        };
        until("the pod to be Ready in another sandbox", runs_again).await;
        let v = volume(&world, "secret");
        assert_eq!(read(&world, &v, "a").as_deref(), Some("a"), "as it was");
        node.stop().await;
    });
}
