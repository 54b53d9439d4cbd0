//! What VolumeManager works through.

use std::fmt;
use std::sync::Arc;

use bridge_csi::plugins::Plugins;
use bridge_csi::{DriverRegistry, NodeVolumes, VolumeFigures};
use bridge_io::clock::Clock;
use bridge_io::compute::Compute;
use bridge_kube::{ClaimStatuses, CsiNodes, VolumeObjects};
use bridge_node::host::{Layout, NetworkDisks, PodDirs};
use bridge_node::mounts::Mounts;
use messages::event_recorder::RecordEvent;
use pod_spec::quantity::Quantity;
use pod_spec::resources::NodeResources;
use supervision::Address;

use crate::attachments::Attachments;
use crate::devices::Devices;
use crate::flex::Flex;
use crate::objects::Objects;
use crate::plan;
use crate::selinux::Selinux;

/// What mounting and unmounting goes through.
#[derive(Clone, Debug)]
pub struct Backends {
    /// The mounts and the directories of volumes.
    pub mounts: Arc<dyn Mounts>,
    /// The pods' own directories.
    pub pod_dirs: Arc<dyn PodDirs>,
    /// The source of the files of secrets, config maps, tokens and pod fields.
    pub objects: Objects,
    /// The recorder of events, for what happens while a volume is set up.
    pub events: Address<RecordEvent>,
    /// The claims of pods and the volumes behind them; `None` without a cluster.
    pub volume_objects: Option<Arc<dyn VolumeObjects>>,
    /// The status of these claims; `None` without a cluster.
    pub claim_statuses: Option<Arc<dyn ClaimStatuses>>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Computing whose amount pods choose.
    pub compute: Arc<dyn Compute>,
    /// The CSI drivers.
    pub csi: Csi,
    /// The FlexVolume drivers; what is known of them outlives the incarnation.
    pub flex: Flex,
    /// The disks that a network brings.
    pub network_disks: Arc<dyn NetworkDisks>,
    /// The devices that pods share; it outlives the incarnation.
    pub devices: Devices,
    /// The volumes that the cluster attaches; it outlives the incarnation.
    pub attachments: Attachments,
    /// How volumes are labelled; `None` on a node without SELinux.
    pub selinux: Option<Selinux>,
}

/// What volumes of CSI drivers go through.
#[derive(Clone)]
pub struct Csi {
    /// The node's name.
    pub node: String,
    /// The plugins that register.
    pub plugins: Arc<dyn Plugins>,
    /// The drivers that are registered.
    pub registry: Arc<dyn DriverRegistry>,
    /// The drivers' volumes on this node.
    pub volumes: Arc<dyn NodeVolumes>,
    /// The size and health of the drivers' volumes.
    pub figures: Arc<dyn VolumeFigures>,
    /// Feature gate `CSIVolumeHealth`: drivers are asked for the health of their volumes.
    pub tells_health: bool,
    /// The object that lists the drivers of this node; `None` without a cluster.
    pub csi_nodes: Option<Arc<dyn CsiNodes>>,
}

impl fmt::Debug for Csi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csi").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The name by which work for pods and devices counts whose namespace is not known. No namespace has it.
const OF_NO_NAMESPACE: &str = "(none)";

impl Backends {
    /// The same for work of one namespace's pods, which leaves the other namespaces their places for work at volumes; `None`: the
    /// namespace is not known.
    pub(crate) fn for_namespace(&self, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or(OF_NO_NAMESPACE);
        let (mounts, flex) = (self.mounts.for_namespace(namespace), self.flex.of_tenant(namespace));
        let network_disks = self.network_disks.for_namespace(namespace);
        let (pod_dirs, compute) =
            (self.pod_dirs.for_namespace(namespace), self.compute.for_namespace(namespace));
        Self { mounts, flex, network_disks, pod_dirs, compute, ..self.clone() }
    }

    pub(crate) fn node(&self) -> NodeFacts<'_> {
        NodeFacts {
            layout: self.pod_dirs.layout(),
            allocatable_memory_bytes: allocatable_memory_bytes(&self.objects.node),
            in_cluster: self.objects.in_cluster,
        }
    }

    /// Whether the `wanted` mounts of a pod, of which it has `made` ones, are few enough for it and the node, whose mounts are
    /// counted only for a pod that makes many more.
    ///
    /// # Errors
    /// As [`plan::are_few`].
    pub(crate) async fn have_room(&self, wanted: usize, made: usize) -> Result<(), String> {
        let on_node = match plan::is_many(wanted, made) {
            true => self.mounts.count().await.unwrap_or(0),
            false => 0,
        };
        plan::are_few(wanted, made, on_node)
    }
}

/// The facts about the node that plans depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// The paths of the kubelet's directories.
    pub layout: &'a Layout,
    /// Memory that pods may have on this node, in bytes: no memory-backed volume is larger.
    pub allocatable_memory_bytes: u64,
    /// Whether there is an API server to fetch objects from.
    pub in_cluster: bool,
}

/// The bytes of memory that pods may use: the bound of tmpfs volumes without a size of their own.
fn allocatable_memory_bytes(node: &NodeResources) -> u64 {
    let memory = node.allocatable.get("memory").copied().unwrap_or(Quantity::ZERO);
    u64::try_from(memory.units_rounded_up()).unwrap_or(0)
}
