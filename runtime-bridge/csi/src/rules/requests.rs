//! PURE: the requests to a driver, made of what a volume and its objects say.

use std::collections::BTreeMap;
use std::fmt;

use super::access::Access;
use super::capabilities::Capabilities;
use crate::wire::{CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest};

/// Values of Secrets, for a driver alone: `Debug` shows only their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretValues(BTreeMap<String, String>);

impl SecretValues {
    /// These values.
    #[must_use]
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// The values of a Secret's data. What is no UTF-8 cannot travel in a string of protobuf: its broken bytes are replaced.
    pub fn of_data<'a>(data: impl IntoIterator<Item = (&'a String, &'a [u8])>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self(data.into_iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    /// Adds values, over those of the same keys.
    pub fn extend(&mut self, more: BTreeMap<String, String>) {
        self.0.extend(more);
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretValues({})", self.0.len())
    }
}

/// What a volume is staged with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Staging {
    /// The volume's handle.
    pub volume_id: String,
    /// Where: [`Paths::device_mount`](super::paths::Paths::device_mount) or
    /// [`Paths::block_staging`](super::paths::Paths::block_staging).
    pub path: String,
    /// How it is used.
    pub access: Access,
    /// What the VolumeAttachment tells; empty for volumes that are not attached.
    pub publish_context: BTreeMap<String, String>,
    /// The volume's attributes.
    pub attributes: BTreeMap<String, String>,
    /// The values of `nodeStageSecretRef`.
    pub secrets: SecretValues,
}

/// What a volume is published with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publishing {
    /// The volume's handle.
    pub volume_id: String,
    /// Where it is staged; told to drivers that stage, and for block devices always, as upstream does.
    pub staging_path: String,
    /// Where it is shown.
    pub target_path: String,
    /// How it is used.
    pub access: Access,
    /// Whether the pod may only read.
    pub readonly: bool,
    /// What the VolumeAttachment tells; empty for volumes that are not attached.
    pub publish_context: BTreeMap<String, String>,
    /// The volume's attributes, with what the driver wants of the pod: [`super::context`].
    pub attributes: BTreeMap<String, String>,
    /// The values of `nodePublishSecretRef`, with the pod's tokens where the driver wants them here.
    pub secrets: SecretValues,
    /// Whether the volume is inline in its pod, and is never staged.
    pub inline: bool,
}

/// What a volume is made larger with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// The volume's handle.
    pub volume_id: String,
    /// Where it is shown: the target path, or the path of the device.
    pub path: String,
    /// Where it is staged; empty where the driver does not stage.
    pub staging_path: String,
    /// How it is used.
    pub access: Access,
    /// The size that is asked for, bytes.
    pub bytes: i64,
    /// The values of `nodeExpandSecretRef`.
    pub secrets: SecretValues,
}

/// The request to stage a volume. A block device has no mount options and no group.
#[must_use]
pub fn stage(staging: &Staging, able: &Capabilities) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: staging.volume_id.clone(),
        publish_context: staging.publish_context.clone(),
        staging_target_path: staging.path.clone(),
        volume_capability: Some(staging.access.capability(able, true)),
        secrets: staging.secrets.0.clone(),
        volume_context: staging.attributes.clone(),
    }
}

/// The request to publish a volume.
#[must_use]
pub fn publish(publishing: &Publishing, able: &Capabilities) -> NodePublishVolumeRequest {
    let is_block = publishing.access.used_as == super::access::Use::Block;
    let staged = !publishing.inline && (able.stage_unstage || is_block);
    NodePublishVolumeRequest {
        volume_id: publishing.volume_id.clone(),
        publish_context: publishing.publish_context.clone(),
        staging_target_path: if staged { publishing.staging_path.clone() } else { String::new() },
        target_path: publishing.target_path.clone(),
        volume_capability: Some(publishing.access.capability(able, true)),
        readonly: publishing.readonly,
        secrets: publishing.secrets.0.clone(),
        volume_context: publishing.attributes.clone(),
    }
}

/// The request to make a volume larger.
#[must_use]
pub fn expand(expansion: &Expansion, able: &Capabilities) -> NodeExpandVolumeRequest {
    NodeExpandVolumeRequest {
        volume_id: expansion.volume_id.clone(),
        volume_path: expansion.path.clone(),
        capacity_range: Some(CapacityRange { required_bytes: expansion.bytes, limit_bytes: 0 }),
        staging_target_path: expansion.staging_path.clone(),
        volume_capability: Some(expansion.access.capability(able, false)),
        secrets: expansion.secrets.0.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::AccessMode;
    use super::*;

    #[test]
    fn the_staging_path_is_told_where_the_volume_is_staged() {
        let path = |able: bool, access: &Access, inline: bool| {
            let able = Capabilities { stage_unstage: able, ..Default::default() };
            let publishing = Publishing {
                staging_path: "/staged".into(),
                access: access.clone(),
                inline,
                ..Default::default()
            };
            publish(&publishing, &able).staging_target_path
        };
        let (mount, block) = (Access::default(), Access::block(AccessMode::ReadWriteOnce));
        assert_eq!([path(true, &mount, false), path(false, &mount, false)], ["/staged", ""]);
        assert_eq!([path(false, &block, false), path(true, &mount, true)], ["/staged", ""]);
    }

    #[test]
    fn secrets_are_sent_and_not_shown() {
        let data = [("user".to_owned(), b"robot-1".to_vec()), ("raw".to_owned(), vec![0xff, b'x'])];
        let secrets = SecretValues::of_data(data.iter().map(|(key, value)| (key, value.as_slice())));
        let staging = Staging { secrets, ..Default::default() };
        assert!(!format!("{staging:?}").contains("robot-1"));
        let sent = stage(&staging, &Capabilities::default()).secrets;
        assert_eq!((sent["user"].as_str(), sent["raw"].as_str()), ("robot-1", "\u{fffd}x"));
    }

    #[test]
    fn an_expansion_names_size_and_paths() {
        let expansion =
            Expansion { volume_id: "v".into(), path: "/target".into(), bytes: 2 << 30, ..Default::default() };
        let request = expand(&expansion, &Capabilities::default());
        assert_eq!(request.capacity_range.map(|range| range.required_bytes), Some(2 << 30));
        assert_eq!((request.volume_path.as_str(), request.staging_target_path.as_str()), ("/target", ""));
    }
}
