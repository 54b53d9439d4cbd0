//! Takes a volume of a driver from a pod, and from the node when no pod uses it any longer.

use std::path::Path;

use bridge_csi::rules::capabilities::Capabilities;
use bridge_csi::rules::plan::{self, Facts, Kind, Known, Step};
use bridge_csi::rules::says;
use bridge_csi::rules::vol_data::Lifecycle;
use bridge_csi::wire::{NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest};
use bridge_csi::{CsiError, Volume};
use bridge_node::host::{OtherVolume, Reported};

use super::super::all_mounts;
use super::device::Device;
use super::{FoundVolume, TornDown, notes, paths, volume};
use crate::backends::Backends;
use crate::steps::SetUpError;
use crate::{devices, plan as mount_plan};

fn refused(what: &str, error: &CsiError) -> SetUpError {
    SetUpError::Refused(says(&format!("{what}: {}", error.status_text())))
}

/// Takes a volume from a pod: by its driver, whatever is mounted. The note beside the mount keeps the volume on the node until
/// the driver is done.
pub(super) async fn tear_down(backends: &Backends, found: &FoundVolume<'_>) -> Result<TornDown, SetUpError> {
    if found.is_block {
        return tear_down_device(backends, found).await;
    }
    let target = found.dir.join("mount");
    let Some(data) = notes::beside(backends, &target).await? else {
        if !backends.mounts.is_mount_point(&target).await? {
            return Ok(TornDown::default());
        }
        let text = format!("unmounter failed to load volume data file [{}]", found.dir.display());
        return Err(SetUpError::Refused(says(&text)));
    };
    let (driver, handle) = (data.driver(), data.volume_id());
    let unique_name = bridge_csi::rules::attachment::unique_name(driver, handle);
    let target_path = target.to_string_lossy().into_owned();
    backends.csi.volumes.settled(&Volume::new(driver, handle), Some(&target_path)).await;
    let request = NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path };
    let unpublished = backends.csi.volumes.unpublish(driver, request).await;
    unpublished.map_err(|error| refused("Unmounter.TearDownAt failed", &error))?;
    notes::forget(backends, &target).await?;
    Ok(TornDown { device: (data.lifecycle() == Lifecycle::Persistent).then_some(unique_name) })
}

/// Takes a block device from a pod, and then by its driver.
async fn tear_down_device(backends: &Backends, found: &FoundVolume<'_>) -> Result<TornDown, SetUpError> {
    let device = Device::of(backends.node(), found.name)?;
    let places = device.places(backends.node(), found.uid.as_str(), found.name)?;
    let Some(data) = notes::read(backends, &device.note).await? else {
        if !backends.mounts.is_mount_point(&places.map).await? {
            backends.mounts.unlink_device(&places.link).await?;
            return Ok(TornDown::default());
        }
        let text = format!("unmapper failed to load volume data file [{}]", device.note.display());
        return Err(SetUpError::Refused(says(&text)));
    };
    let (driver, handle) = (data.driver(), data.volume_id());
    let unique_name = bridge_csi::rules::attachment::unique_name(driver, handle);
    let publish = device.publish_dir.join(found.uid.as_str());
    let target_path = publish.to_string_lossy().into_owned();
    backends.csi.volumes.settled(&Volume::new(driver, handle), Some(&target_path)).await;
    backends.mounts.unmap_device(&places.map).await?;
    let request = NodeUnpublishVolumeRequest { volume_id: handle.to_owned(), target_path };
    let unpublished = backends.csi.volumes.unpublish(driver, request).await;
    unpublished.map_err(|error| refused("blockMapper.unpublishVolumeForBlock failed", &error))?;
    device.forget_published(backends, &publish).await?;
    // The link goes last, so that what is left of the device is found.
    backends.mounts.unlink_device(&places.link).await?;
    Ok(TornDown { device: Some(unique_name) })
}

