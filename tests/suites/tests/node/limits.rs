//! Pods at the API's limits of size and count: each works or says what is too much, at bounded cost, and a neighbour
//! notices nothing.

use std::time::Duration;

use bridge_kube::fake::FakeApi;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use supervision::Policy;
use testkit::node::{FakeNode, settings};
use testkit::sandbox;

use crate::objects::{NS, clustered, config_map, container, object, ready, until, waits};

/// What a server takes at most as one object.
const OBJECT_BYTES_MAX: usize = 1536 * 1024;
/// The most processor time that the node may take for such a pod, unoptimized; the watchdog ends a process of which one
/// message takes 30 s.
const WORK_MAX: Duration = Duration::from_secs(25);
/// The most memory that the process may ever hold.
const MEMORY_MAX_KIB: u64 = 1536 * 1024;

/// What becomes of the pod.
enum Expected {
    Ready,
    /// It waits; its container's state or an event says this.
    Waits(&'static str),
}

/// The processor time that this thread has taken.
fn work() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux kernel");
    let nanoseconds = stat.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.expect("nanoseconds on the processor"))
}

fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux kernel");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn put(api: &FakeApi, name: &str, spec: Value) {
    let mut whole =
        json!({"nodeName": "node", "terminationGracePeriodSeconds": 1, "serviceAccountName": "default"});
    whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let pod = json!({"metadata": {"name": name, "namespace": "default"}, "spec": whole});
    let bytes = pod.to_string().len();
    assert!(bytes <= OBJECT_BYTES_MAX, "a server does not take {bytes} bytes");
    api.put(&object::<Pod>(pod));
}

fn objects(api: &FakeApi) {
    let data = |keys: usize, length: usize| -> Value {
        (0..keys).map(|key| (format!("k{key}"), json!("v".repeat(length)))).collect()
    };
    config_map(api, "many", data(30_000, 20));
    config_map(api, "large", data(10, 100_000));
}

/// Runs the node with such a pod and with neighbours that come before and after it.
fn withstood(seed: u64, spec: Value, expected: Expected) {
    sandbox(Policy::default(), async move |sandbox| {
        let (world, api) = clustered(seed);
        objects(&api);
        // An event of the fake runtime tells of all containers of its pod.
        world.runtime.set_events(false);
        let node = FakeNode::start(sandbox, &world, &settings());
        put(&api, "before", json!({"containers": [container("main", json!({}))]}));
        until("the neighbour", || ready(&api, "before")).await;
        let before = node.by_name().await["before"].clone();
        let begun = work();
        put(&api, "web", spec);
        sandbox.pass(Duration::from_millis(100)).await;
        let asked = tokio::time::Instant::now();
        put(&api, "after", json!({"containers": [container("main", json!({}))]}));
        until("a neighbour that comes later", || ready(&api, "after")).await;
        assert!(asked.elapsed() < Duration::from_secs(10), "it waited for {:?}", asked.elapsed());
        sandbox.pass(Duration::from_secs(30)).await;
        match expected {
            Expected::Ready => assert!(ready(&api, "web"), "{:?}", waits(&api)),
            Expected::Waits(said) => {
                let mut messages: Vec<String> = waits(&api).into_iter().map(|(_, message)| message).collect();
                messages.extend(node.events().await.into_iter().map(|event| event.message.to_string()));
                assert!(messages.iter().any(|message| message.contains(said)), "{messages:?}");
            }
        }
        sandbox.pass(Duration::from_secs(60)).await;
        api.delete::<Pod>(NS, "web", None);
        until("the pod to be gone", || {
            api.get::<Pod>(NS, "web").is_none() && world.runtime.sandboxes().len() == 2
        })
        .await;
        assert_eq!(node.by_name().await["before"], before, "the neighbour has not been touched");
        let (work, peak) = (work().saturating_sub(begun), memory_peak_kib());
        assert!(work < WORK_MAX, "{work:?} of work");
        assert!(peak < MEMORY_MAX_KIB, "{peak} KiB of memory");
    });
}

