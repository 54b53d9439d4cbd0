//! What is known of a pod: the newest fact from every actor that tells one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::facts::{ContainerVerdict, DesiredPod, WorkerReport, WorkerState};
use messages::runtime::RuntimePod;

/// The newest facts about one pod. Each may be missing: after a restart they come back in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    /// The pod as desired, or as it was last desired while it ends.
    pub desired: Option<Arc<DesiredPod>>,
    /// What the runtime holds; `None` until Pleg has told of the pod, which differs from a pod of which nothing is
    /// left.
    pub observed: Option<Arc<RuntimePod>>,
    /// The token of the newest look of which Pleg has told.
    pub look: u64,
    /// What its worker reports; `None` until the first report.
    pub report: Option<Arc<WorkerReport>>,
    /// The settled probe verdicts by container name; `None` until ProbeManager has told of the pod.
    pub verdicts: Option<Arc<BTreeMap<String, ContainerVerdict>>>,
    /// The subsystems that have quarantined the pod, each with its last panic.
    pub quarantine: BTreeMap<Arc<str>, Arc<str>>,
}

impl PodFacts {
    /// Whether the worker says that all containers are stopped.
    pub fn is_stopped(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.state == WorkerState::Terminated)
    }

    /// Whether Pleg has told of the look in which the worker saw all containers stopped, or of a later one: an older one may
    /// lack containers.
    pub fn has_last_look(&self) -> bool {
        self.report.as_ref().is_none_or(|r| self.look >= r.last_look)
    }

    /// Whether the worker has released everything that the pod held.
    pub fn is_released(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.released)
    }

    /// Whether a container may have a live process, as far as Pleg last told.
    pub fn has_live_container(&self) -> bool {
        self.observed.as_ref().is_some_and(|o| o.live().next().is_some())
    }
}

/// Facts that are the same for every pod of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// The runtime's name, like `containerd`; `None` until Pleg has told it. Container IDs need it as their prefix.
    pub runtime_name: Option<Arc<str>>,
    /// The runtime's handlers that can make a whole mount tree read-only; the default one has the empty name.
    pub recursive_read_only: BTreeSet<String>,
    /// The node's addresses, primary first, at most one of each family.
    pub host_ips: Vec<String>,
    /// The feature gate PodReadyToStartContainersCondition is off.
    pub no_ready_to_start: bool,
    /// The feature gate ContainerStopSignals is on.
    pub stop_signals: bool,
    /// The feature gate ImageVolumeWithDigest is on.
    pub image_volume_digests: bool,
}
