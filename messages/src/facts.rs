//! Facts that several actors receive. Each fact has one writer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeAddress, Pod};
use pod_spec::resources::NodeResources;
use serde::Serialize;

use crate::config_manager::Configured;
use crate::delivery;
use crate::pod::{PodRef, PodUid};
use crate::pod_set::{Generation, PodSetUpdate};
use crate::runtime::{RuntimeHealth, RuntimePod};
use crate::text::cut;

/// Where a desired pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The static-pod path.
    File,
    /// The manifest URL.
    Http,
    /// Requests to the kubelet's own server.
    Submission,
    /// The API server.
    Api,
}

impl Source {
    /// The source as the annotation `kubernetes.io/config.source` spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Submission => "submission",
            Self::Api => "api",
        }
    }

    /// The source that an annotation's value names; `None` for any other text.
    pub fn from_annotation(value: &str) -> Option<Self> {
        let all = [Self::File, Self::Http, Self::Submission, Self::Api];
        all.into_iter().find(|source| source.as_str() == value)
    }
}

/// One pod that this node shall run.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredPod {
    /// The pod's identity.
    pub pod_ref: PodRef,
    /// The whole API object, defaulted and validated.
    pub pod: Arc<Pod>,
    /// Where the pod comes from.
    pub source: Source,
    /// Why the node refuses the pod: no worker runs it, and its phase is Failed, or Pending where the refusal is not
    /// final.
    pub rejected: Option<Rejection>,
    /// The last time that the pod's manifest was removed and made anew, as far as PodSources has seen that happen: a
    /// worker that has begun before ends, and the pod begins anew.
    pub made_anew: Option<Generation>,
}

/// A refusal at admission, with upstream's reason and message. It is made by [`Rejection::new`] alone, which bounds both: a pod's
/// author chooses much of what they say, and they stand in statuses, events and the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rejection {
    /// CamelCase reason, e.g. `OutOfpods`.
    pub reason: String,
    /// The handler's message, without the prefix `Pod was rejected: `.
    pub message: String,
}

/// The reason of a pod that asks for a feature that this version of the kubelet does not have. Upstream's
/// `PodFeatureUnsupported` fails the pod for good; with this reason the pod stays Pending until a later kubelet runs
/// it.
pub const UNSUPPORTED_FIELDS: &str = "UnsupportedFields";

/// The most bytes of what a refusal says; a longer text is cut, which three dots say.
pub const REFUSAL_BYTES_MAX: usize = 4096;
/// The most bytes of a refusal's reason, which may have the name of a resource in it.
const REASON_BYTES_MAX: usize = 512;

impl Rejection {
    /// A refusal for this reason, of bounded length.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        let (mut reason, mut message) = (reason.into(), message.into());
        cut(&mut reason, REASON_BYTES_MAX);
        cut(&mut message, REFUSAL_BYTES_MAX);
        Self { reason, message }
    }

    /// Whether the pod has failed by this refusal; otherwise it stays Pending until the kubelet or its spec changes.
    pub fn is_final(&self) -> bool {
        self.reason != UNSUPPORTED_FIELDS
    }
}

/// A pod as its source states it.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePod {
    /// The API object, defaulted and validated.
    pub pod: Arc<Pod>,
    /// Set when this kubelet cannot run the pod exactly as it is written: the pod stays Pending, and its spec is never
    /// silently changed. With a final refusal the source keeps nothing but the pod's identity, deletion and status.
    pub refused: Option<Rejection>,
    /// The last time that the pod's manifest was removed and made anew, as far as PodSources has seen that happen.
    pub made_anew: Option<Generation>,
}

/// All desired pods, as PodManager answers `GetDesiredPods`.
#[derive(Clone, Debug)]
pub struct DesiredPods {
    /// By UID.
    pub pods: Arc<BTreeMap<PodUid, Arc<DesiredPod>>>,
    /// Every configured source has been heard: only then does absence mean removal (row 1.7).
    pub sources_ready: bool,
}

