//! The ports through which VolumeManager reads the objects that volumes show as files.

use std::sync::Arc;

use bridge_io::SharedPlaces;
use messages::object_cache::{GetConfigMap, GetSecret, GetToken};
use pod_spec::resources::NodeResources;
use supervision::AskPort;

use crate::actor::VolumeManager;

/// So many volumes of objects are written at once: each has its files in memory, up to 64 MiB, and a change of one object is one for
/// all pods that show it.
const SHOWN_AT_ONCE: usize = 8;

/// The places of volumes of objects that are being written, which namespaces share.
#[derive(Clone, Debug)]
pub struct Showing(pub(crate) SharedPlaces);

impl Default for Showing {
    fn default() -> Self {
        Self(SharedPlaces::new(SHOWN_AT_ONCE))
    }
}

/// The sources of the contents of volumes of objects.
#[derive(Clone, Debug)]
pub struct Objects {
    /// ObjectCache: secrets.
    pub secrets: AskPort<VolumeManager, GetSecret>,
    /// ObjectCache: config maps.
    pub config_maps: AskPort<VolumeManager, GetConfigMap>,
    /// ObjectCache: tokens of service accounts.
    pub tokens: AskPort<VolumeManager, GetToken>,
    /// Whether the node belongs to a cluster. Without one the only object is the pod itself.
    pub in_cluster: bool,
    /// How many volumes are written at once; it outlives the incarnation.
    pub showing: Showing,
    /// The amounts that pods may have of the node, for downward API files and for volumes in memory.
    pub node: Arc<NodeResources>,
}
