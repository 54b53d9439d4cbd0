//! The neighbours, effects and settings that the wiring gives to the pool and its workers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{ExecSync, PodLifecycle, RuntimeReads};
use bridge_http::probes::Prober;
use bridge_io::clock::Clock;
use bridge_io::compute::Compute;
use bridge_node::host::PodDirs;
use futures::future::BoxFuture;
use messages::config_manager::ResendConfiguration;
use messages::event_recorder::RecordEvent;
use messages::facts::WorkerReported;
use messages::image_manager::EnsureImage;
use messages::node_status::ResendNode;
use messages::object_cache::{GetConfigMap, GetRuntimeClass, GetSecret, GetServices};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::{PodReported, ResendPod};
use messages::probe_manager::ResendVerdicts;
use messages::resource_manager::{EnsurePodCgroup, RemovePodCgroup};
use messages::status_manager::GetPodStatus;
use messages::volume_manager::{MountVolumes, PrepareSubpaths, UnmountVolumes};
use pod_spec::resources::NodeResources;
use supervision::{Address, AskPort};
use tokio::time::Instant;

use crate::backoff::BackoffBounds;
use crate::dns::ClusterDns;
use crate::metrics::PodWorkerMetrics;
use crate::node_rules::NodeRules;
use crate::worker::PodWorker;

/// Reads the node's resolver configuration, the file that `resolvConf` names. The error is for people.
pub type ReadResolvConf = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Called before each step of a worker's work with the step's text, such as `StartContainer web`. The step begins when
/// the future ends: tests panic, wait or never end in it.
pub type FaultPoint = Arc<dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync>;

/// The configuration of pod workers.
#[derive(Clone, Debug, PartialEq)]
pub struct PodWorkerConfig {
    /// From kubelet's configuration `syncFrequency`: how often a worker looks at its pod when no message
    /// comes.
    pub sync_frequency: Duration,
    /// How crashing containers are restarted: `crashLoopBackOff` and the gate ReduceDefaultCrashLoopBackOffDecay.
    pub crash_backoff: BackoffBounds,
    /// `clusterDNS` and `clusterDomain`.
    pub cluster_dns: ClusterDns,
    /// `resolvConf`: the path that [`PodWorkerDeps::resolv_conf`] reads, for people; empty if there is none.
    pub resolv_conf: String,
    /// From the feature gate HostnameOverride.
    pub hostname_override: bool,
    /// From the feature gate EnvFiles.
    pub env_files: bool,
    /// `metadata.name` of the Node.
    pub node_name: Arc<str>,
    /// The node's addresses until NodeStatus sends others, primary first.
    pub host_ips: Vec<String>,
    /// The node's capacity and allocatable amounts until ConfigManager tells others.
    pub node: Arc<NodeResources>,
    /// `--maximum-dead-containers-per-container`: how many dead instances of a container are kept while its
    /// pod runs; at least one.
    pub dead_kept: usize,
    /// The node's settings for all containers.
    pub rules: Arc<NodeRules>,
}

impl Default for PodWorkerConfig {
    fn default() -> Self {
        Self {
            sync_frequency: Duration::from_secs(60),
            crash_backoff: BackoffBounds::default(),
            cluster_dns: ClusterDns::default(),
            resolv_conf: String::new(),
            hostname_override: true,
            env_files: true,
            node_name: Arc::from(""),
            host_ips: Vec::new(),
            node: Arc::default(),
            dead_kept: 1,
            rules: Arc::default(),
        }
    }
}

