//! The ports through which VolumeManager reads the objects that volumes show as files.

use std::sync::Arc;

use messages::object_cache::{GetConfigMap, GetSecret, GetToken};
use pod_spec::resources::NodeResources;
use supervision::AskPort;

use crate::actor::VolumeManager;

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
    /// The amounts that pods may have of the node, for downward API files.
    pub node: Arc<NodeResources>,
}
