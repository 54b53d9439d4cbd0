//! Takes a volume of a FlexVolume driver from a pod, and from the node when no pod uses it any longer.

use std::path::Path;

use bridge_node::host::OtherVolume;

use super::volume;
use super::{FoundVolume, TornDown};
use crate::backends::Backends;
use crate::devices::Device;
use crate::flex::{Undone, named};
use crate::kinds::all_mounts;
use crate::plan;
use crate::steps::SetUpError;

/// Takes a volume from a pod: by its driver, whatever is mounted.
pub(super) async fn tear_down(
    backends: &Backends,
    found: &FoundVolume<'_>,
    driver: &str,
) -> Result<TornDown, SetUpError> {
    let able = backends.flex.able(driver).await.map_err(SetUpError::Refused)?;
    take_away(backends, driver, "unmount", found.dir).await?;
    if let Err(error) = backends.mounts.forget(found.dir, &found.dir.join("none")).await {
        // It goes with its pod's directory.
        tracing::debug!(%error, volume = found.name, "The directory of a volume stays");
    }
    Ok(TornDown { device: able.attach.then(|| volume::device(driver, found.name)) })
}

/// Has a driver unmount what it has mounted at a place.
async fn take_away(backends: &Backends, driver: &str, command: &str, dir: &Path) -> Result<(), SetUpError> {
    let place = dir.to_string_lossy().into_owned();
    match backends.flex.call(driver, &place, command, vec![place.clone()]).await {
        Ok(_) => {}
        Err(Undone::NotSupported) => backends.mounts.unmount(dir).await?,
        Err(Undone::Failed(why)) => return Err(SetUpError::Refused(why)),
    }
    if backends.mounts.is_mount_point(dir).await? {
        let why = format!("it says that {command} is done, and {place} is still mounted");
        return Err(SetUpError::Refused(named(driver, &why)));
    }
    Ok(())
}

/// Whether a volume that is found is of this driver and has this name.
fn is(found: &OtherVolume, driver: &str, name: &str) -> bool {
    !found.is_block && found.plugin == driver && found.name == name
}

/// Whether a pod has the volume, by the pods' directories.
fn is_of_a_pod(found: &[OtherVolume], driver: &str, name: &str) -> bool {
    found.iter().any(|found| found.pod.is_some() && is(found, driver, name))
}

async fn all(backends: &Backends) -> Result<Vec<OtherVolume>, SetUpError> {
    let found = backends.pod_dirs.other_volumes(None, &[]).await;
    found.map_err(|error| SetUpError::Refused(error.to_string()))
}

/// The volumes that are mounted for the node and that no pod uses.
pub(super) async fn idle_devices(backends: &Backends) -> Result<Vec<Device>, SetUpError> {
    let found = all(backends).await?;
    let of_node = found.iter().filter(|found| found.pod.is_none() && !found.is_block);
    let devices = of_node.map(|found| (found, volume::device(&found.plugin, &found.name)));
    let idle = devices.filter(|(volume, device)| {
        volume::of_device(device).is_some()
            && !backends.devices.is_used(device)
            && !is_of_a_pod(&found, &volume.plugin, &volume.name)
    });
    Ok(idle.map(|(_, device)| device).collect())
}

/// Takes a volume from the node, unless a pod uses it.
pub(super) async fn release(backends: &Backends, device: &Device) -> Result<(), SetUpError> {
    let Some((driver, name)) = volume::of_device(device) else { return Ok(()) };
    let place = volume::place(backends.node(), driver, name).map_err(SetUpError::Refused)?;
    let _turn = backends.devices.turn(device).await;
    let found = all(backends).await?;
    if backends.devices.is_used(device) || is_of_a_pod(&found, driver, name) {
        return Ok(());
    }
    if !found.iter().any(|found| found.pod.is_none() && is(found, driver, name)) {
        return Ok(());
    }
    let mounts = all_mounts(backends).await?;
    if mounts.iter().any(|mount| mount.path == place) {
        plan::is_nowhere_else(&mounts, &place).map_err(SetUpError::Refused)?;
        backends.flex.able(driver).await.map_err(SetUpError::Refused)?;
        take_away(backends, driver, "unmountdevice", &place).await?;
    }
    Ok(backends.mounts.forget(&place, &place.join("none")).await?)
}
