//! What the node tells about usage: `/stats/summary`, `/metrics/resource` and `/metrics/cadvisor` of a whole node.

use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use bridge_cri::Rpc;
use bridge_node::stats::usage::Parts;
use messages::stats_provider::GetSummary;
use messages::supervision::Fault;
use serde_json::Value;
use supervision::{EventKind, Policy, State};
use testkit::node::{FakeNode, IMAGE, World, is_ready};
use testkit::{Sandbox, sandbox};

use crate::life::world;
use crate::listening::{answer, listening, read_only_port};
use crate::pods::web;

const MIB: u64 = 1 << 20;

/// Code and text of an answer.
async fn ask(world: &World, method: Method, path: &str) -> (u16, String) {
    let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
    let (status, text) = answer(world, read_only_port(), request).await.expect("the port is open");
    (status.as_u16(), text)
}

async fn get(world: &World, path: &str) -> String {
    let (code, text) = ask(world, Method::GET, path).await;
    assert_eq!(code, 200, "{text}");
    text
}

async fn summary(world: &World) -> Value {
    serde_json::from_str(&get(world, "/stats/summary").await).expect("JSON")
}

async fn with_pods(sandbox: &Sandbox, world: &World, names: &[&str]) -> FakeNode {
    for name in names {
        world.manifest(&format!("{name}.yaml"), &web(name));
    }
    let node = FakeNode::start(sandbox, world, &listening());
    until_ready(&node, names).await;
    node
}

async fn until_ready(node: &FakeNode, names: &[&str]) {
    node.until("the pods to be Ready", |pods| {
        names.iter().all(|name| pods.get(*name).is_some_and(|status| is_ready(status)))
    })
    .await;
}

fn main_of(world: &World) -> String {
    let all = world.runtime.containers();
    let named = all.iter().find(|one| one.metadata.as_ref().is_some_and(|it| it.name == "main"));
    named.expect("the container is there").id.clone()
}

#[test]
fn nothing_is_read_while_nobody_asks() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(301);
        let node = with_pods(sandbox, &world, &["web"]).await;
        sandbox.pass(Duration::from_secs(3600)).await;
        assert_eq!(world.usage.passes(), []);
        get(&world, "/metrics/resource").await;
        sandbox.pass(Duration::from_secs(3600)).await;
        assert_eq!(world.usage.passes(), [Parts::default()]);
        node.stop().await;
    });
}

/// A pod with a volume of its own.
fn with_volume(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: {IMAGE}
    imagePullPolicy: IfNotPresent
    volumeMounts: [{{name: data, mountPath: /data}}]
  volumes: [{{name: data, emptyDir: {{}}}}]
"
    )
}

#[test]
fn volumes_of_one_namespace_that_hang_keep_back_no_other_namespaces_figures() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(309);
        world.manifest("quiet.yaml", &with_volume("quiet", "quiet"));
        let node = FakeNode::start(sandbox, &world, &listening());
        until_ready(&node, &["quiet"]).await;
        let pods = || world.disk.children("/var/lib/kubelet/pods");
        let volume = |pod: &Path| pod.join("volumes/kubernetes.io~empty-dir/data");
        let quiet = pods().pop().expect("it has a directory");
        let crowd: Vec<String> = (0..12).map(|number| format!("crowd-{number}")).collect();
        let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
        for name in &crowd {
            world.manifest(&format!("{name}.yaml"), &with_volume("crowd", name));
        }
        until_ready(&node, &crowd).await;
        world.disk.write(volume(&quiet).join("file"), vec![1; 5000], 0o644);
        for pod in pods().iter().filter(|pod| **pod != quiet) {
            world.disk.hang_at(volume(pod));
        }
        summary(&world).await;
        sandbox.pass(Duration::from_secs(15)).await;
        let found = summary(&world).await;
        let of = |namespace: &str| -> Vec<Value> {
            let pods = found["pods"].as_array().expect("a list").iter();
            let pods = pods.filter(|pod| pod["podRef"]["namespace"] == namespace);
            pods.map(|pod| pod["volume"][0]["usedBytes"].clone()).collect()
        };
        assert_eq!(of("quiet"), [Value::from(5000)], "{found}");
        assert_eq!(of("crowd"), vec![Value::Null; 12], "{found}");
        world.disk.go_on();
        node.stop().await;
    });
}

#[test]
fn the_summary_follows_the_pods() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(302);
        let node = with_pods(sandbox, &world, &["web"]).await;
        world.usage.set(&main_of(&world), 300, 20 * MIB);
        summary(&world).await;
        sandbox.pass(Duration::from_secs(15)).await;
        let found = summary(&world).await;
        let pod = &found["pods"][0];
        assert_eq!(pod["podRef"]["name"], "web-node");
        let names = |pod: &Value| {
            let all = pod["containers"].as_array().expect("a list").iter();
            let mut names: Vec<String> =
                all.map(|one| one["name"].as_str().unwrap_or_default().to_owned()).collect();
            names.sort();
            names
        };
        assert_eq!(names(pod), ["main", "side"], "the sidecar runs, the other init container has ended");
        let containers = pod["containers"].as_array().expect("a list");
        let main = containers.iter().find(|one| one["name"] == "main").expect("it runs");
        assert_eq!(
            (&main["cpu"]["usageNanoCores"], &main["memory"]["workingSetBytes"]),
            (&300_000_000.into(), &(20 * MIB).into())
        );
        assert!(main["rootfs"]["usedBytes"].is_u64() && main["logs"]["usedBytes"].is_u64(), "{main}");
        assert!(pod["ephemeral-storage"]["usedBytes"].as_u64() > main["rootfs"]["usedBytes"].as_u64());
        let (code, short) = ask(&world, Method::POST, "/stats/summary?only_cpu_and_memory=true").await;
        let short: Value = serde_json::from_str(&short).expect("JSON");
        assert_eq!(
            (code, &short["node"]["fs"], &short["pods"][0]["network"]),
            (200, &Value::Null, &Value::Null)
        );

        world.remove_manifest("web.yaml");
        node.until_empty().await;
        sandbox.pass(Duration::from_secs(60)).await;
        assert_eq!(summary(&world).await["pods"], serde_json::json!([]));
        node.stop().await;
    });
}

