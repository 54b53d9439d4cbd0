//! What the container runtime holds, in types of our own. Writer of these facts: Pleg.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::facts::Source;
use crate::{PodRef, PodUid};

/// Everything that the runtime held of one pod at one look.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuntimePod {
    /// The pod's identity from the sandbox's labels, so known also for pods that are not desired any more.
    pub pod: PodRef,
    /// Newest first: by attempt, then by creation, since the node's clock may have been set back.
    pub sandboxes: Vec<RuntimeSandbox>,
    /// Newest first within a container name; names in order.
    pub containers: Vec<RuntimeContainer>,
}

impl RuntimePod {
    /// A pod of which the runtime holds nothing.
    pub fn absent(pod: PodRef) -> Self {
        Self { pod, sandboxes: Vec::new(), containers: Vec::new() }
    }

    /// Whether the runtime holds nothing of the pod.
    pub fn is_absent(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest instance of a container, whether an init, regular or ephemeral one.
    pub fn latest(&self, name: &str) -> Option<&RuntimeContainer> {
        self.instances(name).next()
    }

    /// All instances of a container, newest first: found in few steps, since the names are in order.
    pub fn instances(&self, name: &str) -> std::slice::Iter<'_, RuntimeContainer> {
        let first = self.containers.partition_point(|c| &*c.name < name);
        let from_first = &self.containers[first..];
        from_first[..from_first.partition_point(|c| &*c.name == name)].iter()
    }

    /// Containers that may have a live process (Running or Unknown).
    pub fn live(&self) -> impl Iterator<Item = &RuntimeContainer> {
        self.containers
            .iter()
            .filter(|c| matches!(c.state, ContainerState::Running | ContainerState::Unknown))
    }

    /// The newest sandbox, if that one is ready.
    pub fn ready_sandbox(&self) -> Option<&RuntimeSandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }
}

/// A pod of which the runtime holds a sandbox or a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPod {
    /// The pod's identity, from the labels.
    pub pod: PodRef,
    /// The source from which the pod came, as its sandbox's annotations say.
    pub source: Option<Source>,
}

/// All pods that the runtime holds something of, by UID.
pub type HeldPods = Arc<BTreeMap<PodUid, HeldPod>>;

/// A pod sandbox.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuntimeSandbox {
    /// The runtime's ID.
    pub id: Arc<str>,
    /// `metadata.attempt`.
    pub attempt: u32,
    /// Whether its state is SANDBOX_READY.
    pub ready: bool,
    /// When the runtime created it.
    pub created_at: Timestamp,
    /// Primary address first; empty with host network or before the network is up.
    pub ips: Vec<Arc<str>>,
    /// The sandbox shares the node's network namespace.
    pub host_network: bool,
    /// The runtime handler, empty for the default one.
    pub runtime_handler: Arc<str>,
}

/// CRI's four container states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Exited,
    /// The runtime does not know the state.
    Unknown,
}

/// A container instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuntimeContainer {
    /// The runtime's ID, without `<runtime>://`.
    pub id: Arc<str>,
    /// The sandbox it belongs to.
    pub sandbox_id: Arc<str>,
    /// The container's name in the pod spec.
    pub name: Arc<str>,
    /// `metadata.attempt`, which is the restart count.
    pub attempt: u32,
    /// The state of its process.
    pub state: ContainerState,
    /// When the runtime created it.
    pub created_at: Timestamp,
    /// When its process started; absent before.
    pub started_at: Option<Timestamp>,
    /// When its process ended; absent before.
    pub finished_at: Option<Timestamp>,
    /// The exit code, meaningful when Exited.
    pub exit_code: i32,
    /// CamelCase reason of the runtime (Completed, Error, OOMKilled, …).
    pub reason: Arc<str>,
    /// The runtime's message.
    pub message: Arc<str>,
    /// The runtime's name of the image, such as one of its tags.
    pub image: Arc<str>,
    /// The runtime's reference of the image (`ImageRef`), shown as `imageID`.
    pub image_ref: Arc<str>,
    /// `io.kubernetes.container.hash`, if it is there and is a hexadecimal number.
    pub hash: Option<u64>,
    /// The labels and annotations of `io.kubernetes.*` that the kubelet wrote.
    pub annotations: Arc<BTreeMap<String, String>>,
    /// Absolute path of the log file as the runtime states it; empty if it does not.
    pub log_path: Arc<str>,
    /// The user, limits, stop signal and mounted images that the container really has, as the runtime states them; `None` where it
    /// does not.
    pub effective: Option<Arc<Effective>>,
}

/// The user, limits, stop signal and images mounted that a container really has. A limit is `None` where the runtime does not state it, or where
/// there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// The user that its first process began as.
    pub user: Option<User>,
    /// CPU limit, thousandths of a CPU.
    pub cpu_limit_millis: Option<i64>,
    /// CPU request derived from its CPU shares, thousandths of a CPU.
    pub cpu_request_millis: Option<i64>,
    /// Memory limit, bytes.
    pub memory_limit_bytes: Option<i64>,
    /// The signal by which the runtime asks it to end, by its name in the API, such as `SIGTERM`.
    pub stop_signal: Option<Arc<str>>,
    /// The runtime's IDs of the images that it mounts as volumes, by their paths in the container.
    pub mounted_images: BTreeMap<Arc<str>, Arc<str>>,
}

/// A user as the kernel knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// User ID.
    pub uid: i64,
    /// Primary group.
    pub gid: i64,
    /// All further groups.
    pub supplemental_groups: Vec<i64>,
}

/// A way in which the runtime runs containers (`runtimeClassName` chooses one).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuntimeHandler {
    /// The handler's name; empty for the default one.
    pub name: String,
    /// The handler can make a whole mount tree read-only.
    pub recursive_read_only_mounts: bool,
    /// The handler can give a pod user IDs of its own.
    pub user_namespaces: bool,
}

/// The runtime as a whole, from `Version` and `Status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RuntimeHealth {
    /// The runtime's name, such as `containerd`: the prefix of container IDs in a pod's status.
    pub name: Arc<str>,
    /// The runtime's version.
    pub version: Arc<str>,
    /// The condition RuntimeReady.
    pub ready: bool,
    /// The condition NetworkReady.
    pub network_ready: bool,
    /// What is wrong, for people; empty when nothing is.
    pub problem: String,
    /// The runtime has answered `Status`; else only `problem` and `events` mean anything.
    pub answered: bool,
    /// Why the runtime is not ready, as the Node's Ready condition shows it; empty when it is ready.
    pub runtime_problem: String,
    /// Why the runtime's network is not ready, as the Node's Ready condition shows it; empty when it is ready.
    pub network_problem: String,
    /// The runtime's handlers, sorted by name.
    pub handlers: Vec<RuntimeHandler>,
    /// The runtime pushes container events.
    pub events: bool,
    /// The runtime can restrict a container to the supplemental groups of its spec (`supplementalGroupsPolicy:
    /// Strict`).
    pub supplemental_groups_policy: bool,
    /// How long ago the newest full list began that the runtime has answered; `None` before the first, and for
    /// receivers that are not told after every list.
    pub listed_ago: Option<Duration>,
}

/// Every pod that the runtime holds and that Pleg could look at, as of its newest looks, by UID.
pub type RuntimePods = Arc<BTreeMap<PodUid, Arc<RuntimePod>>>;
