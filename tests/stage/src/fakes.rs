//! The outside world of an actor that is alone: fakes without latency.

use std::collections::BTreeMap;
use std::sync::Arc;

use bridge_cri::fake::{FakeRuntime, RegistryImage};
use bridge_cri::wire::{
    ContainerConfig, ContainerMetadata, ImageSpec, Mount, PodSandboxConfig, PodSandboxMetadata,
};
use bridge_cri::{CriMetrics, Operations};
use bridge_io::Io;
use bridge_io::clock::FakeClock;
use bridge_io::compute::Inline;
use bridge_node::cgroups::{CgroupDriver, CgroupNames, CgroupVersion, FakeCgroups};
use bridge_node::checkpoint::FakeCheckpoints;
use bridge_node::host::{FakeDisk, FakePodDirs, Layout};
use bridge_node::mounts::FakeMounts;
use jiff::Timestamp;
use messages::facts::DesiredPod;

use crate::facts::IMAGE;

/// Wall time, in seconds since the epoch, at which every stage begins.
pub const START_SECOND: i64 = 1_800_000_000;

/// The outside world that most actors need. The fakes that only some actors need (the API server, probes, certificates)
/// are made by those actors' own tests.
pub struct Fakes {
    /// The runtime, which has the image [`IMAGE`].
    pub runtime: FakeRuntime,
    /// Calls to it; every port of the runtime.
    pub operations: Arc<Operations>,
    /// The disk.
    pub disk: FakeDisk,
    /// Pods' directories on the disk.
    pub dirs: Arc<FakePodDirs>,
    /// Mounts on the disk.
    pub mounts: Arc<FakeMounts>,
    /// Checkpoints.
    pub checkpoints: Arc<FakeCheckpoints>,
    /// Cgroups.
    pub cgroups: Arc<FakeCgroups>,
    /// Wall time.
    pub clock: Arc<FakeClock>,
    /// Computing.
    pub compute: Arc<Inline>,
}

impl Fakes {
    /// A world in which everything works. Has to be made on a tokio runtime.
    pub fn new() -> Self {
        let runtime = FakeRuntime::new(1).at_wall_time(START_SECOND * 1_000_000_000);
        runtime.add_image(IMAGE, RegistryImage::default());
        let metrics = CriMetrics::new().expect("metrics are defined once");
        let disk = FakeDisk::new();
        let layout = Layout::new("/var/lib/kubelet", "/var/log/pods", "/var/log/containers");
        let layout = layout.expect("the default directories are canonical");
        let names = CgroupNames::new(CgroupDriver::Cgroupfs, "/").expect("the root is a cgroup");
        let start = Timestamp::from_second(START_SECOND).expect("a second of this century is a timestamp");
        Self {
            operations: Arc::new(Operations::new(Arc::new(runtime.clone()), Io::current(), metrics)),
            runtime,
            dirs: Arc::new(FakePodDirs::new(layout, disk.clone())),
            mounts: Arc::new(FakeMounts::new(disk.clone())),
            disk,
            checkpoints: Arc::new(FakeCheckpoints::new()),
            cgroups: Arc::new(FakeCgroups::new(CgroupVersion::V2, names)),
            clock: Arc::new(FakeClock::new(1, start)),
            compute: Arc::new(Inline),
        }
    }
}

/// A pod that the runtime runs.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The sandbox's ID.
    pub sandbox: String,
    /// The container's ID.
    pub container: String,
}

impl Fakes {
    /// Makes the runtime run a pod of [`pod`](crate::pod): a sandbox with a running container.
    pub async fn run(&self, pod: &DesiredPod) -> Ran {
        self.run_mounting(pod, Vec::new()).await
    }

    /// The same with a container that has these mounts.
    ///
    /// # Panics
    /// The fake does not make it.
    pub async fn run_mounting(&self, pod: &DesiredPod, mounts: Vec<Mount>) -> Ran {
        let uid = pod.pod_ref.uid.as_str();
        let labels = [
            ("io.kubernetes.pod.name", pod.pod_ref.name.to_string()),
            ("io.kubernetes.pod.namespace", pod.pod_ref.namespace.to_string()),
            ("io.kubernetes.pod.uid", uid.to_owned()),
            ("io.kubernetes.container.name", "web".to_owned()),
        ];
        let labels: BTreeMap<_, _> = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: pod.pod_ref.name.to_string(),
                namespace: pod.pod_ref.namespace.to_string(),
                uid: uid.to_owned(),
                attempt: 0,
            }),
            labels: labels.clone(),
            ..PodSandboxConfig::default()
        };
        let sandbox = self.operations.ensure_sandbox(uid, 0, config.clone(), String::new()).await;
        let sandbox = sandbox.expect("the fake makes it").into_id();
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata { name: "web".to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.to_owned(), ..ImageSpec::default() }),
            labels,
            mounts,
            ..ContainerConfig::default()
        };
        let container = self.operations.ensure_container(uid, &sandbox, 0, container, config).await;
        let container = container.expect("the fake makes it").into_id();
        self.operations.start_container(uid, &container).await.expect("the fake starts it");
        Ran { sandbox, container }
    }
}

impl Default for Fakes {
    fn default() -> Self {
        Self::new()
    }
}
