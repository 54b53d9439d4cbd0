//! The messages that VolumeManager receives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::facts::{DesiredPod, DesiredPodsChanged, NodeObserved, NodeResourcesConfigured};
use crate::object_cache::PodObjectsChanged;
use crate::{PodRef, PodUid, delivery, receives};

/// Asks for every volume of the pod to be mounted. Idempotent. PodWorker asks.
#[derive(Clone, Debug)]
pub struct MountVolumes {
    /// The pod.
    pub pod: Arc<DesiredPod>,
}
delivery!(MountVolumes => Result<Arc<MountedVolumes>, VolumesNotReady>: Command, Wait, pod = |m| Some(&m.pod.pod_ref.uid));

/// Asks VolumeManager to undo every mount of the pod and remove its directory. PodWorker asks only after the pod's
/// containers have died. Idempotent.
#[derive(Clone, Debug)]
pub struct UnmountVolumes {
    /// The pod.
    pub pod: PodRef,
}
delivery!(UnmountVolumes => Result<(), VolumeError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// Asks for parts of a container's volumes to be ready to mount: missing directories are made, and each part is mounted
/// at a place of its own, where nothing that containers do to the volume can change which file it is. Idempotent: a
/// part that now names another file replaces the earlier mount. Only while the pod's volumes are mounted.
#[derive(Clone, Debug)]
pub struct PrepareSubpaths {
    /// The pod.
    pub pod: PodRef,
    /// The container's name.
    pub container: String,
    /// The parts to prepare.
    pub subpaths: Vec<Subpath>,
}
delivery!(PrepareSubpaths => Result<BTreeMap<usize, String>, VolumeError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// A part of a volume that a container mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subpath {
    /// The index of the mount in `volumeMounts`, by which the answer gives the part's place on the node.
    pub index: usize,
    /// The volume's name in the pod spec.
    pub volume: String,
    /// Absolute host path of the volume.
    pub volume_path: String,
    /// The part's path, relative to the volume.
    pub path: String,
}

/// Where a pod's volumes are on the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MountedVolumes {
    /// Absolute host paths by volume name; of a block device the link to it. Empty for an image, which the runtime mounts.
    pub host_paths: BTreeMap<String, String>,
    /// The groups by which the pod's containers have access to its PersistentVolumes (row 10.23).
    pub groups: BTreeSet<i64>,
    /// The volumes, by name, whose files keep their SELinux labels: they are mounted with one, or are not the pod's alone (row
    /// 10.24).
    pub keep_labels: BTreeSet<String>,
}

/// Why a volume is not mounted, or not unmounted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeError {
    /// The volume's name in the pod spec; empty when the failure is about the pod's directory.
    pub volume: String,
    /// The chain of causes, for people.
    pub message: String,
}

/// Why not all volumes of a pod are mounted, and when to ask again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumesNotReady {
    /// The failure of the first of them.
    pub error: VolumeError,
    /// The names of the volumes that are not mounted, sorted.
    pub unmounted: Vec<String>,
    /// Milliseconds until VolumeManager tries the first of them again; an ask before that does not try it.
    pub retry_after_ms: u64,
}

/// Asks for every pod that has volumes on this node, with their paths.
#[derive(Clone, Debug)]
pub struct GetVolumes;
delivery!(GetVolumes => BTreeMap<PodUid, Arc<MountedVolumes>>: Query, Reject);

/// Asks how large the volumes of all pods are and what they use (row 10.27). The answer comes from memory where a volume was
/// measured within `volumeStatsAggPeriod`; others are measured for it, and it comes within two seconds without those that
/// take longer. The next ask finds them.
#[derive(Clone, Debug)]
pub struct GetVolumeStats;
delivery!(GetVolumeStats => BTreeMap<PodUid, Arc<PodVolumeStats>>: Query, Reject);

/// The figures of a pod's volumes, by the volume's name in the pod spec. Volumes that are not measured (hostPath) are
/// absent, and so are those that could not be at the last look, unless they count to the pod's own use of the node's disk.
pub type PodVolumeStats = BTreeMap<String, VolumeStats>;

/// The figures of one volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeStats {
    /// When the volume was measured.
    pub measured_at: Timestamp,
    /// The claim through which the pod has the volume, in the pod's namespace; the `pvcRef` of upstream's figures.
    pub claim: Option<String>,
    /// Whether the volume counts to the pod's own `ephemeral-storage`: an emptyDir on disk, a ConfigMap.
    pub on_node_disk: bool,
    /// The figures; `None` if they are unknown, so that no sum which this volume belongs to is taken for whole.
    pub usage: Option<VolumeUsage>,
}

/// What a volume can hold and what it holds. A figure that its kind does not have is 0, as upstream shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumeUsage {
    /// Bytes that are left to users without privileges.
    pub available_bytes: u64,
    /// Bytes of the whole file system or device.
    pub capacity_bytes: u64,
    /// Bytes in use: of the volume's own files where it shares its file system, else of the file system.
    pub used_bytes: u64,
    /// Inodes of the whole file system.
    pub inodes: u64,
    /// Inodes that are left.
    pub inodes_free: u64,
    /// Inodes in use, of the same files as `used_bytes`.
    pub inodes_used: u64,
    /// The volume's health, where its CSI driver tells of it.
    pub condition: Option<VolumeCondition>,
}

/// The health of a volume, as its CSI driver tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeCondition {
    /// Whether something is wrong with the volume.
    pub abnormal: bool,
    /// What is wrong, for people.
    pub message: String,
}

receives!(
    "VolumeManager": DesiredPodsChanged, MountVolumes, UnmountVolumes, PrepareSubpaths, PodObjectsChanged, NodeObserved,
    NodeResourcesConfigured, GetVolumes, GetVolumeStats
);