/// The staged volumes that no pod uses.
pub(super) async fn idle_devices(backends: &Backends) -> Result<Vec<devices::Device>, SetUpError> {
    let noted = notes::all(backends).await?;
    let staged = noted.iter().filter(|volume| volume.pod.is_none());
    let names = staged.filter_map(|volume| match &volume.reported {
        Reported::As(name) => Some(name),
        Reported::Never | Reported::Unknown => None,
    });
    let is_idle =
        |name: &&String| !backends.devices.is_used(name) && notes::pods_of(&noted, name).next().is_none();
    Ok(names.filter(is_idle).cloned().collect())
}

/// A device that is mounted for a pod that has no directory is left as it is, as upstream does.
async fn is_shown_nowhere(backends: &Backends, block: &Device) -> Result<(), SetUpError> {
    let refs = backends.mounts.list_below(&block.maps).await?;
    if refs.is_empty() {
        return Ok(());
    }
    let refs: Vec<_> = refs.iter().map(|mount| mount.path.display().to_string()).collect();
    Err(SetUpError::Refused(format!(
        "the device {:?} is still referenced from other Pods [{}]",
        block.maps.display().to_string(),
        refs.join(" ")
    )))
}

/// A file system that is mounted elsewhere, too, is left as it is, as upstream does: it may be in use there.
async fn is_nowhere_else(backends: &Backends, place: &Path) -> Result<(), SetUpError> {
    let mounts = all_mounts(backends).await?;
    mount_plan::is_nowhere_else(&mounts, place).map_err(SetUpError::Refused)
}

/// Takes a volume from the node, unless a pod uses it.
pub(super) async fn release(backends: &Backends, device: &devices::Device) -> Result<(), SetUpError> {
    let Some((driver, handle)) = volume::named(device) else { return Ok(()) };
    let place = paths(backends.node()).device_mount(driver, handle);
    let place = place.map_err(|error| SetUpError::Refused(error.to_string()))?;
    let turn = backends.devices.turn(device).await;
    if backends.devices.is_used(device) {
        return Ok(());
    }
    backends.csi.volumes.settled(&Volume::new(driver, handle), None).await;
    let noted = notes::all(backends).await?;
    let is_it = |volume: &&OtherVolume| {
        volume.pod.is_none() && matches!(&volume.reported, Reported::As(name) if name == device)
    };
    let Some(found) = noted.iter().find(is_it) else { return Ok(()) };
    let block = if found.is_block { Some(Device::of(backends.node(), &found.name)?) } else { None };
    let place = block.as_ref().map_or(place, |block| block.staging.clone());
    if backends.devices.is_used(device) || notes::pods_of(&noted, device).next().is_some() {
        return Ok(());
    }
    match &block {
        Some(block) => is_shown_nowhere(backends, block).await?,
        None => is_nowhere_else(backends, &place).await?,
    }
    let what = match block {
        Some(_) => "blockMapper.unstageVolumeForBlock failed",
        None => "attacher.UnmountDevice failed",
    };
    let able = backends.csi.volumes.capabilities(driver).await;
    let able: Capabilities = able.map_err(|error| refused(what, &error))?;
    let facts = Facts {
        kind: if block.is_some() { Kind::Block } else { Kind::Filesystem },
        attach_required: false,
        able,
        staged: Known::Maybe,
        published: Known::No,
        republish: false,
        sets_group: false,
        others: false,
    };
    for step in plan::tear_down(&facts) {
        match step {
            Step::Unstage => {
                let request = NodeUnstageVolumeRequest {
                    volume_id: handle.to_owned(),
                    staging_target_path: place.to_string_lossy().into_owned(),
                };
                turn.set_staged(false);
                let unstaged = backends.csi.volumes.unstage(driver, request).await;
                unstaged.map_err(|error| refused(what, &error))?;
            }
            Step::ForgetStaged => match &block {
                Some(block) => block.forget(backends).await?,
                None => notes::forget(backends, &place).await?,
            },
            _ => {}
        }
    }
    Ok(())
}
