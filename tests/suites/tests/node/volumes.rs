//! Parts of volumes, and volumes with a group, on fake mounts.

use std::path::PathBuf;
use std::time::Duration;

use bridge_cri::fake::{Behaviour, Match};
use bridge_node::host::FakeDisk;
use bridge_node::mounts::SwapFacts;
use supervision::Policy;
use testkit::node::{FakeNode, IMAGE, World, is_ready, settings};
use testkit::sandbox;

use crate::life::world;

fn pod(command: &str, sub_path: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: parts}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [{command}]
    env: [{{name: POD, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
    volumeMounts:
    - {{name: data, mountPath: /data}}
    - {{name: data, mountPath: /part, {sub_path}}}
  volumes: [{{name: data, emptyDir: {{}}}}]
"
    )
}

fn mounted(world: &World) -> Vec<(PathBuf, PathBuf)> {
    world.disk.mounts().into_iter().map(|mount| (mount.path, mount.root)).collect()
}

/// The only directory of a pod.
fn pod_dir(disk: &FakeDisk) -> PathBuf {
    disk.children("/var/lib/kubelet/pods").pop().expect("a pod has a directory")
}

#[test]
fn it_is_told_where_what_is_kept_in_memory_may_come_to_lie_on_a_disk() {
    for (seed, swap, told) in [
        (15, SwapFacts { on: true, noswap: false }, 1),
        (16, SwapFacts { on: true, noswap: true }, 0),
        (17, SwapFacts { on: false, noswap: false }, 0),
    ] {
        sandbox(Policy::default(), async move |sandbox| {
            let world = world(seed);
            world.disk.set_swap(swap);
            let node = FakeNode::start(sandbox, &world, &settings());
            sandbox.pass(Duration::from_secs(5)).await;
            let events = node.events().await;
            let said: Vec<_> = events
                .iter()
                .filter(|event| &*event.reason == "PossibleMemoryBackedVolumesOnDisk")
                .map(|event| event.message.to_string())
                .collect();
            assert_eq!(said.len(), told, "{swap:?}: {said:?}");
            assert!(said.iter().all(|said| said.starts_with("The tmpfs noswap option is not supported. ")));
            node.stop().await;
        });
    }
}

#[test]
fn a_part_of_a_volume_is_mounted_once_and_taken_down_with_its_pod() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(11);
        let once = Behaviour::exits(Duration::from_secs(1), 1);
        world.runtime.behave(Match::Command("twice".to_owned()), vec![once, Behaviour::forever()]);
        world.manifest("parts.yaml", &pod("twice", "subPathExpr: logs/$(POD)"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the second run", |pods| {
            let Some(status) = pods.get("parts").filter(|status| is_ready(status)) else { return false };
            status.container_statuses.iter().flatten().any(|container| container.restart_count == 1)
        })
        .await;
        let dir = pod_dir(&world.disk);
        let volume = dir.join("volumes/kubernetes.io~empty-dir/data");
        let target = dir.join("volume-subpaths/data/main/1");
        assert_eq!(mounted(&world), [(target.clone(), volume.join("logs/parts-node"))]);
        assert_eq!(world.disk.mode(volume.join("logs/parts-node")), Some(0o777));
        for container in world.runtime.containers() {
            let paths: Vec<_> =
                container.mounts.iter().map(|mount| PathBuf::from(&mount.host_path)).collect();
            assert!(paths.contains(&target) && paths.contains(&volume), "{paths:?}");
        }
        world.remove_manifest("parts.yaml");
        node.until_empty().await;
        node.until("the pod to be forgotten", |pods| pods.is_empty()).await;
        assert_eq!(mounted(&world), []);
        assert_eq!(world.disk.children("/var/lib/kubelet/pods"), Vec::<PathBuf>::new());
    });
}

