//! The parts that a node is made from: its effects and its settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{ExitWatcher, Runtime};
use bridge_csi::Connect;
use bridge_csi::plugins::{PluginSockets, Registrar};
use bridge_http::manifest_url::ManifestUrl;
use bridge_http::probes::Prober;
use bridge_io::Io;
use bridge_io::clock::Clock;
use bridge_io::compute::Compute;
use bridge_kube::{ApiClient, Traffic};
use bridge_node::cgroups::Cgroups;
use bridge_node::checkpoint::CheckpointStore;
use bridge_node::host::{
    ContainerLogs, CredentialPlugins, DockerConfigs, FlexDrivers, HostAddresses, NetworkDisks, PodDirs,
    PullRecords, StaticFiles,
};
use bridge_node::mounts::Mounts;
use bridge_node::stats::NodeStats;
use bridge_node::stats::usage::UsageReads;
use bridge_reviews::ReviewTtls;
use bridge_serve::{Listeners, StreamProxy};
use bridge_tls::serving::ServingTls;
use bridge_traces::{Sampling, TraceCollector};
pub use certificate_manager::{IdentityLost, ManagedCertificate};
use config_manager::ConfigurationSource;
use eviction_manager::EvictionConfig;
use garbage_collector::GcPolicy;
use image_manager::ImageSettings;
use log_manager::LogRotation;
use node_api::{AccessConfig, HttpsOffers, NodeApiConfig};
use node_status::{LeaseConfig, NodeStatusConfig};
pub use object_cache::Strategy as ObjectStrategy;
use pleg::PlegConfig;
use pod_manager::admission::NodeView;
use pod_spec::resources::NodeResources;
use pod_worker::PodWorkerConfig;
use resource_manager::ResourceManagerConfig;
use stats_provider::StatsConfig;
use supervision::Place;

/// Every effect on the outside world: real in the daemon, fake in tests and simulation.
#[derive(Clone)]
pub struct Bridge {
    /// The I/O runtime for sockets and blocking calls.
    pub io: Io,
    /// That for what clients ask of the kubelet.
    pub server: Io,
    /// The kubelet's configuration, which may change while it runs.
    pub configuration: ConfigurationPorts,
    /// Opens the node's listening ports.
    pub listeners: Arc<dyn Listeners>,
    /// Connects callers to the runtime's streaming server.
    pub proxy: Arc<dyn StreamProxy>,
    /// The container runtime.
    pub runtime: Arc<dyn Runtime>,
    /// Reports the ends of containers' processes.
    pub exits: Arc<dyn ExitWatcher>,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// Computing whose amount pods choose.
    pub compute: Arc<dyn Compute>,
    /// State that survives the process.
    pub checkpoints: Arc<dyn CheckpointStore>,
    /// Static-pod manifests.
    pub files: Arc<dyn StaticFiles>,
    /// The manifest URL, if there is one.
    pub url: Option<Arc<dyn ManifestUrl>>,
    /// Pods' directories and logs.
    pub dirs: Arc<dyn PodDirs>,
    /// The files of containers' logs.
    pub logs: Arc<dyn ContainerLogs>,
    /// Mounts.
    pub mounts: Arc<dyn Mounts>,
    /// Programs that mount volumes.
    pub flex_drivers: Arc<dyn FlexDrivers>,
    /// Disks that a network brings.
    pub network_disks: Arc<dyn NetworkDisks>,
    /// HTTP and TCP probes.
    pub prober: Arc<dyn Prober>,
    /// Pods' cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// Measures what the node has left, for EvictionManager and ImageManager.
    pub stats: Arc<dyn NodeStats>,
    /// Reads what the node, its pods and their containers use, for StatsProvider.
    pub usage: Arc<dyn UsageReads>,
    /// The node's credentials for registries.
    pub docker_configs: Arc<dyn DockerConfigs>,
    /// Runs the programs that give credentials for images.
    pub credential_plugins: Arc<dyn CredentialPlugins>,
    /// The records on disk of the images that have been pulled.
    pub pull_records: Arc<dyn PullRecords>,
    /// Reads the node's resolver configuration; `None` if pods get no DNS from the node.
    pub resolv_conf: Option<pod_worker::ReadResolvConf>,
    /// The machine's addresses.
    pub addresses: Arc<dyn HostAddresses>,
    /// The plugins that register with the kubelet, and the CSI drivers among them.
    pub plugins: PluginPorts,
    /// The cluster that the node is a member of; `None` if it stands alone.
    pub cluster: Option<Cluster>,
    /// The HTTPS server's side of TLS; `None` without such a server.
    pub serving: Option<ServingTls>,
    /// The node's certificates that the cluster signs.
    pub certificates: Vec<ManagedCertificate>,
    /// Takes what was done for pods, as traces; `None` if that is told to no collector.
    pub traces: Option<Arc<dyn TraceCollector>>,
    /// Where CertificateManager reports that the kubelet must end for want of an identity.
    pub lost: IdentityLost,
}

