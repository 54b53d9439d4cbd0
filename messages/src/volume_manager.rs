//! What VolumeManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::facts::{DesiredPod, DesiredPodsChanged};
use crate::object_cache::PodObjectsChanged;
use crate::{PodRef, PodUid, delivery, receives};

/// Have every volume of the pod ready. Idempotent.
#[derive(Clone, Debug)]
pub struct MountVolumes {
    /// The pod.
    pub pod: Arc<DesiredPod>,
}
delivery!(MountVolumes => Result<Arc<MountedVolumes>, VolumesNotReady>: Command, Wait, pod = |m| Some(&m.pod.pod_ref.uid));

/// Undo every mount of the pod and remove its directory. Only after its containers have died. Idempotent.
#[derive(Clone, Debug)]
pub struct UnmountVolumes {
    /// The pod.
    pub pod: PodRef,
}
delivery!(UnmountVolumes => Result<(), VolumeError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// Have parts of a container's volumes ready to be mounted: directories that are missing are made, and each part is
/// mounted where nothing that containers do to the volume can change what it is. Idempotent; a part that means another
/// file by now takes the place of the earlier one. Only while the pod's volumes are mounted.
#[derive(Clone, Debug)]
pub struct PrepareSubpaths {
    /// The pod.
    pub pod: PodRef,
    /// The container's name.
    pub container: String,
    /// The parts.
    pub subpaths: Vec<Subpath>,
}
delivery!(PrepareSubpaths => Result<BTreeMap<usize, String>, VolumeError>: Command, Wait, pod = |m| Some(&m.pod.uid));

/// A part of a volume that a container mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subpath {
    /// The index of the mount in `volumeMounts`: the answer has the part's place on the node by it.
    pub index: usize,
    /// The volume's name in the pod spec.
    pub volume: String,
    /// Where the volume is on the node.
    pub volume_path: String,
    /// The part, relative to the volume.
    pub path: String,
}

/// Where volumes are on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountedVolumes {
    /// Absolute host path by volume name.
    pub host_paths: BTreeMap<String, String>,
}

/// Why volumes are not ready or not gone, naming the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeError {
    /// The volume's name in the pod spec; empty when it is about the pod's directory.
    pub volume: String,
    /// For people, the chain of causes.
    pub message: String,
}

/// Why not all volumes of a pod are mounted, and when it is worth another try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumesNotReady {
    /// What is wrong with the first of them.
    pub error: VolumeError,
    /// The names of the volumes that are not mounted, sorted.
    pub unmounted: Vec<String>,
    /// Milliseconds until the first of them is tried again; an ask before that leaves it alone.
    pub retry_after_ms: u64,
}

/// Every pod that has volumes on this node and their paths.
#[derive(Clone, Debug)]
pub struct GetVolumes;
delivery!(GetVolumes => BTreeMap<PodUid, Arc<MountedVolumes>>: Query, Reject);

receives!("VolumeManager": DesiredPodsChanged, MountVolumes, UnmountVolumes, PrepareSubpaths, PodObjectsChanged, GetVolumes);
