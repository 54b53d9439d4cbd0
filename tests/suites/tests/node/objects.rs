//! Objects that pods of the API server need besides themselves: secrets, config maps and tokens, on a server in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::RegistryImage;
use bridge_cri::wire;
use bridge_kube::fake::{FakeApi, Verb};
use bridge_kube::{Object, Patch};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use kubelet::wiring::{ObjectStrategy, Settings};
use pod_worker::NodeRules;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

pub(crate) const NS: Option<&str> = Some("default");

pub(crate) fn object<K: Object>(value: Value) -> K {
    serde_json::from_value(value).expect("an object of the API")
}

pub(crate) fn clustered(seed: u64) -> (World, FakeApi) {
    let mut world = world(seed);
    let api = FakeApi::new(world.clock.clone());
    api.put(&object::<Node>(json!({"metadata": {"name": "node"}})));
    api.put(&object::<ServiceAccount>(json!({"metadata": {"name": "default", "namespace": "default"}})));
    world.api = Some(api.clone());
    (world, api)
}

pub(crate) fn config_map(api: &FakeApi, name: &str, data: Value) {
    api.put(&object::<ConfigMap>(json!({"metadata": {"name": name, "namespace": "default"}, "data": data})));
}

pub(crate) fn secret(api: &FakeApi, name: &str, data: Value) {
    api.put(&object::<Secret>(json!({"metadata": {"name": name, "namespace": "default"}, "data": data})));
}

/// A container with these fields besides its image.
pub(crate) fn container(name: &str, more: Value) -> Value {
    let mut one =
        json!({"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["serve"]});
    one.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
    one
}

/// A pod whose container has these fields besides its name and image, and these volumes.
pub(crate) fn pod(api: &FakeApi, more: Value, volumes: Value) -> Pod {
    api.put(&object::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {
            "nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default",
            "containers": [container("main", more)], "volumes": volumes,
        },
    })))
}

pub(crate) async fn until(what: &str, done: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(300);
    while !done() {
        assert!(tokio::time::Instant::now() < end, "waited 5 minutes in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn ready(api: &FakeApi, name: &str) -> bool {
    api.get::<Pod>(NS, name).and_then(|pod| pod.status).is_some_and(|status| is_ready(&status))
}

pub(crate) fn told_ready(api: &FakeApi) -> bool {
    ready(api, "web")
}

/// Reason and message with which the only container of the pod waits.
pub(crate) fn waits(api: &FakeApi) -> Option<(String, String)> {
    let status = api.get::<Pod>(NS, "web")?.status?;
    let waiting = status.container_statuses?.first()?.state.clone()?.waiting?;
    Some((waiting.reason?, waiting.message?))
}

/// The directory of a volume of the only pod.
pub(crate) fn volume(world: &World, plugin: &str) -> PathBuf {
    let pod = world.disk.children("/var/lib/kubelet/pods").pop().expect("a pod has a directory");
    pod.join(format!("volumes/kubernetes.io~{plugin}/v"))
}

/// The content of a file of a volume, as a container reads it.
pub(crate) fn read(world: &World, volume: &std::path::Path, path: &str) -> Option<String> {
    let data = volume.join(world.disk.link_target(volume.join("..data"))?);
    String::from_utf8(world.disk.read(data.join(path))?).ok()
}

pub(crate) fn mounts_v() -> Value {
    json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})
}

#[test]
fn a_volume_follows_its_config_map_and_is_left_alone_otherwise() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(21);
        config_map(&api, "conf", json!({"a": "one", "b": "two"}));
        pod(&api, mounts_v(), json!([{"name": "v", "configMap": {"name": "conf"}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let v = volume(&world, "configmap");
        assert_eq!((read(&world, &v, "a"), read(&world, &v, "b")), (Some("one".into()), Some("two".into())));
        let read_only = |world: &World| {
            let containers = world.runtime.containers();
            containers[0].mounts.iter().any(|mount| mount.container_path == "/v" && mount.readonly)
        };
        assert!(read_only(&world), "whatever the container says");

        let link = world.disk.link_target(v.join("..data"));
        sandbox.pass(Duration::from_secs(200)).await;
        assert_eq!(world.disk.link_target(v.join("..data")), link, "nothing has changed");
        assert_eq!(api.count(Verb::List, "configmaps"), 1, "one list and one watch for all looks");

        api.change::<ConfigMap>(NS, "conf", None, &Patch::Merge(json!({"data": {"a": "other", "b": null}})));
        until("the new content", || read(&world, &v, "a").as_deref() == Some("other")).await;
        assert_eq!(read(&world, &v, "b"), None);

        // A pod that has an object's content keeps it when the object is deleted.
        api.delete::<ConfigMap>(NS, "conf", None);
        sandbox.pass(Duration::from_secs(130)).await;
        assert_eq!(read(&world, &v, "a").as_deref(), Some("other"));
        assert!(told_ready(&api));
        let message = "MountVolume.SetUp failed for volume \"v\" : configmap \"conf\" not found";
        assert!(node.events().await.iter().any(|event| &*event.message == message));

        api.delete::<Pod>(NS, "web", None);
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(200)).await;
        assert!(world.disk.children("/var/lib/kubelet/pods").is_empty());
        let observed = node.tree.snapshot().await;
        let cache = observed.actors.iter().find(|actor| actor.kind == "ObjectCache").expect("it is there");
        assert_eq!(cache.observed["configMaps"], 0, "nobody needs it any more");
        node.stop().await;
    });
}

