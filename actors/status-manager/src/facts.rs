//! What is known of a pod: the newest fact of every writer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use messages::facts::{ContainerVerdict, DesiredPod, WorkerReport, WorkerState};
use messages::runtime::RuntimePod;

/// The newest facts about one pod. Each may be missing: after a restart they come back in any order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodFacts {
    /// The pod as desired, or as it was last desired while it ends.
    pub desired: Option<Arc<DesiredPod>>,
    /// What the runtime holds; `None` until Pleg has spoken of the pod, which is not the same as nothing.
    pub observed: Option<Arc<RuntimePod>>,
    /// What its worker reports; `None` until it has.
    pub report: Option<Arc<WorkerReport>>,
    /// The settled probe verdicts by container name; `None` until ProbeManager has spoken of the pod.
    pub verdicts: Option<Arc<BTreeMap<String, ContainerVerdict>>>,
    /// The last panic by the subsystem that leaves the pod alone because of it.
    pub quarantine: BTreeMap<Arc<str>, Arc<str>>,
}

impl PodFacts {
    /// The worker says that all is stopped.
    pub fn is_stopped(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.state == WorkerState::Terminated)
    }

    /// The worker has given everything back.
    pub fn is_released(&self) -> bool {
        self.report.as_ref().is_some_and(|r| r.released)
    }

    /// A container may have a live process, as far as the runtime's last word goes.
    pub fn has_live_container(&self) -> bool {
        self.observed.as_ref().is_some_and(|o| o.live().next().is_some())
    }
}

/// What is the same for every pod of the node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// `containerd`; `None` until Pleg has told. Without it no container can be named.
    pub runtime_name: Option<Arc<str>>,
    /// The runtime's handlers that can make a whole mount tree read-only; the default one has the empty name.
    pub recursive_read_only: BTreeSet<String>,
    /// The node's addresses, primary first, at most one of each family.
    pub host_ips: Vec<String>,
    /// The feature gate PodReadyToStartContainersCondition is off.
    pub no_ready_to_start: bool,
}