/// The ways to the kubelet's configuration.
#[derive(Clone)]
pub struct ConfigurationPorts {
    /// The configuration in force, and its reading.
    pub source: Arc<dyn ConfigurationSource>,
    /// Watches its files.
    pub files: Arc<dyn StaticFiles>,
    /// The files and directories that it is read from.
    pub watched: Vec<PathBuf>,
}

/// The ways to plugins.
#[derive(Clone)]
pub struct PluginPorts {
    /// The sockets by which plugins register.
    pub sockets: Arc<dyn PluginSockets>,
    /// Asks plugins what they are, and tells them whether they are registered.
    pub registrar: Arc<dyn Registrar>,
    /// The ways to CSI drivers.
    pub drivers: Arc<dyn Connect>,
}

impl Bridge {
    /// The client for pods and the objects that they need, in the line of this kind of traffic; `None` without a cluster.
    pub(super) fn cluster_api(&self, traffic: Traffic) -> Option<Arc<ApiClient>> {
        self.cluster.as_ref().map(|cluster| Arc::new(cluster.api.carrying(traffic)))
    }
}

/// Clients of the API server, each with connections and a rate of its own, so that many pods do not delay a heartbeat.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// For pods and the objects that they need (`kubeAPIQPS`, `kubeAPIBurst`).
    pub api: ApiClient,
    /// For the Node's status and its lease: without a rate limit. The wiring gives it the deadline of a heartbeat.
    pub heartbeat: ApiClient,
    /// For events (`eventRecordQPS`, `eventBurst`).
    pub events: ApiClient,
    /// For reviews of the HTTPS server's callers: at the same rate as `api`, but counted apart.
    pub reviews: ApiClient,
    /// The Node object's name.
    pub node_name: String,
}

/// The HTTPS server's settings.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// Authentication and authorisation of callers.
    pub access: AccessConfig,
    /// How long the API server's reviews are remembered.
    pub ttls: ReviewTtls,
    /// The handlers that are on.
    pub offers: HttpsOffers,
    /// The feature gate PodLogsQuerySplitStreams.
    pub split_streams: bool,
    /// The feature gate ExtendWebSocketsToKubelet.
    pub websockets: bool,
}

/// The subsystems' settings.
#[derive(Clone)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The node's addresses, shown as `hostIPs`.
    pub host_ips: Vec<String>,
    /// `staticPodPath`.
    pub static_pod_path: Option<PathBuf>,
    /// `podSecurity`.
    pub pod_security: pod_sources::PodSecurity,
    /// `podSubmission.enabled`.
    pub pod_submission: bool,
    /// The restart rules of containers that are enabled.
    pub restart_rules: pod_sources::RestartRules,
    /// The feature gate PodReadyToStartContainersCondition.
    pub ready_to_start_condition: bool,
    /// The feature gate ImageVolumeWithDigest.
    pub image_volume_digests: bool,
    /// `fileCheckFrequency`.
    pub file_check: Duration,
    /// `httpCheckFrequency`.
    pub url_check: Duration,
    /// The node's resources and the part that pods may use.
    pub node_resources: Arc<NodeResources>,
    /// Pod workers.
    pub worker: PodWorkerConfig,
    /// Cgroups.
    pub resources: ResourceManagerConfig,
    /// Images.
    pub images: ImageSettings,
    /// Dead containers.
    pub garbage: GcPolicy,
    /// How logs are rotated.
    pub logs: LogRotation,
    /// When pods are evicted.
    pub eviction: EvictionConfig,
    /// What is told about usage.
    pub stats: StatsConfig,
    /// Volumes.
    pub volumes: volume_manager::VolumeSettings,
    /// How secrets and config maps are kept current.
    pub objects: ObjectStrategy,
    /// Relist periods.
    pub pleg: PlegConfig,
    /// Listeners.
    pub api: NodeApiConfig,
    /// The HTTPS server.
    pub server: ServerSettings,
    /// The node as admission sees it.
    pub admission: NodeView,
    /// When VolumeManager searches for directories and ResourceManager for cgroups of pods that are gone.
    pub sweep: volume_manager::SweepPolicy,
    /// The share of pods of which traces are told (`tracing.samplingRatePerMillion`).
    pub trace_sampling: Sampling,
    /// How the node presents itself to its cluster; `None` if it stands alone.
    pub membership: Option<Membership>,
    /// A test's hook, called before each step of a worker's work; `None` in the shipped binary.
    pub fault_point: Option<pod_worker::FaultPoint>,
}

/// How the node presents itself to its cluster.
#[derive(Clone)]
pub struct Membership {
    /// The Node object.
    pub node: Arc<NodeStatusConfig>,
    /// Its lease.
    pub lease: Arc<LeaseConfig>,
}

/// The threads of the actors.
#[derive(Clone, Debug)]
pub struct Places {
    /// The thread of all actors but those of the heartbeat.
    pub actors: Place,
    /// The thread of NodeStatus and Lease, which work for pods never keeps busy.
    pub heartbeat: Place,
}

impl Places {
    /// All actors on one thread.
    pub fn one(place: Place) -> Self {
        Self { actors: place.clone(), heartbeat: place }
    }
}