#[test]
fn without_watches_a_volume_follows_its_config_map_by_reads_alone() {
    for objects in [ObjectStrategy::Cache, ObjectStrategy::Get] {
        sandbox(Policy::default(), async |sandbox| {
            let (world, api) = clustered(31);
            config_map(&api, "conf", json!({"a": "one"}));
            secret(&api, "env", json!({"a": "YQ=="}));
            let mut more = mounts_v();
            more["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}}]);
            pod(&api, more, json!([{"name": "v", "configMap": {"name": "conf"}}]));
            let node = FakeNode::start(sandbox, &world, &Settings { objects, ..settings() });
            until("the pod to be Ready", || told_ready(&api)).await;
            let v = volume(&world, "configmap");
            api.change::<ConfigMap>(NS, "conf", None, &Patch::Merge(json!({"data": {"a": "other"}})));
            until("the new content", || read(&world, &v, "a").as_deref() == Some("other")).await;
            let reads = api.count(Verb::Get, "configmaps");
            sandbox.pass(Duration::from_secs(200)).await;
            let quiet = api.count(Verb::Get, "configmaps") - reads;
            assert!((1..=8).contains(&quiet), "{objects:?}: {quiet}");
            let lists = (api.count(Verb::List, "configmaps"), api.count(Verb::List, "secrets"));
            assert_eq!(lists, (0, 0), "{objects:?}");
            node.stop().await;
        });
    }
}

#[test]
fn what_changed_while_no_kubelet_ran_is_shown_by_the_next_one_at_once() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(27);
        config_map(&api, "conf", json!({"a": "one"}));
        pod(&api, mounts_v(), json!([{"name": "v", "configMap": {"name": "conf"}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let v = volume(&world, "configmap");
        node.stop().await;

        api.change::<ConfigMap>(NS, "conf", None, &Patch::Merge(json!({"data": {"a": "other"}})));
        let began = tokio::time::Instant::now();
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the new content", || read(&world, &v, "a").as_deref() == Some("other")).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(world.runtime.containers().len(), 1);
        node.stop().await;
    });
}

#[test]
fn why_a_finished_pod_ended_stays_on_disk_while_it_is_listed() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(29);
        let mut once = pod(&api, json!({}), json!([{"name": "v", "emptyDir": {}}]));
        api.delete::<Pod>(NS, "web", Some(0));
        once.metadata =
            serde_json::from_value(json!({"name": "web", "namespace": "default"})).expect("metadata");
        once.spec.as_mut().expect("a spec").restart_policy = Some("Never".to_owned());
        api.put(&once);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let id = world.runtime.containers()[0].id.clone();
        assert!(world.runtime.exit_container(&id, 0, false), "it runs");
        let over =
            || api.get::<Pod>(NS, "web").and_then(|pod| pod.status?.phase).as_deref() == Some("Succeeded");
        until("its end", over).await;
        sandbox.pass(Duration::from_secs(300)).await;
        let pods = world.disk.children("/var/lib/kubelet/pods");
        let left: Vec<_> = pods.iter().flat_map(|pod| world.disk.children(pod)).collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].ends_with("containers"), "{left:?}");

        api.delete::<Pod>(NS, "web", None);
        until("the directory to go", || world.disk.children("/var/lib/kubelet/pods").is_empty()).await;
        node.stop().await;
    });
}

