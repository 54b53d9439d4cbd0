//! Duty: one worker per pod UID brings the pod from desired to running, from unwanted to gone; the pool sees that
//!   each pod has its worker and hands it every fact about the pod.
//! Receives: Pool: `DesiredPodsChanged`, `PodObserved`, `RuntimeObserved`, `ProbeVerdict`, `PodReported`, `EvictPod`,
//!   `ResendPod`, `ResendReports`, `NodeAddressesObserved`, `NodeResourcesConfigured`, `PodObjectsChanged`, `GetWorkers`.
//!   Worker, from the pool alone: `SyncPod`, `PodSeen`, `RuntimeObserved`, `PodJudged`, `EvictPod`, `NodeAddressesObserved`,
//!   `NodeResourcesConfigured`, `PodObjectsChanged`.
//! Sends: Pool: `ResendDesired`, `ResendObserved`, `ResendVerdicts`, `ResendNode`, `ResendConfiguration`, `RecordEvent`,
//!   `WorkerReported`; what the worker receives.
//!   Worker: `ResendPod` and `PodReported` to the pool, `PodTouched`, `EnsureImage`, `MountVolumes`, `UnmountVolumes`,
//!   `PrepareSubpaths`, `EnsurePodCgroup`, `RemovePodCgroup`, `GetPodStatus`, `GetServices`, `GetSecret`, `GetConfigMap`,
//!   `GetRuntimeClass`, `RecordEvent`; calls to the runtime through the bridge.
//! State (rebuilt from): desired pods (PodManager resends), observed ones (Pleg resends), verdicts (ProbeManager
//!   resends), changed resources of the node (ConfigManager is asked), back-off (attempts and times in the runtime), whether
//!   a pod has ended and which of its containers have run (StatusManager).
//! On crash: the pool adopts the living workers and sends them everything again. A worker first waits for its
//!   predecessor's calls in flight, then for a look at the runtime; nothing is created before both, and no container
//!   restarts.
//! Never does: touches a pod from two tasks at once, creates anything once termination has begun, unmounts before the
//!   containers have died, writes a pod's status.

pub mod backoff;
pub mod container_config;
pub mod deps;
pub mod dns;
pub mod env;
pub mod ephemeral;
mod execute;
#[cfg(test)]
mod fixtures;
pub mod hash;
pub mod hooks;
pub mod hostname;
pub mod hosts;
pub mod lifecycle;
mod linux_resources;
pub mod metrics;
pub mod node_rules;
pub mod past;
pub mod plan;
pub mod pod_images;
pub mod pool;
pub mod pull_time;
mod retry;
pub mod sandbox_config;
mod security_groups;
pub mod spec;
pub mod step;
pub mod termination;
pub mod texts;
pub mod worker;
pub mod worker_registry;

pub use backoff::BackoffBounds;
pub use deps::{FaultPoint, PodWorkerConfig, PodWorkerDeps, PodWorkerPoolDeps, ReadResolvConf};
pub use metrics::PodWorkerMetrics;
pub use node_rules::NodeRules;
pub use pool::PodWorkerPool;
pub use worker::PodWorker;