/// The desired pods, pod by pod. PodManager tells StatusManager of every change of a pod's object; all others are told
/// when anything but its status has changed, or when the pod has come to its end. Writer: PodManager.
#[derive(Clone, Debug)]
pub struct DesiredPodsChanged(pub PodSetUpdate<Arc<DesiredPod>>);
delivery!(DesiredPodsChanged => (): Command, LatestPerKey, pod = |m| m.0.pod(), key = |m| m.0.key());

/// What Pleg's newest look at a pod found.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenPod {
    /// What the runtime holds of the pod.
    pub state: Arc<RuntimePod>,
    /// The token of the newest `PodTouched` that had arrived when Pleg began this look.
    pub touch: u64,
}

/// What the runtime holds of pods, pod by pod. A pod of which it holds nothing is told as such and stays in the set for some
/// time. The set is complete when every pod has been looked at that the first whole list named. Writer: Pleg.
#[derive(Clone, Debug)]
pub struct PodObserved(pub PodSetUpdate<SeenPod>);
delivery!(PodObserved => (): Command, LatestPerKey, pod = |m| m.0.pod(), key = |m| m.0.key());

/// The runtime's own health. Writer: Pleg.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeObserved(pub Arc<RuntimeHealth>);
delivery!(RuntimeObserved => (): Command, LatestPerKey);

/// The Node as the API server has it, or `None` if the API server has none. Sent once that is known, and again when
/// there is another Node, or its labels, annotations, spec, or the volumes in use or attached to it have changed. The rest of its
/// status may be older than the API server's. Writer: NodeStatus.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeObserved(pub Option<Arc<Node>>);
delivery!(NodeObserved => (): Command, LatestPerKey);

/// The resources that the node runs out of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pressure {
    /// Memory is short (condition MemoryPressure).
    pub memory: bool,
    /// Disk space or inodes are short (condition DiskPressure).
    pub disk: bool,
    /// Process IDs are short (condition PIDPressure).
    pub pid: bool,
}

/// The node's measured pressure; not sent before the first measurement. Writer: EvictionManager.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PressureObserved(pub Pressure);
delivery!(PressureObserved => (): Command, LatestPerKey);

/// What the node has and what pods may have of it from now on, by `maxPods`, `podsPerCore` and `evictionHard`. Writer:
/// ConfigManager.
pub type NodeResourcesConfigured = Configured<Arc<NodeResources>>;
delivery!(NodeResourcesConfigured => (): Command, LatestPerKey);

/// The node's addresses as its status lists them: sent when they are first known, and again when they change. Writer:
/// NodeStatus.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeAddressesObserved(pub Arc<[NodeAddress]>);

impl NodeAddressesObserved {
    /// The node's IP addresses for `status.hostIPs` and the downward API, at most two: internal addresses before
    /// external ones; the first address, and the first one of the other family.
    pub fn host_ips(&self) -> Vec<String> {
        let of = |kind: &'static str| {
            let typed = self.0.iter().filter(move |address| address.type_ == kind);
            typed.filter_map(|address| address.address.parse::<IpAddr>().ok())
        };
        let mut all = of("InternalIP").chain(of("ExternalIP"));
        let Some(primary) = all.next() else { return Vec::new() };
        let other = all.find(|ip| ip.is_ipv6() != primary.is_ipv6());
        std::iter::once(primary).chain(other).map(|ip| ip.to_string()).collect()
    }
}
delivery!(NodeAddressesObserved => (): Command, LatestPerKey);

/// Volumes on this node that an earlier kubelet set up with plugins that this kubelet does not have. Writer:
/// VolumeManager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherVolumesObserved {
    /// The names under which the Node reports these volumes in `volumesInUse`.
    pub names: Arc<BTreeSet<String>>,
    /// Plugins, such as `kubernetes.io/fc`, with a volume whose unique name is not known.
    pub plugins: Arc<BTreeSet<String>>,
    /// The names of attachable volumes that this kubelet is about to use or uses: the Node reports them in use, whatever it
    /// reported before, and no volume is used before it does.
    pub own: Arc<BTreeSet<String>>,
}