#[test]
fn variables_wait_for_their_objects_and_say_for_which() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(22);
        let env =
            json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "late", "key": "a"}}}]});
        pod(&api, env, json!([]));
        let node = FakeNode::start(sandbox, &world, &settings());
        let says =
            |text: &str| waits(&api) == Some(("CreateContainerConfigError".to_owned(), text.to_owned()));
        until("word of the secret", || says("secret \"late\" not found")).await;
        secret(&api, "late", json!({"b": "Yg=="}));
        until("word of the key", || says("couldn't find key a in Secret default/late")).await;
        api.change::<Secret>(NS, "late", None, &Patch::Merge(json!({"data": {"a": "YQ=="}})));
        until("the pod to be Ready", || told_ready(&api)).await;
        assert_eq!(world.runtime.containers().len(), 1);
        node.stop().await;
    });
}

#[test]
fn a_token_is_renewed_before_it_ends_and_kept_by_the_next_kubelet() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(23);
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": 600, "path": "token"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]);
        pod(&api, mounts_v(), json!([{"name": "v", "projected": {"sources": sources}}]));
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let v = volume(&world, "projected");
        assert!(world.disk.mounts().iter().any(|mount| mount.path == v && mount.fs_type == "tmpfs"));
        let first = read(&world, &v, "token").expect("a token");
        sandbox.pass(Duration::from_secs(400)).await;
        assert_eq!(read(&world, &v, "token").as_ref(), Some(&first), "it has time left");
        sandbox.pass(Duration::from_secs(150)).await;
        let second = read(&world, &v, "token").expect("a token");
        assert_ne!(second, first);

        api.change::<Pod>(NS, "web", None, &Patch::Merge(json!({"metadata": {"labels": {"more": "yes"}}})));
        let labels = || read(&world, &v, "labels");
        until("the new label", || labels().as_deref() == Some("app=\"web\"\nmore=\"yes\"")).await;
        assert_eq!(read(&world, &v, "token").as_ref(), Some(&second));

        let node = node.restart(&settings(), Policy::default()).await;
        sandbox.pass(Duration::from_secs(700)).await;
        assert_ne!(read(&world, &v, "token").as_ref(), Some(&second), "without a new container");
        assert_eq!(world.runtime.containers().len(), 1);
        node.stop().await;
    });
}

#[test]
fn a_missing_pull_secret_is_told_of_and_holds_nothing_up() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(24);
        let mut wanted = pod(&api, json!({}), json!([]));
        api.delete::<Pod>(NS, "web", Some(0));
        wanted.metadata =
            serde_json::from_value(json!({"name": "web", "namespace": "default"})).expect("metadata");
        let secrets = serde_json::from_value(json!([{"name": "none"}, {"name": "nor-this"}])).expect("names");
        wanted.spec.as_mut().expect("a spec").image_pull_secrets = Some(secrets);
        api.put(&wanted);
        let node = FakeNode::start(sandbox, &world, &settings());
        until("the pod to be Ready", || told_ready(&api)).await;
        let events = node.events().await;
        let told = events.iter().find(|event| &*event.reason == "FailedToRetrieveImagePullSecret");
        assert_eq!(
            told.map(|event| &*event.message),
            Some(
                "Unable to retrieve some image pull secrets (none, nor-this); attempting to pull the image may not succeed."
            )
        );
        node.stop().await;
    });
}

#[test]
fn a_runtime_class_chooses_the_handler_and_without_it_the_pod_waits() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(39);
        let features =
            wire::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
        let handler = |name: &str, features| wire::RuntimeHandler { name: name.to_owned(), features };
        world.runtime.set_handlers(vec![handler("", None), handler("other", Some(features))]);
        api.put(&object::<Pod>(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "nodeName": "node", "terminationGracePeriodSeconds": 1, "runtimeClassName": "special",
                "containers": [container("main", json!({}))],
            },
        })));
        let node = FakeNode::start(sandbox, &world, &settings());
        let failures = || -> Vec<String> {
            let events: Vec<Event> = api.list();
            let failed =
                events.into_iter().filter(|event| event.reason.as_deref() == Some("FailedCreatePodSandBox"));
            failed.filter_map(|event| event.message).collect()
        };
        until("the class to be missed", || !failures().is_empty()).await;
        let expected = "Failed to create pod sandbox: runtimeclass.node.k8s.io \"special\" not found";
        assert_eq!(failures(), [expected]);
        let phase = || api.get::<Pod>(NS, "web").and_then(|pod| pod.status?.phase);
        assert_eq!(phase().as_deref(), Some("Pending"), "it may still be made");
        let class = |handler: &str| json!({"metadata": {"name": "special"}, "handler": handler});
        api.put(&object::<RuntimeClass>(class("none")));
        let unknown = "no runtime for \"none\" is configured";
        until("the handler to be missed", || failures().iter().any(|text| text.ends_with(unknown))).await;
        assert!(api.delete::<RuntimeClass>(None, "special", None));
        api.put(&object::<RuntimeClass>(class("other")));
        until("the pod to be ready", || told_ready(&api)).await;
        let sandboxes = world.runtime.sandboxes();
        assert_eq!(sandboxes.iter().map(|one| one.runtime_handler.as_str()).collect::<Vec<_>>(), ["other"]);
        node.stop().await;
    });
}

