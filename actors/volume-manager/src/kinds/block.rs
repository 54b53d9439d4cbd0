//! What kinds with block devices share (row 10.19): the places of a device, and how it is shown to a pod and taken from it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use messages::event_recorder::EventType;
use messages::volume_manager::VolumeUsage;

use super::{FoundVolume, Wanted};
use crate::backends::{Backends, NodeFacts};
use crate::kinds::Measured;
use crate::notices;
use crate::steps::SetUpError;

/// The reason of upstream's events about a device that is shown.
const SHOWN: &str = "SuccessfulMountVolume";

/// Where a pod's block device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The mount of the device: a file in the directory of the volume's maps, by the pod's UID.
    pub map: PathBuf,
    /// The link that containers are given.
    pub link: PathBuf,
}

impl Places {
    /// The places of a volume of this plugin whose maps lie in `maps`.
    ///
    /// # Errors
    /// A name cannot be that of a directory.
    pub fn new(
        node: NodeFacts<'_>,
        maps: &Path,
        uid: &str,
        plugin: &str,
        name: &str,
    ) -> Result<Self, String> {
        let link = node.layout.pod_device(uid, plugin, name).map_err(|error| error.to_string())?;
        Ok(Self { map: maps.join(uid), link })
    }

    /// The places of a volume of a kind that has its maps where most have them.
    ///
    /// # Errors
    /// A name cannot be that of a directory.
    pub fn usual(node: NodeFacts<'_>, uid: &str, plugin: &str, name: &str) -> Result<Self, String> {
        let maps = node.layout.device_maps(plugin, name).map_err(|error| error.to_string())?;
        Self::new(node, &maps, uid, plugin, name)
    }

    /// Those of a volume that is found in a pod's directory.
    ///
    /// # Errors
    /// A name cannot be that of a directory.
    pub fn found(node: NodeFacts<'_>, plugin: &str, found: &FoundVolume<'_>) -> Result<Self, String> {
        Self::usual(node, found.uid.as_str(), plugin, found.name)
    }
}

/// Shows a device to a pod.
pub(super) async fn map(
    backends: &Backends,
    wanted: &Wanted<'_>,
    device: &Path,
    places: &Places,
) -> Result<(), SetUpError> {
    if backends.mounts.is_device_mapped(&places.map, &places.link).await? {
        return Ok(());
    }
    backends.mounts.map_device(device, &places.map, &places.link).await?;
    let name = wanted.source.spec_name();
    for place in [("globalMapPath", places.map.parent()), ("volumeMapPath", places.link.parent())] {
        told(backends, wanted.pod, name, place);
    }
    Ok(())
}

fn told(backends: &Backends, pod: &Pod, name: &str, (what, place): (&str, Option<&Path>)) {
    let place = place.unwrap_or(Path::new("")).display().to_string();
    let text = format!("MapVolume.MapPodDevice succeeded for volume {name:?} {what} {place:?}");
    notices::record(&backends.events, pod, EventType::Normal, SHOWN, text);
}

/// Takes a device from a pod; the link goes last, so that what is left of it is found.
pub(super) async fn unmap(backends: &Backends, places: &Places) -> Result<(), SetUpError> {
    backends.mounts.unmap_device(&places.map).await?;
    // The directory of the maps goes with the last of them.
    let none = places.map.with_file_name("none");
    backends.mounts.forget(&places.map, &none).await?;
    Ok(backends.mounts.unlink_device(&places.link).await?)
}

/// The size of a device, which is all that is known of it.
pub(super) async fn measure(backends: &Backends, link: &Path) -> Result<Measured, SetUpError> {
    let capacity_bytes = backends.mounts.device_bytes(link).await?;
    Ok(VolumeUsage { capacity_bytes, ..VolumeUsage::default() }.into())
}

/// Whether a path is that of a link to a block device.
pub(super) fn is_link(path: &Path) -> bool {
    path.parent().and_then(Path::parent).is_some_and(|above| above.ends_with("volumeDevices"))
}
