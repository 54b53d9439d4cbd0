//! StatsProvider alone: Pleg's answer names the pods, the machine and the runtime are fakes.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::Fault;
use bridge_cri::{CriErrorKind, Rpc};
use bridge_node::stats::usage::{FakeUsage, Parts};
use jiff::Timestamp;
use messages::PodUid;
use messages::pleg::GetRuntimePods;
use messages::runtime::RuntimePod;
use messages::stats::{Families, Sample, Summary};
use messages::stats_provider::{GetSummary, GetUsageMetrics, MetricsPage};
use messages::volume_manager::{GetVolumeStats, PodVolumeStats, VolumeCondition, VolumeStats, VolumeUsage};
use stage::{Neighbour, Stage, alone, ask, pod, runtime_pod};
use stats_provider::{Backends, Machine, StatsConfig, StatsProvider, StatsProviderDeps};
use supervision::Supervised;

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// The first pod has a volume behind a claim, and one on the node's own disk.
fn volumes() -> BTreeMap<PodUid, Arc<PodVolumeStats>> {
    let ill = VolumeCondition { abnormal: true, message: "it smokes".to_owned() };
    let volume = |claim: Option<&str>, used_bytes| VolumeStats {
        measured_at: Timestamp::from_second(1_800_000_000).unwrap(),
        claim: claim.map(str::to_owned),
        on_node_disk: claim.is_none(),
        usage: Some(VolumeUsage {
            used_bytes,
            inodes_used: 3,
            condition: claim.map(|_| ill.clone()),
            ..VolumeUsage::default()
        }),
    };
    let all: PodVolumeStats =
        [("data".to_owned(), volume(Some("claimed"), 70)), ("scratch".to_owned(), volume(None, 500))].into();
    [(pod(0).pod_ref.uid.clone(), Arc::new(all))].into()
}

struct Alone {
    pleg: Neighbour<GetRuntimePods>,
    volumes: Neighbour<GetVolumeStats>,
    usage: FakeUsage,
    actor: Supervised<StatsProvider>,
}

/// StatsProvider on a node with two pods, of which the runtime knows the first one.
async fn start(stage: &Stage<'_>) -> Alone {
    let ran = stage.fakes.run(&pod(0)).await;
    let mut first = runtime_pod(&pod(0).pod_ref, 0);
    first.sandboxes[0].id = Arc::from(ran.sandbox.as_str());
    first.containers[0].id = Arc::from(ran.container.as_str());
    first.containers[0].log_path = Arc::from("/var/log/pods/a/web/0.log");
    let second = runtime_pod(&pod(1).pod_ref, 0);
    let held: BTreeMap<PodUid, Arc<RuntimePod>> =
        [first, second].into_iter().map(|held| (held.pod.uid.clone(), Arc::new(held))).collect();
    let held = Arc::new(held);
    let pleg = Neighbour::answering("Pleg", move |_| Some(held.clone()));
    let volumes = Neighbour::answering("VolumeManager", |_| volumes());
    let usage = FakeUsage::new(stage.fakes.clock.clone());
    usage.set(&ran.container, 250, 8 * MIB);
    let deps = StatsProviderDeps {
        node: Arc::from("node"),
        began: Timestamp::from_second(1_790_000_000).unwrap(),
        config: Arc::new(StatsConfig {
            // The runtime runs in the cgroup of all pods, which is shown once.
            systems: [("kubelet".to_owned(), None), ("runtime".to_owned(), Some("/kubepods".to_owned()))]
                .into(),
            machine: Machine { boot_id: "boot".into(), ..Machine::default() },
        }),
        backends: Backends {
            pods: pleg.asked(),
            volumes: volumes.asked(),
            usage: Arc::new(usage.clone()),
            runtime: stage.fakes.operations.clone(),
            io: bridge_io::Io::current(),
        },
    };
    let actor = stage.start(deps, StatsProvider::new);
    Alone { pleg, volumes, usage, actor }
}