#[test]
fn an_image_is_pulled_with_the_handler_of_its_pod_while_the_gate_is_on() {
    for on in [true, false] {
        sandbox(Policy::default(), async |sandbox| {
            let (world, api) = clustered(32);
            let handler = |name: &str| wire::RuntimeHandler {
                name: name.to_owned(),
                ..wire::RuntimeHandler::default()
            };
            world.runtime.set_handlers(vec![handler(""), handler("other")]);
            world.runtime.publish(IMAGE, RegistryImage::default());
            api.put(&object::<RuntimeClass>(json!({"metadata": {"name": "special"}, "handler": "other"})));
            api.put(&object::<Pod>(json!({
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "nodeName": "node", "terminationGracePeriodSeconds": 1, "runtimeClassName": "special",
                    "containers": [container("main", json!({"imagePullPolicy": "Always"}))],
                },
            })));
            let mut settings = settings();
            settings.worker.rules =
                Arc::new(NodeRules { images_by_handler: on, ..NodeRules::clone(&settings.worker.rules) });
            let node = FakeNode::start(sandbox, &world, &settings);
            until("the pod to be Ready", || told_ready(&api)).await;
            let pulled = world.runtime.pulls().into_iter().filter_map(|pull| pull.image);
            let handlers: Vec<_> = pulled.map(|image| image.runtime_handler).collect();
            assert_eq!(handlers, [if on { "other" } else { "" }]);
            node.stop().await;
        });
    }
}

#[test]
fn a_namespace_with_thousands_of_objects_has_its_share_of_watches_and_delays_no_other() {
    sandbox(Policy::default(), async |sandbox| {
        let (world, api) = clustered(71);
        let node = FakeNode::start(sandbox, &world, &settings());
        sandbox.pass(Duration::from_secs(5)).await;
        let others = api.watches();
        let from: Vec<Value> = (0..3000)
            .map(|number| json!({"configMapRef": {"name": format!("map-{number}"), "optional": true}}))
            .collect();
        for name in ["crowd-1", "crowd-2"] {
            api.put(&object::<Pod>(json!({
                "metadata": {"name": name, "namespace": "crowd"},
                "spec": {
                    "nodeName": "node", "terminationGracePeriodSeconds": 1,
                    "containers": [container("main", json!({"envFrom": from}))],
                },
            })));
        }
        until("the first watches", || api.watches() == others + 256).await;
        secret(&api, "key", json!({"a": "YQ=="}));
        let began = tokio::time::Instant::now();
        pod(&api, mounts_v(), json!([{"name": "v", "secret": {"secretName": "key"}}]));
        until("the neighbour to be Ready", || told_ready(&api)).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let ready = |name: &str| {
            let status = api.get::<Pod>(Some("crowd"), name).and_then(|pod| pod.status);
            status.is_some_and(|status| is_ready(&status))
        };
        until("the crowd to be Ready", || ready("crowd-1") && ready("crowd-2")).await;
        assert_eq!(api.watches(), others + 256);
        let pods = world.disk.children("/var/lib/kubelet/pods");
        let v = pods.iter().map(|pod| pod.join("volumes/kubernetes.io~secret/v"));
        let v = v.into_iter().find(|v| read(&world, v, "a").is_some()).expect("a volume");
        let began = tokio::time::Instant::now();
        api.change::<Secret>(NS, "key", None, &Patch::Merge(json!({"data": {"a": "Yg=="}})));
        until("the new content", || read(&world, &v, "a").as_deref() == Some("b")).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(api.count(Verb::List, "secrets"), 1, "it is watched");
        sandbox.pass(Duration::from_secs(120)).await;
        assert_eq!(api.watches(), others + 256);
        node.stop().await;
    });
}
