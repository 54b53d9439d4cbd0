//! A whole node in a sandbox: the real actors, wired as the daemon wires them, on fake bridges.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::fake::{FakeRuntime, RegistryImage};
use bridge_csi::fake::FakePlugins;
use bridge_http::manifest_url::{FakeManifestUrl, ManifestUrl};
use bridge_http::probes::FakeProber;
use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_kube::RateLimit;
use bridge_kube::fake::FakeApi;
use bridge_metrics::Registry;
use bridge_node::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, FakeCgroups};
use bridge_node::checkpoint::FakeCheckpoints;
use bridge_node::host::{
    FakeContainerLogs, FakeCredentialPlugins, FakeDisk, FakeDockerConfigs, FakeFlexDrivers,
    FakeHostAddresses, FakeMachine, FakeNetworkDisks, FakePodDirs, FakePullRecords, FakeStaticFiles, Layout,
    Machine,
};
use bridge_node::mounts::FakeMounts;
use bridge_node::stats::FakeStats;
use bridge_node::stats::usage::FakeUsage;
use bridge_serve::{FakeListeners, FakeStreams};
use bridge_traces::{FakeCollector, Sampling, TraceCollector};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use kubelet::wiring::{self, Bridge, Membership, Places, Settings};
use messages::PodUid;
use messages::event_recorder::{GetEvents, RecordedEvent};
use messages::pod_manager::GetPods;
use messages::status_manager::GetPodStatuses;
use node_status::{LeaseConfig, NodeStatusConfig};
use pod_manager::admission::{NodeView, SysctlAllowlist, node_labels};
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use supervision::{Place, Policy, Tree};

use stage::Sandbox;

use crate::configuration::FakeConfiguration;

/// Where manifests lie on the fake disk.
pub const MANIFESTS: &str = "/etc/kubernetes/manifests";
/// The name of a sandboxed node.
pub const NODE: &str = "node";
/// An image that every node has.
pub const IMAGE: &str = "understudy.dev/demo:1";
/// As with the default `nodeStatusUpdateFrequency`.
const HEARTBEAT_DEADLINE: Duration = Duration::from_secs(10);
const START_SECOND: i64 = 1_800_000_000;

/// The outside world of a node: it survives the kubelet.
#[derive(Clone)]
pub struct World {
    /// The container runtime.
    pub runtime: FakeRuntime,
    /// The disk.
    pub disk: FakeDisk,
    /// The servers that HTTP and TCP probes reach.
    pub prober: FakeProber,
    /// Checkpoints.
    pub checkpoints: FakeCheckpoints,
    /// Wall time.
    pub clock: Arc<FakeClock>,
    /// Cgroups.
    pub cgroups: FakeCgroups,
    /// Figures of the node and its pods.
    pub stats: FakeStats,
    /// What node and pods use, as StatsProvider reads it.
    pub usage: FakeUsage,
    /// The machine's addresses.
    pub addresses: FakeHostAddresses,
    /// The plugins that register, and the CSI drivers behind them.
    pub plugins: FakePlugins,
    /// The programs that mount volumes.
    pub flex_drivers: FakeFlexDrivers,
    /// Disks that a network brings.
    pub network_disks: FakeNetworkDisks,
    /// The programs that give credentials for images.
    pub credential_plugins: FakeCredentialPlugins,
    /// A manifest URL, if the node has one.
    pub url: Option<FakeManifestUrl>,
    /// The cluster's API server; `None` for a kubelet on its own.
    pub api: Option<FakeApi>,
    /// The node's resolver configuration; `None` as with an empty `resolvConf`.
    pub resolv_conf: Option<String>,
    /// Ports that the node listens on.
    pub listeners: FakeListeners,
    /// The kubelet's configuration, which is read by order.
    pub configuration: Arc<FakeConfiguration>,
    /// Certificates that the cluster signs; empty if it signs none.
    pub certificates: Vec<wiring::ManagedCertificate>,
    /// The collector of traces, which is told of pods if the settings have a share of them.
    pub traces: FakeCollector,
}