impl Alone {
    async fn summary(&self, only_cpu_and_memory: bool) -> Result<Arc<Summary>, String> {
        ask(&self.actor, GetSummary { only_cpu_and_memory }, 30 * SECOND).await.unwrap()
    }

    async fn page(&self, page: MetricsPage) -> Families {
        ask(&self.actor, GetUsageMetrics(page), 30 * SECOND).await.unwrap()
    }
}

/// The samples of a family, by all values of labels that are not empty.
fn shown(page: &Families, name: &str) -> Vec<(String, f64)> {
    let found = page.iter().find(|family| family.name == name);
    let labels = |sample: &Sample| {
        let named = sample.labels.iter().filter(|(_, value)| !value.is_empty());
        named.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    found.iter().flat_map(|family| family.samples.iter().map(|one| (labels(one), one.value))).collect()
}

#[test]
fn nothing_is_read_while_no_actor_asks() {
    alone(async |stage| {
        let alone = start(stage).await;
        stage.pass(3600 * SECOND).await;
        assert_eq!((alone.usage.passes().len(), alone.pleg.count()), (0, 0));
        alone.summary(true).await.unwrap();
        stage.pass(3600 * SECOND).await;
        assert_eq!(alone.usage.passes(), [Parts::default()], "and no more than was asked for");
        assert_eq!(alone.volumes.count(), 0);
        let calls = stage.fakes.runtime.counts();
        assert_eq!(
            calls.get(&Rpc::ListContainerStats),
            None,
            "the runtime is not asked for what cgroups tell"
        );
    });
}

#[test]
fn the_summary_tells_of_node_pods_and_containers() {
    alone(async |stage| {
        let alone = start(stage).await;
        let summary = alone.summary(false).await.unwrap();
        let json = serde_json::to_value(&*summary).unwrap();
        let node = &json["node"];
        assert_eq!(
            (&node["nodeName"], &node["memory"]["workingSetBytes"]),
            (&"node".into(), &(2048 * MIB).into())
        );
        assert_eq!(node["memory"]["availableBytes"], 6144 * MIB);
        assert_eq!(
            (&node["fs"]["usedBytes"], &node["rlimit"]["maxpid"]),
            (&(35_u64 << 30).into(), &32_768.into())
        );
        assert!(node["runtime"]["imageFs"]["usedBytes"].is_u64(), "{node}");
        let systems = node["systemContainers"].as_array().unwrap();
        let systems: Vec<_> = systems.iter().map(|one| (&one["name"], &one["startTime"])).collect();
        let (began, made) = ("2026-09-21T14:13:20Z".into(), "2023-11-14T22:13:20Z".into());
        let expected = [(&"kubelet".into(), &began), (&"runtime".into(), &made), (&"pods".into(), &made)];
        assert_eq!(systems, expected);
        assert_eq!(json["pods"].as_array().unwrap().len(), 2);
        let pod = &json["pods"][0];
        assert_eq!(pod["podRef"]["uid"], pod_uid(0));
        assert_eq!(pod["memory"]["workingSetBytes"], 9 * MIB, "with its sandbox");
        assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&"eth0".into(), &1000.into()));
        assert_eq!(
            (&pod["process_stats"]["process_count"], &pod["swap"]["swapUsageBytes"]),
            (&1.into(), &0.into())
        );
        let container = &pod["containers"][0];
        assert_eq!(
            (&container["name"], &container["memory"]["rssBytes"]),
            (&"web".into(), &(8 * MIB).into())
        );
        assert_eq!(container["logs"]["usedBytes"], 4096);
        let layer = container["rootfs"]["usedBytes"].as_u64().unwrap();
        assert_eq!(pod["ephemeral-storage"]["usedBytes"], layer + 4096 + 500 + 512, "with its hosts file");
        let volume = &pod["volume"][0];
        assert_eq!((&volume["name"], &volume["usedBytes"]), (&"data".into(), &70.into()));
        assert_eq!(
            (&volume["time"], pod["volume"].as_array().unwrap().len()),
            (&"2027-01-15T08:00:00Z".into(), 2)
        );
        assert_eq!(volume["pvcRef"], serde_json::json!({"name": "claimed", "namespace": "default"}));
        assert_eq!(volume["volumeHealthStats"], serde_json::json!({"abnormal": true}));
        let scratch = &pod["volume"][1];
        assert!(scratch["pvcRef"].is_null() && scratch["volumeHealthStats"].is_null(), "{scratch}");
        assert!(json["pods"][1]["volume"].is_null());
        assert_eq!(container["cpu"]["usageNanoCores"], serde_json::Value::Null, "there is only one reading");
        assert!(json["pods"][1]["containers"][0]["rootfs"].is_null(), "the runtime does not know it");
    });
}