/// The neighbours, effects and settings of one worker.
#[derive(Clone)]
pub struct PodWorkerDeps {
    /// Pleg, which is told to look at the pod.
    pub pleg: Address<PodTouched>,
    /// VolumeManager, which mounts the pod's volumes.
    pub mount: AskPort<PodWorker, MountVolumes>,
    /// VolumeManager, which makes parts of a container's volumes ready.
    pub prepare_subpaths: AskPort<PodWorker, PrepareSubpaths>,
    /// VolumeManager, which undoes all mounts of the pod.
    pub unmount: AskPort<PodWorker, UnmountVolumes>,
    /// ImageManager, which makes images present on the node.
    pub images: AskPort<PodWorker, EnsureImage>,
    /// ObjectCache: the secrets of variables.
    pub secrets: AskPort<PodWorker, GetSecret>,
    /// ObjectCache: the config maps of variables.
    pub config_maps: AskPort<PodWorker, GetConfigMap>,
    /// ObjectCache: the runtime class of the pod, which names the runtime's handler.
    pub runtime_classes: AskPort<PodWorker, GetRuntimeClass>,
    /// ObjectCache: the services of service variables.
    pub services: AskPort<PodWorker, GetServices>,
    /// StatusManager, which is asked for the pod's status before the worker began.
    pub status: AskPort<PodWorker, GetPodStatus>,
    /// The pool, which is asked to send the pod's facts again.
    pub resend: Address<ResendPod>,
    /// The pool, which is told of a worker's state.
    pub reports: Address<PodReported>,
    /// The recorder of events.
    pub events: Address<RecordEvent>,
    /// The runtime's reads.
    pub runtime: Arc<dyn RuntimeReads>,
    /// The runtime's calls that change the pod's sandbox and containers.
    pub pods: Arc<dyn PodLifecycle>,
    /// The runtime's calls for hooks that are commands.
    pub exec: Arc<dyn ExecSync>,
    /// The pods' directories and logs on disk.
    pub dirs: Arc<dyn PodDirs>,
    /// ResourceManager, which makes the pod's cgroup.
    pub ensure_cgroup: AskPort<PodWorker, EnsurePodCgroup>,
    /// ResourceManager, which removes the pod's cgroup.
    pub remove_cgroup: AskPort<PodWorker, RemovePodCgroup>,
    /// The client for hooks over HTTP.
    pub prober: Arc<dyn Prober>,
    /// A moment before any worker started. Workers number their requests by the time since then.
    pub epoch: Instant,
    /// Wall clock and randomness.
    pub clock: Arc<dyn Clock>,
    /// Computing whose amount the pod chooses.
    pub compute: Arc<dyn Compute>,
    /// Reads the node's resolver configuration; absent if `resolvConf` is empty.
    pub resolv_conf: Option<ReadResolvConf>,
    /// Settings.
    pub config: Arc<PodWorkerConfig>,
    /// Metrics, which outlive the incarnation.
    pub metrics: PodWorkerMetrics,
    /// Called before each step; set only by tests.
    pub fault_point: Option<FaultPoint>,
}

impl PodWorkerDeps {
    /// The same for work of one namespace's pods, which leaves the other namespaces their places on the disk and for computing.
    pub(crate) fn for_namespace(&self, namespace: &str) -> Self {
        let (dirs, compute) = (self.dirs.for_namespace(namespace), self.compute.for_namespace(namespace));
        Self { dirs, compute, ..self.clone() }
    }
}

impl fmt::Debug for PodWorkerDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodWorkerDeps").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The neighbours and settings of the pool.
#[derive(Clone, Debug)]
pub struct PodWorkerPoolDeps {
    /// The dependencies of each worker.
    pub worker: PodWorkerDeps,
    /// PodManager, which is asked to send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// Pleg, which is asked to send its observations again.
    pub resend_observed: Address<ResendObserved>,
    /// The actors that are told of the workers' states.
    pub report_followers: Vec<Address<WorkerReported>>,
    /// ProbeManager, which is asked to send the verdicts again.
    pub resend_verdicts: Address<ResendVerdicts>,
    /// NodeStatus, which is asked to send the node's addresses again; none if this kubelet keeps no Node.
    pub resend_node: Option<Address<ResendNode>>,
    /// ConfigManager, asked after a restart for what has changed of the node's resources.
    pub configuration: Address<ResendConfiguration>,
}