impl World {
    /// A world in which everything works.
    pub fn new(seed: u64) -> Self {
        let start = Timestamp::from_second(START_SECOND).expect("a second of this century is a timestamp");
        let disk = FakeDisk::new();
        let network_disks = FakeNetworkDisks::new(disk.clone());
        let runtime = FakeRuntime::new(seed).at_wall_time(START_SECOND * 1_000_000_000).with_logs_on(&disk);
        runtime.add_image(IMAGE, RegistryImage::default());
        disk.mkdir(MANIFESTS, 0o755);
        disk.write("/etc/hosts", "127.0.0.1\tlocalhost\n", 0o644);
        let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").expect("the root is a cgroup");
        let clock = Arc::new(FakeClock::new(seed, start));
        Self {
            runtime,
            disk,
            prober: FakeProber::new(),
            checkpoints: FakeCheckpoints::new(),
            usage: FakeUsage::new(clock.clone()),
            clock,
            cgroups: FakeCgroups::new(CgroupVersion::V2, names),
            stats: FakeStats::default(),
            addresses: FakeHostAddresses::default(),
            plugins: FakePlugins::default(),
            flex_drivers: FakeFlexDrivers::default(),
            network_disks,
            credential_plugins: FakeCredentialPlugins::default(),
            url: None,
            resolv_conf: None,
            listeners: FakeListeners::default(),
            certificates: Vec::new(),
            traces: FakeCollector::default(),
            configuration: Arc::new(FakeConfiguration::new(node_resources())),
            api: None,
        }
    }

    /// The same world with a cluster in it: an API server that shares its clock.
    #[must_use]
    pub fn with_api(mut self) -> Self {
        self.api = Some(FakeApi::new(self.clock.clone()));
        self
    }

    /// The node's clients of the API server, without rate limits.
    fn cluster(api: &FakeApi) -> wiring::Cluster {
        let unlimited = RateLimit { per_second: 0.0, burst: 0 };
        let pods = api.client(&Io::current());
        let heartbeat = api.limited_client(&Io::current(), unlimited, HEARTBEAT_DEADLINE).beside(&pods);
        let events = api.client(&Io::current()).beside(&pods);
        let reviews = api.client(&Io::current());
        wiring::Cluster { api: pods, heartbeat, events, reviews, node_name: NODE.to_owned() }
    }

    /// Writes a manifest.
    pub fn manifest(&self, file: &str, yaml: &str) {
        self.disk.write(PathBuf::from(MANIFESTS).join(file), yaml, 0o644);
    }

    /// Removes a manifest.
    pub fn remove_manifest(&self, file: &str) {
        self.disk.remove(PathBuf::from(MANIFESTS).join(file));
    }

    fn bridge(&self) -> Bridge {
        let layout = Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers")
            .expect("the default directories are canonical");
        Bridge {
            io: Io::current(),
            server: Io::current(),
            runtime: Arc::new(self.runtime.clone()),
            exits: Arc::new(self.runtime.exit_watcher()),
            clock: self.clock.clone(),
            compute: Arc::new(bridge_io::compute::Inline),
            checkpoints: Arc::new(self.checkpoints.clone()),
            files: Arc::new(FakeStaticFiles::new(self.disk.clone())),
            url: self.url.clone().map(|url| Arc::new(url) as Arc<dyn ManifestUrl>),
            logs: Arc::new(FakeContainerLogs::new(self.disk.clone())),
            dirs: Arc::new(FakePodDirs::new(layout, self.disk.clone())),
            mounts: Arc::new(FakeMounts::new(self.disk.clone())),
            flex_drivers: Arc::new(self.flex_drivers.clone()),
            network_disks: Arc::new(self.network_disks.clone()),
            prober: Arc::new(self.prober.clone()),
            cgroups: Arc::new(self.cgroups.clone()),
            stats: Arc::new(self.stats.clone()),
            usage: Arc::new(self.usage.clone()),
            docker_configs: Arc::new(FakeDockerConfigs::new(self.disk.clone())),
            credential_plugins: Arc::new(self.credential_plugins.clone()),
            pull_records: Arc::new(FakePullRecords::new(self.disk.clone())),
            resolv_conf: self.resolv_conf.clone().map(read_always),
            plugins: wiring::PluginPorts {
                sockets: Arc::new(self.plugins.clone()),
                registrar: Arc::new(self.plugins.clone()),
                drivers: Arc::new(self.plugins.clone()),
            },
            addresses: Arc::new(self.addresses.clone()),
            configuration: wiring::ConfigurationPorts {
                source: self.configuration.clone(),
                files: Arc::new(FakeStaticFiles::new(self.disk.clone())),
                watched: Vec::new(),
            },
            cluster: self.api.as_ref().map(Self::cluster),
            serving: None,
            listeners: Arc::new(self.listeners.clone()),
            proxy: Arc::new(FakeStreams::default()),
            certificates: self.certificates.clone(),
            traces: Some(Arc::new(self.traces.clone()) as Arc<dyn TraceCollector>),
            lost: wiring::IdentityLost::default(),
        }
    }
}