/// The bytes that the first pod uses of the node's own disk.
fn own_disk(summary: &Summary) -> Option<u64> {
    summary.pods[0].ephemeral_storage.as_ref().unwrap().used_bytes
}

#[test]
fn a_sum_of_which_a_part_is_unknown_is_not_told() {
    alone(async |stage| {
        let alone = start(stage).await;
        assert!(own_disk(&alone.summary(false).await.unwrap()).is_some());
        alone.volumes.answer(|_| {
            let mut all = volumes();
            let of_pod = Arc::make_mut(all.get_mut(&pod(0).pod_ref.uid).unwrap());
            of_pod.get_mut("scratch").unwrap().usage = None;
            all
        });
        stage.pass(2 * SECOND).await;
        let summary = alone.summary(false).await.unwrap();
        assert_eq!(own_disk(&summary), None, "a volume was not counted to its end");
        let names: Vec<&str> = summary.pods[0].volumes.iter().map(|volume| volume.name.as_str()).collect();
        assert_eq!(names, ["data"], "of which no figure is told");
        assert!(summary.pods[0].ephemeral_storage.as_ref().unwrap().capacity_bytes.is_some());
        alone.volumes.answer(|_| volumes());
        stage.pass(2 * SECOND).await;
        assert!(own_disk(&alone.summary(false).await.unwrap()).is_some());
        alone.usage.cut_logs(&pod_uid(0));
        stage.pass(2 * SECOND).await;
        assert_eq!(own_disk(&alone.summary(false).await.unwrap()), None, "the logs were not");
    });
}

fn pod_uid(number: usize) -> String {
    pod(number).pod_ref.uid.to_string()
}

