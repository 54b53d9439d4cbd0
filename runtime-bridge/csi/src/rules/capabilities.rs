//! PURE: what a driver's node service can do.

use crate::wire::NodeGetCapabilitiesResponse;
use crate::wire::node_service_capability::Type;
use crate::wire::node_service_capability::rpc::Type as Can;

/// What a driver's node service can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Volumes are staged on the node before they are published to pods.
    pub stage_unstage: bool,
    /// It tells of the sizes of volumes.
    pub volume_stats: bool,
    /// It makes volumes larger.
    pub expand: bool,
    /// It tells of the health of volumes, with their sizes.
    pub volume_condition: bool,
    /// It tells one writer on a node from several.
    pub single_node_multi_writer: bool,
    /// It gives volumes to the pod's group itself.
    pub volume_mount_group: bool,
}

impl Capabilities {
    /// What an answer tells; capabilities that are not known here are passed over.
    #[must_use]
    pub fn of(told: &NodeGetCapabilitiesResponse) -> Self {
        let mut able = Self::default();
        for capability in &told.capabilities {
            let Some(Type::Rpc(rpc)) = &capability.r#type else { continue };
            match rpc.r#type() {
                Can::StageUnstageVolume => able.stage_unstage = true,
                Can::GetVolumeStats => able.volume_stats = true,
                Can::ExpandVolume => able.expand = true,
                Can::VolumeCondition => able.volume_condition = true,
                Can::SingleNodeMultiWriter => able.single_node_multi_writer = true,
                Can::VolumeMountGroup => able.volume_mount_group = true,
                Can::Unknown => {}
            }
        }
        able
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::NodeServiceCapability;
    use crate::wire::node_service_capability::Rpc;

    #[test]
    fn what_is_not_known_is_passed_over() {
        let one = |number| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: number })) };
        let none = NodeServiceCapability { r#type: None };
        let told = NodeGetCapabilitiesResponse { capabilities: vec![one(1), one(77), none, one(6)] };
        let expected = Capabilities { stage_unstage: true, volume_mount_group: true, ..Default::default() };
        assert_eq!(Capabilities::of(&told), expected);
    }
}
