//! PURE: the resources that a pod uses.

use std::collections::BTreeMap;

use bridge_node::stats::DiskUsage;
use k8s_openapi::api::core::v1::{Pod, Volume};
use pod_rules::volume_plugins::{CONFIG_MAP, EMPTY_DIR};
use pod_rules::volumes::is_on_node_disk;

use crate::file_systems::Parts;

/// The usage of a container. Figures that are unknown are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ContainerUse {
    /// Bytes of its working set.
    pub(crate) memory_bytes: Option<u64>,
    /// Disk usage of its writable layer.
    pub(crate) layer: Option<DiskUsage>,
    /// Disk usage of its logs.
    pub(crate) logs: Option<DiskUsage>,
}

/// The usage of a pod; only the figures that were wanted have been measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodUse {
    /// Bytes of its working set.
    pub(crate) memory_bytes: Option<u64>,
    /// Number of processes.
    pub(crate) processes: u64,
    /// By container name.
    pub(crate) containers: BTreeMap<String, ContainerUse>,
    /// By volume name.
    pub(crate) volumes: BTreeMap<String, DiskUsage>,
    /// Its hosts file and its containers' termination messages, which lie where volumes do.
    pub(crate) own: DiskUsage,
}

impl PodUse {
    /// The pod's usage of a disk on which these parts lie.
    pub(crate) fn disk(&self, parts: Parts) -> DiskUsage {
        let layers = self.containers.values().filter_map(|one| one.layer.filter(|_| parts.layers));
        let logs = self.containers.values().filter_map(|one| one.logs.filter(|_| parts.logs));
        let volumes = self.volumes.values().copied().filter(|_| parts.volumes);
        let own = parts.volumes.then_some(self.own);
        layers.chain(logs).chain(volumes).chain(own).fold(DiskUsage::default(), DiskUsage::plus)
    }
}

/// The volumes that use the node's own disk.
pub(crate) fn local_volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    let all = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    all.filter(|volume| is_on_node_disk(volume))
}

/// The plugin of such a volume.
pub(crate) fn plugin_of(volume: &Volume) -> &'static str {
    if volume.empty_dir.is_some() { EMPTY_DIR } else { CONFIG_MAP }
}