impl OtherVolumesObserved {
    /// Whether a volume that the Node reports under this name is, or may be, one of those that were found.
    pub fn has(&self, name: &str) -> bool {
        let is_of =
            |plugin: &String| name.strip_prefix(plugin.as_str()).is_some_and(|rest| rest.starts_with('/'));
        self.names.contains(name) || self.plugins.iter().any(is_of)
    }
}
delivery!(OtherVolumesObserved => (): Command, LatestPerKey);

/// What a CSI driver tells of this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverNode {
    /// The node's name in the driver's world.
    pub node_id: String,
    /// The node's place in the driver's topology, as labels.
    pub topology: BTreeMap<String, String>,
}

/// What the cluster is told of CSI drivers on this node. Writer: VolumeManager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiDriversObserved {
    /// The drivers by name; `None` for one that was registered and is not any more. Drivers that are not named have not
    /// registered with this incarnation, and the Node keeps what it says of them.
    pub drivers: Arc<BTreeMap<String, Option<DriverNode>>>,
    /// Whether the Node has its CSINode.
    pub csi_node: CsiNodeState,
}

/// Whether a Node has its CSINode, without which the scheduler counts no volumes: a new Node is not ready before that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CsiNodeState {
    /// It is not known yet.
    #[default]
    Unknown,
    /// The Node with this UID has it.
    Of(Arc<str>),
    /// It cannot be made, with the reason; that is tried again.
    Failed(Arc<str>),
}
delivery!(CsiDriversObserved => (): Command, LatestPerKey);

/// The three kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// Asks whether the container has started.
    Startup,
    /// Asks whether the container is alive; a failure restarts it.
    Liveness,
    /// Asks whether the container may receive traffic.
    Readiness,
}

/// The settled results of one container instance's probes. Writer: ProbeManager.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerVerdict {
    /// The instance's container ID in the runtime.
    pub container_id: Arc<str>,
    /// `Some(true)` once the startup probe has passed, `Some(false)` once it has failed for good.
    pub startup: Option<bool>,
    /// `Some(false)` once the liveness probe has failed for good.
    pub liveness: Option<bool>,
    /// The result of the readiness probe once it has settled.
    pub readiness: Option<bool>,
}

/// All settled probe verdicts of a pod, by container name; a container without probes has no entry.
pub type Verdicts = Arc<BTreeMap<String, ContainerVerdict>>;

/// The verdicts on pods with probes, pod by pod. Of a pod whose containers ProbeManager has not heard of yet it says that there
/// is such a pod. The set is complete once all desired pods are known. Writer: ProbeManager.
#[derive(Clone, Debug)]
pub struct ProbeVerdict(pub PodSetUpdate<Verdicts>);
delivery!(ProbeVerdict => (): Command, LatestPerKey, pod = |m| m.0.pod(), key = |m| m.0.key());

/// The three states of a pod worker (row 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum WorkerState {
    /// The worker works towards running the pod.
    Syncing,
    /// The worker stops the pod's containers.
    Terminating,
    /// All containers are stopped; the pod's resources are being given back, or have been.
    Terminated,
}

/// Why a container waits, as its pod's worker states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitingReason {
    /// `CrashLoopBackOff`, `ErrImagePull`, `CreateContainerError`, … (row 5.9).
    pub reason: String,
    /// The message, for people.
    pub message: String,
}