#[test]
fn the_pages_of_metrics_are_whole_and_each_series_is_told_once() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(303);
        let node = with_pods(sandbox, &world, &["one", "two"]).await;
        for path in ["/metrics/resource", "/metrics/cadvisor"] {
            let text = get(&world, path).await;
            let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
            let mut names: Vec<&str> = series.iter().filter_map(|line| line.split(' ').next()).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{path}: {text}");
            let helped = text.lines().filter(|line| line.starts_with("# HELP ")).count();
            assert_eq!(helped, text.lines().filter(|line| line.starts_with("# TYPE ")).count());
        }
        let text = get(&world, "/metrics/cadvisor").await;
        let of = |name: &str| text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!(
            of("container_memory_working_set_bytes"),
            2 + 2 * 4,
            "root and pods; each pod, sandbox, two containers"
        );
        assert!(
            text.contains("container_scrape_error 0\n") && text.contains("machine_memory_bytes{"),
            "{text}"
        );
        node.stop().await;
    });
}

#[test]
fn a_thousand_scrapes_are_one_reading() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(304);
        let node = with_pods(sandbox, &world, &["web"]).await;
        world.usage.set_slow(Duration::from_millis(500));
        let asks = (0..1000).map(|_| ask(&world, Method::GET, "/metrics/resource"));
        let answers = futures::future::join_all(asks).await;
        let good = answers.iter().filter(|(code, _)| *code == 200).count();
        let busy =
            answers.iter().filter(|(code, text)| *code == 503 && text.contains("StatsProvider")).count();
        assert_eq!(good + busy, 1000);
        assert!(good >= 100, "{good}");
        assert_eq!(world.usage.passes().len(), 1);
        assert_eq!(ask(&world, Method::GET, "/metrics/resource").await.0, 200);
        node.stop().await;
    });
}

#[test]
fn a_slow_runtime_holds_up_no_figures_of_the_kernel() {
    sandbox(Policy::default(), async |sandbox| {
        let world = world(305);
        let node = with_pods(sandbox, &world, &["web"]).await;
        let late = bridge_cri::fake::Fault::Latency(Duration::from_secs(60));
        world.runtime.fault(Rpc::ListContainerStats, 1, late);
        let begun = tokio::time::Instant::now();
        get(&world, "/metrics/resource").await;
        assert!(begun.elapsed() < Duration::from_millis(100), "it is not even asked");
        let found = summary(&world).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        let container = &found["pods"][0]["containers"][0];
        assert!(
            container["rootfs"].is_null() && container["cpu"]["usageCoreNanoSeconds"].is_u64(),
            "{container}"
        );
        node.stop().await;
    });
}

#[test]
fn a_pod_at_which_the_readings_crash_is_left_out_and_no_other() {
    sandbox(Policy::default(), async |sandbox| {
        sandbox.expect_crashes();
        let world = world(306);
        let node = with_pods(sandbox, &world, &["bad", "good"]).await;
        let pods =
            node.node.pods.ask(messages::pod_manager::GetPods, Duration::from_secs(1)).await.expect("pods");
        let bad = pods.pods.values().find(|pod| &*pod.pod_ref.name == "bad-node").expect("it is there");
        let bad = bad.pod_ref.uid.clone();
        let fault = Fault::PoisonPod { pod: bad.clone(), times: 3 };
        node.tree.inject("StatsProvider", fault).expect("it is in the tree");
        let whole = GetSummary { only_cpu_and_memory: false };
        let mut lost = 0;
        let names = loop {
            if let Ok(Ok(found)) = node.node.summary.ask(whole, Duration::from_secs(20)).await {
                break found.pods.iter().map(|pod| pod.pod_ref.name.clone()).collect::<Vec<_>>();
            }
            lost += 1;
            assert!(lost < 10);
            sandbox.pass(Duration::from_secs(1)).await;
        };
        assert_eq!((lost, names), (3, vec!["good-node".to_owned()]));
        for event in node.tree.snapshot().await.events {
            if let EventKind::Crashed(crash) = event.what {
                assert_eq!(
                    (event.actor.as_str(), crash.pod.as_ref()),
                    ("StatsProvider", Some(&bad)),
                    "{crash:?}"
                );
            }
        }
        sandbox.pass(Duration::from_secs(60)).await;
        let found =
            node.node.summary.ask(whole, Duration::from_secs(20)).await.expect("an answer").expect("figures");
        assert_eq!(found.pods.len(), 2, "the quarantine is over");
        let actors = node.tree.snapshot().await.actors;
        let report = actors.into_iter().find(|one| one.name == "StatsProvider").expect("it is in the tree");
        assert_eq!(report.state, State::Running);
        node.stop().await;
    });
}
