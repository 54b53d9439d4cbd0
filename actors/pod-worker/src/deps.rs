//! What the pool and its workers are given by the wiring.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bridge_cri::{ExecSync, PodLifecycle, RuntimeReads};
use bridge_http::probes::Prober;
use bridge_io::clock::Clock;
use bridge_node::host::PodDirs;
use futures::future::BoxFuture;
use messages::event_recorder::RecordEvent;
use messages::facts::WorkerReported;
use messages::image_manager::EnsureImage;
use messages::node_status::ResendNode;
use messages::object_cache::{GetConfigMap, GetRuntimeClass, GetSecret, GetServices};
use messages::pleg::{PodTouched, ResendObserved};
use messages::pod_manager::ResendDesired;
use messages::pod_worker::ResendPod;
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

/// Reads the node's resolver configuration, the file named by `resolvConf`. The error is for people.
pub type ReadResolvConf = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Called before each step of a worker's work with the step's text, such as `StartContainer web`. The step begins when
/// the future ends: tests panic, wait or never end in it.
pub type FaultPoint = Arc<dyn Fn(&str) -> BoxFuture<'static, ()> + Send + Sync>;

/// The configuration of pod workers.
#[derive(Clone, Debug, PartialEq)]
pub struct PodWorkerConfig {
    /// `syncFrequency`: how often a pod is looked over when nothing happens.
    pub sync_frequency: Duration,
    /// How crashing containers are restarted: `crashLoopBackOff` and the gate ReduceDefaultCrashLoopBackOffDecay.
    pub crash_backoff: BackoffBounds,
    /// `clusterDNS` and `clusterDomain`.
    pub cluster_dns: ClusterDns,
    /// `resolvConf`: the path that [`PodWorkerDeps::resolv_conf`] reads, for people; empty if there is none.
    pub resolv_conf: String,
    /// Feature gate HostnameOverride.
    pub hostname_override: bool,
    /// Feature gate EnvFiles.
    pub env_files: bool,
    /// The node's name.
    pub node_name: Arc<str>,
    /// The node's addresses until others are told of, primary first.
    pub host_ips: Vec<String>,
    /// What the node has, and what of it pods may have.
    pub node: Arc<NodeResources>,
    /// `--maximum-dead-containers-per-container`: dead instances of a container that are kept while its pod runs. One
    /// is in any case.
    pub dead_kept: usize,
    /// What the node lays down for all containers.
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

/// What one worker needs.
#[derive(Clone)]
pub struct PodWorkerDeps {
    /// Pleg: look at the pod.
    pub pleg: Address<PodTouched>,
    /// VolumeManager: have the volumes ready.
    pub mount: AskPort<PodWorker, MountVolumes>,
    /// VolumeManager: have parts of a container's volumes ready.
    pub prepare_subpaths: AskPort<PodWorker, PrepareSubpaths>,
    /// VolumeManager: undo all mounts of the pod.
    pub unmount: AskPort<PodWorker, UnmountVolumes>,
    /// ImageManager.
    pub images: AskPort<PodWorker, EnsureImage>,
    /// ObjectCache: secrets that variables come from.
    pub secrets: AskPort<PodWorker, GetSecret>,
    /// ObjectCache: config maps that variables come from.
    pub config_maps: AskPort<PodWorker, GetConfigMap>,
    /// ObjectCache: the class whose handler runs the pod.
    pub runtime_classes: AskPort<PodWorker, GetRuntimeClass>,
    /// ObjectCache: services that variables tell of.
    pub services: AskPort<PodWorker, GetServices>,
    /// StatusManager.
    pub status: AskPort<PodWorker, GetPodStatus>,
    /// The pool: send everything again.
    pub resend: Address<ResendPod>,
    /// Everybody who is told of a worker's state, the pool among them.
    pub reports: Vec<Address<WorkerReported>>,
    /// EventRecorder.
    pub events: Address<RecordEvent>,
    /// What the runtime holds.
    pub runtime: Arc<dyn RuntimeReads>,
    /// The pod's sandbox and containers.
    pub pods: Arc<dyn PodLifecycle>,
    /// Hooks that are commands.
    pub exec: Arc<dyn ExecSync>,
    /// The pods' directories and logs.
    pub dirs: Arc<dyn PodDirs>,
    /// ResourceManager: have the pod's cgroup ready.
    pub ensure_cgroup: AskPort<PodWorker, EnsurePodCgroup>,
    /// ResourceManager: remove it.
    pub remove_cgroup: AskPort<PodWorker, RemovePodCgroup>,
    /// Lifecycle hooks over HTTP.
    pub prober: Arc<dyn Prober>,
    /// A moment of this process' own time, before all workers: what their requests are numbered from.
    pub epoch: Instant,
    /// Wall time and randomness.
    pub clock: Arc<dyn Clock>,
    /// The node's resolver configuration; absent if `resolvConf` is empty.
    pub resolv_conf: Option<ReadResolvConf>,
    /// Configuration.
    pub config: Arc<PodWorkerConfig>,
    /// Counts.
    pub metrics: PodWorkerMetrics,
    /// Only in tests.
    pub fault_point: Option<FaultPoint>,
}

impl fmt::Debug for PodWorkerDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodWorkerDeps").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What the pool needs.
#[derive(Clone, Debug)]
pub struct PodWorkerPoolDeps {
    /// For each worker.
    pub worker: PodWorkerDeps,
    /// PodManager: send the desired pods again.
    pub resend_desired: Address<ResendDesired>,
    /// Pleg: send what was observed again.
    pub resend_observed: Address<ResendObserved>,
    /// ProbeManager: send the verdicts again.
    pub resend_verdicts: Address<ResendVerdicts>,
    /// NodeStatus: send the node's addresses again; none without a Node.
    pub resend_node: Option<Address<ResendNode>>,
}