#[test]
fn a_thousand_containers() {
    let containers: Vec<_> = (0..1000).map(|n| container(&format!("c{n}"), json!({}))).collect();
    withstood(201, json!({"containers": containers}), Expected::Ready);
}

#[test]
fn twenty_thousand_variables_that_refer_to_each_other() {
    let variable = |n: usize| json!({"name": format!("V{n}"), "value": format!("$(V{}) $(V0) $$(X)", n / 2)});
    let env: Vec<_> = (0..20_000).map(variable).collect();
    withstood(202, json!({"containers": [container("main", json!({"env": env}))]}), Expected::Ready);
}

#[test]
fn two_thousand_times_all_keys_of_a_config_map() {
    let from = |n: usize| json!({"prefix": format!("P{n}_"), "configMapRef": {"name": "many"}});
    let from: Vec<_> = (0..2000).map(from).collect();
    let main = container("main", json!({"envFrom": from}));
    withstood(203, json!({"containers": [main]}), Expected::Waits("bytes"));
}

#[test]
fn a_long_prefix_before_all_keys_of_a_config_map() {
    let from = json!([{"prefix": "P".repeat(400_000), "configMapRef": {"name": "many"}}]);
    let main = container("main", json!({"envFrom": from}));
    withstood(204, json!({"containers": [main]}), Expected::Waits("bytes"));
}

#[test]
fn four_thousand_mounts_of_two_volumes_in_other_spellings() {
    let whole = |n: usize| json!({"name": "keys", "mountPath": format!("/m{n}{}", "/.".repeat(n % 7))});
    let part = |n: usize| json!({"name": "v", "mountPath": format!("/p{n}"), "subPath": format!("{}d{}", "./".repeat(n % 7), n % 90)});
    let mounts: Vec<_> = (0..3500).map(whole).chain((0..500).map(part)).collect();
    let volumes = json!([{"name": "keys", "configMap": {"name": "many"}}, {"name": "v", "emptyDir": {}}]);
    let main = container("main", json!({"volumeMounts": mounts}));
    withstood(205, json!({"containers": [main], "volumes": volumes}), Expected::Ready);
}

#[test]
fn eight_hundred_paths_made_of_a_long_variable() {
    let env: Vec<_> = [json!({"name": "LONG", "value": "x".repeat(100_000)})].to_vec();
    let mount =
        |n: usize| json!({"name": "v", "mountPath": format!("/m{n}"), "subPathExpr": "$(LONG)".repeat(50)});
    let mounts: Vec<_> = (0..800).map(mount).collect();
    let main = container("main", json!({"env": env, "volumeMounts": mounts}));
    let volumes = json!([{"name": "v", "emptyDir": {}}]);
    withstood(
        206,
        json!({"containers": [main], "volumes": volumes}),
        Expected::Waits("the path would have more than 4096 bytes"),
    );
}

#[test]
fn six_thousand_sources_that_are_not_there_and_need_not_be() {
    let source = |n: usize| json!({"configMap": {"name": format!("none{n}"), "optional": true}});
    let sources: Vec<_> = (0..6000).map(source).collect();
    let volumes = json!([{"name": "v", "projected": {"sources": sources}}]);
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let main = container("main", json!({"volumeMounts": mounts}));
    withstood(207, json!({"containers": [main], "volumes": volumes}), Expected::Ready);
}

#[test]
fn a_thousand_volumes_of_large_objects() {
    let volume = |n: usize| json!({"name": format!("v{n}"), "configMap": {"name": "large"}});
    let volumes: Vec<_> = (0..1000).map(volume).collect();
    let mount = |n: usize| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}")});
    let mounts: Vec<_> = (0..1000).map(mount).collect();
    let main = container("main", json!({"volumeMounts": mounts}));
    withstood(208, json!({"containers": [main], "volumes": volumes}), Expected::Waits("bytes"));
}

#[test]
fn a_hook_and_arguments_of_control_characters() {
    let wild = "\u{1}".repeat(100_000);
    let hook = json!({"preStop": {"exec": {"command": ["true", wild]}}});
    let main = container("main", json!({"lifecycle": hook, "args": [wild]}));
    withstood(209, json!({"containers": [main]}), Expected::Ready);
}