#[test]
fn cpu_and_memory_alone_are_cpu_and_memory_alone() {
    alone(async |stage| {
        let alone = start(stage).await;
        let summary = alone.summary(true).await.unwrap();
        let json = serde_json::to_value(&*summary).unwrap();
        let keys = |value: &serde_json::Value| {
            value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(keys(&json["node"]), "cpu memory nodeName startTime swap systemContainers");
        assert_eq!(keys(&json["pods"][0]), "containers cpu memory podRef startTime swap");
        assert_eq!(keys(&json["pods"][0]["containers"][0]), "cpu memory name startTime swap");
    });
}

#[test]
fn rates_come_with_the_second_reading_and_are_true() {
    alone(async |stage| {
        let alone = start(stage).await;
        alone.summary(true).await.unwrap();
        stage.pass(20 * SECOND).await;
        let summary = alone.summary(false).await.unwrap();
        let pod = &summary.pods[0];
        let cores = pod.containers[0].cpu.as_ref().unwrap().usage_nano_cores;
        assert_eq!(cores, Some(250_000_000), "whichever depth was read before");
        assert_eq!(pod.cpu.as_ref().unwrap().usage_nano_cores, Some(250_000_000));
        assert_eq!(summary.node.cpu.as_ref().unwrap().usage_nano_cores, Some(500_000_000));
    });
}

#[test]
fn all_that_ask_meanwhile_share_one_reading_which_is_good_for_a_second() {
    alone(async |stage| {
        let alone = start(stage).await;
        alone.usage.set_slow(2 * SECOND);
        let asks = (0..100).map(|_| alone.page(MetricsPage::Resource));
        let answers = futures::future::join_all(asks).await;
        assert!(answers.iter().all(|page| shown(page, "resource_scrape_error") == [(String::new(), 0.0)]));
        assert_eq!(alone.usage.passes().len(), 1);
        alone.summary(true).await.unwrap();
        assert_eq!(alone.usage.passes().len(), 1, "its figures are still good");
        stage.pass(SECOND).await;
        alone.summary(true).await.unwrap();
        assert_eq!(alone.usage.passes().len(), 2);
    });
}

#[test]
fn the_page_of_resources_has_upstreams_series_and_no_others() {
    alone(async |stage| {
        let alone = start(stage).await;
        let page = alone.page(MetricsPage::Resource).await;
        let names: Vec<&str> = page.iter().map(|family| family.name).collect();
        let expected = [
            "container_cpu_usage_seconds_total",
            "container_memory_working_set_bytes",
            "container_start_time_seconds",
            "container_swap_usage_bytes",
            "node_cpu_usage_seconds_total",
            "node_memory_working_set_bytes",
            "node_swap_usage_bytes",
            "pod_cpu_usage_seconds_total",
            "pod_memory_working_set_bytes",
            "pod_swap_usage_bytes",
            "resource_scrape_error",
        ];
        assert_eq!(names, expected, "no container has a bound of swap");
        let name = &pod(0).pod_ref.name;
        let memory = shown(&page, "container_memory_working_set_bytes");
        assert_eq!(memory[0], (format!("container=web namespace=default pod={name}"), (8 * MIB) as f64));
        assert_eq!(
            shown(&page, "pod_memory_working_set_bytes")[0].0,
            format!("namespace=default pod={name}")
        );
        let timed =
            |name: &str| page.iter().find(|family| family.name == name).unwrap().samples[0].at.is_some();
        assert!(timed("node_cpu_usage_seconds_total") && !timed("container_start_time_seconds"));
    });
}

#[test]
fn the_page_of_cadvisor_tells_of_every_cgroup_by_its_labels() {
    alone(async |stage| {
        let alone = start(stage).await;
        let page = alone.page(MetricsPage::Cadvisor).await;
        assert_eq!(alone.usage.passes(), [Parts { processes: true, storage: false, details: true }]);
        assert!(page.is_sorted_by_key(|family| family.name));
        let memory = shown(&page, "container_memory_working_set_bytes");
        assert_eq!(
            memory.len(),
            3 + 2 * 3,
            "the root, the kubelet, all pods; and each pod with sandbox and container"
        );
        assert_eq!(memory[0].0, "id=/");
        assert_eq!(memory.iter().filter(|(labels, _)| labels == "id=/kubepods").count(), 1);
        let (name, uid) = (&pod(0).pod_ref.name, pod_uid(0));
        let own = format!("id=/kubepods/besteffort/pod{uid} namespace=default pod={name}");
        assert!(memory.iter().any(|(labels, _)| *labels == own), "{memory:?}");
        let of_container =
            |(labels, _): &&(String, f64)| labels.contains("container=web") && labels.contains(&uid);
        let found = memory.iter().find(of_container).unwrap();
        assert!(found.0.contains(" image=") && found.0.contains(" name="), "{found:?}");
        let of_sandbox =
            |(labels, _): &&(String, f64)| labels.contains("image=registry.k8s.io/pause:3.10 name=");
        let found: Vec<_> = memory.iter().filter(of_sandbox).collect();
        assert!(
            found.len() == 1 && found[0].0.contains(&uid),
            "the runtime knows one of the sandboxes: {memory:?}"
        );
        alone.page(MetricsPage::Cadvisor).await;
        stage.pass(2 * SECOND).await;
        alone.page(MetricsPage::Cadvisor).await;
        let asked = stage.fakes.runtime.counts()[&Rpc::PodSandboxStatus];
        assert_eq!(asked, 3, "what is known is not asked for again");
        let received = shown(&page, "container_network_receive_bytes_total");
        assert_eq!(received.len(), 3, "the node, and each pod once: {received:?}");
        assert!(received.iter().all(|(labels, _)| labels.contains("interface=eth0")));
        assert!(shown(&page, "container_cpu_usage_seconds_total")[0].0.starts_with("cpu=total id=/"));
        assert!(shown(&page, "container_cpu_cfs_periods_total").is_empty(), "no container has a quota");
        assert_eq!(shown(&page, "machine_cpu_cores"), [("boot_id=boot".to_owned(), 4.0)]);
        assert_eq!(shown(&page, "container_fs_limit_bytes")[0].0, "device=/dev/sda id=/");
        let errors = [shown(&page, "container_scrape_error"), shown(&page, "machine_scrape_error")];
        assert_eq!(errors, [[(String::new(), 0.0)], [(String::new(), 0.0)]]);
    });
}

#[test]
fn a_pod_without_cgroups_is_told_of_by_the_runtime() {
    alone(async |stage| {
        let alone = start(stage).await;
        alone.usage.hide(&pod_uid(0));
        let summary = alone.summary(true).await.unwrap();
        let (pod, container) = (&summary.pods[0], &summary.pods[0].containers[0]);
        let told = container.memory.as_ref().unwrap().working_set_bytes;
        assert!(told.is_some() && container.cpu.is_some(), "{container:?}");
        assert_eq!(pod.memory.as_ref().unwrap().working_set_bytes, told, "the sum of its containers");
        let calls = |stage: &Stage<'_>| stage.fakes.runtime.counts()[&Rpc::ListContainerStats];
        assert_eq!(calls(stage), 1);
        stage.pass(Duration::from_millis(1500)).await;
        alone.summary(true).await.unwrap();
        assert_eq!(calls(stage), 1, "its answer is good for two seconds");
        stage.pass(SECOND).await;
        alone.summary(true).await.unwrap();
        assert_eq!(calls(stage), 2);
    });
}

#[test]
fn without_pleg_there_is_an_error_and_without_the_runtimes_figures_the_rest() {
    alone(async |stage| {
        let alone = start(stage).await;
        let failed = || Fault::Error(CriErrorKind::Other, "no".to_owned());
        stage.fakes.runtime.fault(Rpc::ListContainerStats, 1, failed());
        let summary = alone.summary(false).await.unwrap();
        assert!(summary.pods[0].containers[0].rootfs.is_none() && summary.pods[0].cpu.is_some());
        let problem = stage.observed::<StatsProvider>().await["problem"].to_string();
        assert!(problem.contains("the runtime does not tell"), "{problem}");
        stage.pass(2 * SECOND).await;
        alone.volumes.refuse();
        let summary = alone.summary(false).await.unwrap();
        assert!(summary.pods[0].volumes.is_empty() && summary.pods[0].ephemeral_storage.is_some());
        assert_eq!(own_disk(&summary), None, "what volumes hold is missing");
        stage.pass(2 * SECOND).await;
        alone.pleg.answer(|_| None);
        let why = alone.summary(false).await.unwrap_err();
        assert_eq!(why, "failed to list pod stats: the runtime has not been looked at yet");
        assert_eq!(shown(&alone.page(MetricsPage::Resource).await, "resource_scrape_error")[0].1, 1.0);
        let page = alone.page(MetricsPage::Cadvisor).await;
        assert_eq!(shown(&page, "container_scrape_error")[0].1, 1.0);
        alone.pleg.refuse();
        assert!(alone.summary(false).await.unwrap_err().contains("Pleg: "));
    });
}

#[test]
fn a_new_incarnation_answers_with_fresh_figures() {
    alone(async |stage| {
        let alone = start(stage).await;
        alone.summary(true).await.unwrap();
        stage.crash::<StatsProvider>().await;
        stage.pass(10 * SECOND).await;
        let summary = alone.summary(true).await.unwrap();
        assert_eq!(
            summary.node.cpu.as_ref().unwrap().usage_nano_cores,
            None,
            "no reading before this one is known"
        );
    });
}