/// A file that always reads the same.
fn read_always(text: String) -> pod_worker::ReadResolvConf {
    Arc::new(move || Box::pin(std::future::ready(Ok(text.clone()))))
}

/// A kubelet in the sandbox.
pub struct FakeNode {
    /// The kubelet's tree.
    pub tree: Tree,
    /// The kubelet's world.
    pub world: World,
    /// Addresses and ports of the kubelet's actors.
    pub node: wiring::Node,
    /// The metrics of the kubelet's actors.
    pub registry: Registry,
}

/// The resources of a sandboxed node: 4 CPUs, 8 GiB and room for 110 pods; half a CPU and half a GiB are reserved.
pub fn node_resources() -> Arc<NodeResources> {
    let amounts = |texts: &[(&str, &str)]| {
        let quantity = |text| Quantity::parse(text).expect("a quantity");
        texts.iter().map(|(name, text)| ((*name).to_owned(), quantity(text))).collect()
    };
    let storage = ("ephemeral-storage", "100Gi");
    Arc::new(NodeResources {
        capacity: amounts(&[("cpu", "4"), ("memory", "8Gi"), ("pods", "110"), ("pid", "32768"), storage]),
        allocatable: amounts(&[
            ("cpu", "3500m"),
            ("memory", "7680Mi"),
            ("pods", "110"),
            ("pid", "32768"),
            storage,
        ]),
    })
}

/// A sandboxed node as admission sees it.
pub fn admission() -> NodeView {
    NodeView {
        name: NODE.to_owned(),
        labels: node_labels("node", "amd64", &BTreeMap::new()),
        taints: Vec::new(),
        resources: node_resources(),
        pods_max: 110,
        sysctls: SysctlAllowlist::new("6.12.0", &[]).expect("the safe ones are namespaced"),
        app_armor: false,
    }
}

/// Hard thresholds of eviction, and five minutes until pressure ends.
pub fn hard(thresholds: &[(&str, &str)]) -> eviction_manager::EvictionConfig {
    let text = |(signal, value): &(&str, &str)| ((*signal).to_owned(), (*value).to_owned());
    let thresholds = eviction_manager::Thresholds {
        hard: &thresholds.iter().map(text).collect(),
        soft: &BTreeMap::new(),
        soft_grace: &BTreeMap::new(),
        min_reclaim: &BTreeMap::new(),
        pods_enforced: false,
    };
    eviction_manager::EvictionConfig {
        thresholds: thresholds.parse().expect("thresholds"),
        transition: Duration::from_secs(300),
        soft_grace_seconds_max: 0,
        local_storage: true,
    }
}

/// The settings of a sandboxed kubelet.
pub fn settings() -> Settings {
    let node_resources = node_resources();
    let worker = pod_worker::PodWorkerConfig {
        node: node_resources.clone(),
        ..pod_worker::PodWorkerConfig::default()
    };
    Settings {
        node: NODE.to_owned(),
        host_ips: vec!["192.0.2.10".to_owned()],
        static_pod_path: Some(PathBuf::from(MANIFESTS)),
        pod_submission: false,
        pod_security: Default::default(),
        file_check: Duration::from_secs(20),
        url_check: Duration::from_secs(20),
        node_resources: node_resources.clone(),
        worker,
        resources: resource_manager::ResourceManagerConfig {
            node: node_resources.allocatable.clone(),
            ..resource_manager::ResourceManagerConfig::default()
        },
        images: image_manager::ImageSettings::default(),
        garbage: garbage_collector::GcPolicy::default(),
        logs: log_manager::LogRotation::default(),
        eviction: hard(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]),
        stats: stats_provider::StatsConfig::default(),
        pleg: pleg::PlegConfig::default(),
        api: node_api::NodeApiConfig::default(),
        server: kubelet::wiring::ServerSettings::default(),
        admission: admission(),
        sweep: volume_manager::SweepPolicy::default(),
        volumes: volume_manager::VolumeSettings::default(),
        objects: Default::default(),
        restart_rules: Default::default(),
        ready_to_start_condition: true,
        image_volume_digests: false,
        trace_sampling: Sampling::default(),
        membership: None,
        fault_point: None,
    }
}

