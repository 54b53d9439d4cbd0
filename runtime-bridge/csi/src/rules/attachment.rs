//! PURE: the names of volumes and attachments, and what a VolumeAttachment says.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::{PLUGIN, sha256};

/// The name of the VolumeAttachment of a volume on a node.
#[must_use]
pub fn name(volume_id: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&[volume_id, driver, node]))
}

/// The handle of an inline volume, which its driver makes for its pod.
#[must_use]
pub fn inline_handle(pod_uid: &str, volume_name: &str) -> String {
    format!("csi-{}", sha256(&[pod_uid, volume_name]))
}

/// The name under which a volume is told in `volumesInUse`, and found in `volumesAttached`.
#[must_use]
pub fn unique_name(driver: &str, volume_id: &str) -> String {
    format!("{PLUGIN}/{driver}^{volume_id}")
}

/// What a VolumeAttachment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// The volume is attached; with what the driver has to be told on the node.
    Attached(BTreeMap<String, String>),
    /// It is not attached yet, or will not be: upstream's message. `exhausted`: the driver said that the node can take no
    /// more volumes.
    Not {
        /// Why not.
        message: String,
        /// Whether the node can take no more volumes.
        exhausted: bool,
    },
}

/// gRPC's number of the code `ResourceExhausted`.
const RESOURCE_EXHAUSTED: i32 = 8;

/// What the VolumeAttachment `attachment` says of a volume; `None`: there is none.
#[must_use]
pub fn attached(volume_id: &str, name: &str, attachment: Option<&VolumeAttachment>) -> Attachment {
    let not = |message: String| Attachment::Not { message, exhausted: false };
    let Some(attachment) = attachment else {
        return not(format!(
            "volume {volume_id} has GET error for volume attachment {name}: \
             volumeattachments.storage.k8s.io \"{name}\" not found"
        ));
    };
    if attachment.metadata.deletion_timestamp.is_some() {
        return not("volume attachment is being deleted".to_owned());
    }
    let status = attachment.status.as_ref();
    if let Some(status) = status.filter(|status| status.attached) {
        return Attachment::Attached(status.attachment_metadata.clone().unwrap_or_default());
    }
    match status.and_then(|status| status.attach_error.as_ref()) {
        Some(error) => Attachment::Not {
            message: error.message.clone().unwrap_or_default(),
            exhausted: error.error_code == Some(RESOURCE_EXHAUSTED),
        },
        None => not(format!("volume {volume_id} is not attached for volume attachment {name}")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::storage::v1::{VolumeAttachmentStatus, VolumeError};

    use super::*;

    #[test]
    fn names_are_hashes_of_their_parts_in_upstreams_order() {
        // printf 'vol-1d.examplenode-1' | sha256sum
        let expected = sha256(&["vol-1d.examplenode-1"]);
        assert_eq!(name("vol-1", "d.example", "node-1"), format!("csi-{expected}"));
        assert_eq!(inline_handle("u", "v"), format!("csi-{}", sha256(&["uv"])));
        assert_eq!(sha256(&["abc"]), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(unique_name("d", "h/1"), "kubernetes.io/csi/d^h/1");
    }

    #[test]
    fn an_attachment_is_awaited_until_it_is_attached_and_not_beyond_its_error() {
        let with = |status: VolumeAttachmentStatus| {
            let attachment = VolumeAttachment { status: Some(status), ..Default::default() };
            attached("v", "csi-1", Some(&attachment))
        };
        let metadata = BTreeMap::from([("device".to_owned(), "sdb".to_owned())]);
        let done = VolumeAttachmentStatus {
            attached: true,
            attachment_metadata: Some(metadata.clone()),
            ..Default::default()
        };
        assert_eq!(with(done), Attachment::Attached(metadata));
        let waits = Attachment::Not {
            message: "volume v is not attached for volume attachment csi-1".into(),
            exhausted: false,
        };
        assert_eq!(with(VolumeAttachmentStatus::default()), waits);
        let error = VolumeError { message: Some("full".into()), error_code: Some(8), ..Default::default() };
        let failed = VolumeAttachmentStatus { attach_error: Some(error), ..Default::default() };
        assert_eq!(with(failed), Attachment::Not { message: "full".into(), exhausted: true });
        let Attachment::Not { message, .. } = attached("v", "csi-1", None) else { panic!("there is none") };
        assert!(message.contains("csi-1\" not found"), "{message}");
    }
}