/// What a worker states about its pod that the runtime does not show. Writer: PodWorker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerReport {
    /// The pod's identity.
    pub pod: PodRef,
    /// The worker's state.
    pub state: WorkerState,
    /// The token of the look ([`SeenPod::touch`]) in which the worker saw that nothing of the pod runs any more; only with
    /// `Terminated`, before that 0. How the pod has ended cannot be told from an older look.
    pub last_look: u64,
    /// Everything the pod had on this node has been given back; only with `Terminated`.
    pub released: bool,
    /// Containers that run, but whose postStart hook has not ended: they count as waiting (row 5.19).
    pub starting: Arc<BTreeSet<String>>,
    /// The instances (container IDs of the runtime) that are being killed to make room for a new one, by container
    /// name: the end of such an instance is not its container's end, whatever the restart policy says.
    pub replaced: Arc<BTreeMap<String, Arc<str>>>,
    /// Why containers wait, by name.
    pub waiting: Arc<BTreeMap<String, WaitingReason>>,
    /// Set while the pod ends or has ended by a decision of the node (eviction, deadline, unsupported):
    /// phase Failed with this reason and message.
    pub failed: Option<Rejection>,
    /// The pod ends because it was deleted or removed, not because its containers finished.
    pub deleted: bool,
    /// The newest time that the worker knows of at which the pod's manifest was removed and made anew
    /// ([`DesiredPod::made_anew`]): the end of an earlier worker, which knows an older one, is not this one's.
    pub made_anew: Option<Generation>,
    /// How long the worker has waited for images so far, in milliseconds, rounded to tenths of a second.
    pub pulled_ms: u64,
    /// The step that is being waited for, for people (row 30.2), e.g. `StopContainer web (12s)`.
    pub blocked_on: Option<String>,
}

impl WorkerReport {
    /// Whether the worker is over.
    pub fn is_over(&self) -> bool {
        self.released && self.deleted
    }
}

/// The workers' newest reports, pod by pod. The last report of a worker that is over stays in the set for some time; of an
/// adopted worker that has not reported yet the pool says that it is there. Writer: PodWorkerPool.
#[derive(Clone, Debug)]
pub struct WorkerReported(pub PodSetUpdate<Arc<WorkerReport>>);
delivery!(WorkerReported => (): Command, LatestPerKey, pod = |m| m.0.pod(), key = |m| m.0.key());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_told_of_one_address_of_each_family_internal_ones_first() {
        let told = |addresses: &[(&str, &str)]| {
            let address = |(kind, address): &(&str, &str)| NodeAddress {
                type_: (*kind).to_owned(),
                address: (*address).to_owned(),
            };
            NodeAddressesObserved(addresses.iter().map(address).collect()).host_ips().join(",")
        };
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[("Hostname", "192.0.2.1")]), "", "a name, whatever it looks like");
        assert_eq!(told(&[("ExternalIP", "203.0.113.1"), ("InternalIP", "192.0.2.1")]), "192.0.2.1");
        assert_eq!(
            told(&[
                ("InternalIP", "2001:db8::1"),
                ("InternalIP", "2001:db8::2"),
                ("Hostname", "n"),
                ("ExternalIP", "203.0.113.1"),
                ("InternalIP", "192.0.2.1"),
            ]),
            "2001:db8::1,192.0.2.1"
        );
        assert_eq!(
            told(&[("InternalIP", "2001:db8::1"), ("ExternalIP", "203.0.113.1")]),
            "2001:db8::1,203.0.113.1"
        );
        assert_eq!(told(&[("InternalIP", "nonsense"), ("InternalIP", "192.0.2.1")]), "192.0.2.1");
    }

    #[test]
    fn a_refusal_has_a_bounded_length_whatever_it_is_made_of() {
        let refusal = Rejection::new("OutOf".to_owned() + &"r".repeat(5000), "ä".repeat(5000));
        assert_eq!(refusal.reason, format!("OutOf{}...", "r".repeat(REASON_BYTES_MAX - 5)));
        assert_eq!(refusal.message, format!("{}...", "ä".repeat(REFUSAL_BYTES_MAX / 2)));
        let refusal = Rejection::new(UNSUPPORTED_FIELDS, "spec.x");
        assert_eq!((&*refusal.reason, &*refusal.message), (UNSUPPORTED_FIELDS, "spec.x"));
    }
}