/// The configuration of NodeStatus of a node of this name: only what every node has.
pub async fn node_status(name: &str) -> NodeStatusConfig {
    let machine = FakeMachine::named(name).facts().await.expect("a machine with facts");
    NodeStatusConfig {
        name: Arc::from(name),
        register: true,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        controller_attach_detach: true,
        external_cloud: false,
        node_ips: Vec::new(),
        machine,
        resources: node_resources(),
        storage_isolation: true,
        kubelet_version: "v1.36.2",
        port: 10250,
        images_max: Some(50),
        update: Duration::from_secs(10),
        report: Duration::from_secs(300),
        declared_features: Vec::new(),
    }
}

/// The settings of a sandboxed kubelet that registers its Node.
pub async fn member() -> Settings {
    let node = Arc::new(node_status(NODE).await);
    let lease = LeaseConfig { node: NODE.to_owned(), duration_seconds: 40 };
    Settings { membership: Some(Membership { node, lease: Arc::new(lease) }), ..settings() }
}

impl FakeNode {
    /// Starts a kubelet in a world, on the sandbox's tree.
    pub fn start(sandbox: &Sandbox, world: &World, settings: &Settings) -> Self {
        sandbox.expect_bridge_tasks();
        Self::on(sandbox.tree.clone(), world, settings)
    }

    /// Ends this kubelet, as a signal would, and starts another one in the same world.
    pub async fn restart(self, settings: &Settings, policy: Policy) -> Self {
        self.tree.stop_all();
        tokio::time::sleep(Duration::from_millis(10)).await;
        Self::on(Tree::new(policy), &self.world, settings)
    }

    /// Ends this kubelet.
    pub async fn stop(self) {
        self.tree.stop_all();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn on(tree: Tree, world: &World, settings: &Settings) -> Self {
        let registry = Registry::new();
        let node = wiring::wire(&tree, &Places::one(Place::Here), &registry, &world.bridge(), settings)
            .expect("every metric is defined once");
        Self { tree, world: world.clone(), node, registry }
    }

    /// Every pod's status, by UID; empty while StatusManager does not answer.
    pub async fn statuses(&self) -> BTreeMap<PodUid, Arc<PodStatus>> {
        self.node.statuses.ask(GetPodStatuses, Duration::from_secs(5)).await.unwrap_or_default()
    }

    /// Every desired pod's status by the pod's name without the node's suffix.
    pub async fn by_name(&self) -> BTreeMap<String, Arc<PodStatus>> {
        let Ok(desired) = self.node.pods.ask(GetPods, Duration::from_secs(5)).await else {
            return BTreeMap::new();
        };
        let statuses = self.statuses().await;
        let named = |(uid, pod): (&PodUid, &Arc<messages::facts::DesiredPod>)| {
            let name = pod.pod_ref.name.trim_end_matches("-node").to_owned();
            statuses.get(uid).map(|status| (name, status.clone()))
        };
        desired.pods.iter().filter_map(named).collect()
    }

    /// The events that EventRecorder has.
    pub async fn events(&self) -> Vec<RecordedEvent> {
        self.node.events.ask(GetEvents, Duration::from_secs(5)).await.unwrap_or_default()
    }

    /// Waits until `done` is true of the pods' statuses, at most five minutes of sandbox time.
    pub async fn until(&self, what: &str, done: impl Fn(&BTreeMap<String, Arc<PodStatus>>) -> bool) {
        let end = tokio::time::Instant::now() + Duration::from_secs(300);
        loop {
            let statuses = self.by_name().await;
            if done(&statuses) {
                return;
            }
            if tokio::time::Instant::now() > end {
                let shown = serde_json::to_string_pretty(&statuses).unwrap_or_default();
                let actors = self.tree.snapshot().await;
                let actors: Vec<_> =
                    actors.actors.iter().map(|a| (&a.name, a.state, &a.last_crash, &a.observed)).collect();
                panic!("waited 5 minutes in vain for: {what}\n{shown}\n{actors:#?}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the runtime holds nothing of any pod.
    pub async fn until_empty(&self) {
        let end = tokio::time::Instant::now() + Duration::from_secs(300);
        while !self.world.runtime.sandboxes().is_empty() || !self.world.runtime.containers().is_empty() {
            assert!(
                tokio::time::Instant::now() < end,
                "left in the runtime: {:?} {:?}",
                self.world.runtime.sandboxes(),
                self.world.runtime.containers()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Whether the pod is Running and Ready.
pub fn is_ready(status: &PodStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
