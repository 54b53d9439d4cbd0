//! What VolumeManager receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::facts::{DesiredPod, DesiredPods};
use crate::{PodRef, PodUid, delivery, receives};

/// Have every volume of the pod ready. Idempotent.
#[derive(Clone, Debug)]
pub struct MountVolumes {
    /// The pod.
    pub pod: Arc<DesiredPod>,
}
delivery!(MountVolumes => Result<Arc<MountedVolumes>, VolumeError>: Command, Wait, pod = |m| Some(&m.pod.pod_ref.uid));

/// Undo every mount of the pod and remove its directory. Only after its containers have died. Idempotent.
#[derive(Clone, Debug)]
pub struct UnmountVolumes {
    /// The pod.
    pub pod: PodRef,
}
delivery!(UnmountVolumes => Result<(), VolumeError>: Command, Wait, pod = |m| Some(&m.pod.uid));

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

/// Every pod that has volumes on this node and their paths.
#[derive(Clone, Debug)]
pub struct GetVolumes;
delivery!(GetVolumes => BTreeMap<PodUid, Arc<MountedVolumes>>: Query, Reject);

receives!("VolumeManager": DesiredPods, MountVolumes, UnmountVolumes, GetVolumes);