/// The mounts' names show the values of the variables in them.
#[test]
fn containers_are_told_their_pods_addresses() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(14);
        let own = pod("serve", "subPathExpr: $(IPS)").replace("metadata.name}", "status.podIPs}");
        let own = own.replace("name: POD,", "name: IPS,");
        world.manifest("own.yaml", &own.replace("name: parts", "name: own"));
        let host =
            own.replace("name: parts", "name: host").replace("spec:\n", "spec:\n  hostNetwork: true\n");
        world.manifest("host.yaml", &host);
        let mut settings = settings();
        settings.worker.host_ips = vec!["192.0.2.10".to_owned(), "2001:db8::10".to_owned()];
        let node = FakeNode::start(sandbox, &world, &settings);
        node.until("both to be Ready", |pods| {
            ["own", "host"].iter().all(|name| pods.get(*name).is_some_and(|status| is_ready(status)))
        })
        .await;
        let ip = node.by_name().await["own"].pod_ip.clone().expect("it has an address");
        let mut parts: Vec<String> = mounted(&world)
            .iter()
            .map(|(_, part)| part.file_name().expect("a part").to_string_lossy().into_owned())
            .collect();
        let mut expected = vec!["192.0.2.10,2001:db8::10".to_owned(), ip];
        parts.sort();
        expected.sort();
        assert_eq!(parts, expected);
    });
}

#[test]
fn a_part_that_cannot_be_had_is_told_in_upstreams_words_and_tried_again() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(12);
        world.disk.fail("bind_subpath", "/var/lib/kubelet/pods", 2, "Operation not permitted");
        world.manifest("parts.yaml", &pod("serve", "subPath: part"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the refusal", |pods| {
            let containers =
                pods.get("parts").into_iter().flat_map(|status| status.container_statuses.iter().flatten());
            let waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
            waiting.into_iter().any(|waiting| {
                waiting.reason.as_deref() == Some("CreateContainerConfigError")
                    && waiting.message.as_deref()
                        == Some("failed to prepare subPath for volumeMount \"data\" of container \"main\"")
            })
        })
        .await;
        node.until("it to be had", |pods| pods.get("parts").is_some_and(|status| is_ready(status))).await;
    });
}

#[test]
fn a_volume_that_was_set_up_is_left_as_its_containers_made_it() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(13);
        let once = Behaviour::exits(Duration::from_secs(5), 1);
        world.runtime.behave(Match::Command("twice".to_owned()), vec![once, Behaviour::forever()]);
        world.manifest("parts.yaml", &pod("twice", "subPath: part"));
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("the first run", |pods| pods.get("parts").is_some_and(|status| is_ready(status))).await;
        let volume = pod_dir(&world.disk).join("volumes/kubernetes.io~empty-dir/data");
        assert_eq!(world.disk.mode(&volume), Some(0o777));
        world.disk.set_mode(&volume, 0o700);
        node.until("the second run", |pods| {
            let Some(status) = pods.get("parts").filter(|status| is_ready(status)) else { return false };
            status.container_statuses.iter().flatten().any(|container| container.restart_count == 1)
        })
        .await;
        assert_eq!(world.disk.mode(&volume), Some(0o700));
    });
}

#[test]
fn a_static_pod_is_told_of_itself_and_may_name_a_runtime_class() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(19);
        let about = "downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}";
        let manifest = format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: told, labels: {{a: b}}}}
spec:
  terminationGracePeriodSeconds: 2
  runtimeClassName: sandboxed
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    command: [serve]
    volumeMounts:
    - {{name: about, mountPath: /about}}
    - {{name: all, mountPath: /all}}
  volumes:
  - {{name: about, {about}}}
  - {{name: all, projected: {{sources: [{{{about}}}]}}}}
"
        );
        world.manifest("told.yaml", &manifest);
        let node = FakeNode::start(sandbox, &world, &settings());
        node.until("it to be Ready", |pods| pods.get("told").is_some_and(|status| is_ready(status))).await;
        let volumes = pod_dir(&world.disk).join("volumes");
        for volume in ["kubernetes.io~downward-api/about", "kubernetes.io~projected/all"] {
            let files = world.disk.files_below(volumes.join(volume));
            let shown: Vec<_> = files.into_iter().filter(|(path, _)| path.ends_with("name")).collect();
            let [(_, content)] = shown.as_slice() else { panic!("{volume}: {shown:?}") };
            assert!(content.starts_with(b"told"), "{volume}: {content:?}");
        }
        node.stop().await;
    });
}
