//! What a PersistentVolume is checked for before it is set up, whatever its kind (rows 10.13 and 10.18).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bridge_node::host::OtherVolume;
use bridge_node::mounts::MountPoint;
use k8s_openapi::api::core::v1::NodeSelector;
use messages::PodUid;
use pod_rules::node_selector;

use crate::backends::Backends;
use crate::kinds::{VolumeKind, Wanted};
use crate::plan;
use crate::source::{Persistent, USED_BY_ANOTHER};
use crate::steps::SetUpError;

/// How long the Node is waited for, which may not be known right after a start.
const NODE_WITHIN: Duration = Duration::from_secs(10);
/// The operation that fails for a block device of other nodes.
pub(crate) const BLOCK_AFFINITY: &str = "MapVolume.NodeAffinity check";

/// Checks the volume, if it is a PersistentVolume.
///
/// # Errors
/// [`SetUpError::Unfit`], or the machine's mounts cannot be read.
pub(crate) async fn check(
    backends: &Backends,
    kind: &dyn VolumeKind,
    wanted: &Wanted<'_>,
) -> Result<(), SetUpError> {
    let Some(persistent) = wanted.source.persistent() else { return Ok(()) };
    let is_block = persistent.is_block();
    if let Some(selector) = selector(persistent) {
        let node = backends.attachments.node(NODE_WITHIN).await;
        let labels = node.and_then(|node| node.metadata.labels.clone()).unwrap_or_default();
        affinity(selector, &labels, is_block)?;
    }
    if !is_block {
        options(kind, persistent)?;
    }
    if kind.shares_devices() && persistent.is_for_one_pod() {
        let pods = backends.pod_dirs.layout().pods();
        let volume = (kind.plugin(), persistent.name());
        if is_block {
            let found = backends.pod_dirs.other_volumes(None, &[]).await;
            let found = found.map_err(|error| SetUpError::Device(error.to_string()))?;
            if is_mapped_elsewhere(&found, wanted.uid, volume) {
                return Err(SetUpError::Device(USED_BY_ANOTHER.to_owned()));
            }
            return Ok(());
        }
        let mounts = backends.mounts.list_below(&pods).await?;
        if is_elsewhere(&pods, &mounts, wanted.uid, volume) {
            return Err(SetUpError::Refused(USED_BY_ANOTHER.to_owned()));
        }
    }
    Ok(())
}

/// The nodes that have access to the volume; `None` for all nodes.
fn selector(persistent: &Persistent) -> Option<&NodeSelector> {
    persistent.spec()?.node_affinity.as_ref()?.required.as_ref()
}

/// PURE: whether the node with these labels has access to the volume.
fn affinity(
    selector: &NodeSelector,
    labels: &BTreeMap<String, String>,
    is_block: bool,
) -> Result<(), SetUpError> {
    // A volume is of a place, never of a node by name.
    if node_selector::fits(selector, "", labels) {
        return Ok(());
    }
    let why = "no matching NodeSelectorTerms".to_owned();
    let operation = if is_block { BLOCK_AFFINITY } else { "MountVolume.NodeAffinity check" };
    Err(SetUpError::Unfit { operation, why })
}

/// PURE: whether the kind takes the volume's mount options.
fn options(kind: &dyn VolumeKind, persistent: &Persistent) -> Result<(), SetUpError> {
    if kind.takes_mount_options() || persistent.mount_options().is_empty() {
        return Ok(());
    }
    let why = "mount options are not supported for this volume type".to_owned();
    Err(SetUpError::Unfit { operation: "MountVolume.MountOptionSupport check", why })
}

/// PURE: whether the volume of this plugin and name is mounted for another pod.
fn is_elsewhere(pods: &Path, mounts: &[MountPoint], uid: &PodUid, volume: (&str, &str)) -> bool {
    mounts.iter().any(|mount| {
        let mut below = mount.path.strip_prefix(pods).ok().into_iter().flat_map(Path::iter);
        let Some(other) = below.next().filter(|other| *other != uid.as_str()) else { return false };
        let found = plan::volume_at(&pods.join(other), &mount.path);
        found.is_some_and(|(plugin, name)| (plugin.as_str(), name.as_str()) == volume)
    })
}

/// PURE: whether the block device of this plugin and name is shown to another pod.
fn is_mapped_elsewhere(found: &[OtherVolume], uid: &PodUid, volume: (&str, &str)) -> bool {
    found.iter().any(|found| {
        let of_other = found.pod.as_deref().is_some_and(|pod| pod != uid.as_str());
        of_other && found.is_block && (found.plugin.as_str(), found.name.as_str()) == volume
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::serving;
    use crate::kinds::tests::{mount_point, persistent};

    #[test]
    fn a_volume_of_the_node_takes_no_mount_options() {
        let checked = |source: serde_json::Value| {
            let mut spec = source;
            spec["mountOptions"] = serde_json::json!(["noexec"]);
            let source = persistent(spec, false);
            let kind = serving(&source).expect("a kind serves it");
            options(kind, source.persistent().expect("it is persistent")).map_err(|error| error.to_string())
        };
        let text = "mount options are not supported for this volume type";
        assert_eq!(checked(serde_json::json!({"hostPath": {"path": "/x"}})), Err(text.to_owned()));
        assert_eq!(checked(serde_json::json!({"local": {"path": "/x"}})), Ok(()));
        assert_eq!(checked(serde_json::json!({"csi": {"driver": "d", "volumeHandle": "h"}})), Ok(()));
    }

    #[test]
    fn a_volume_of_another_zone_is_not_for_this_node() {
        let source = persistent(
            serde_json::json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
            ]}}}),
            false,
        );
        let selector = selector(source.persistent().expect("it is persistent")).expect("it has one");
        let on = |zone: &str| {
            let labels = [("zone".to_owned(), zone.to_owned())].into();
            affinity(selector, &labels, false).map_err(|error| (error.operation(), error.to_string()))
        };
        assert_eq!(on("a"), Ok(()));
        let text = "no matching NodeSelectorTerms".to_owned();
        assert_eq!(on("b"), Err((Some("MountVolume.NodeAffinity check"), text)));
    }

    #[test]
    fn a_volume_for_one_pod_is_not_mounted_for_two() {
        let is_alone = |modes: &[&str]| {
            let source = persistent(serde_json::json!({ "accessModes": modes }), false);
            source.persistent().is_some_and(Persistent::is_for_one_pod)
        };
        assert!(is_alone(&["ReadWriteOncePod"]));
        assert!(!is_alone(&["ReadWriteOncePod", "ReadWriteOnce"]) && !is_alone(&[]));
        let mounts = [mount_point("/r/pods/other/volumes/kubernetes.io~local-volume/pv", "ext4")];
        let elsewhere = |uid: &str, name: &str| {
            let volume = ("kubernetes.io/local-volume", name);
            is_elsewhere(Path::new("/r/pods"), &mounts, &PodUid::new(uid), volume)
        };
        assert!(elsewhere("u", "pv"));
        assert!(!elsewhere("other", "pv") && !elsewhere("u", "other"));
    }
}
