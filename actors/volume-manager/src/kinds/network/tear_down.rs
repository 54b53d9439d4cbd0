//! Takes a disk of a network from a pod, and from the node when no pod uses it any longer.

use std::path::Path;

use pod_rules::volume_plugins::ISCSI;

use super::super::block;
use super::disk::{self, Places};
use super::{fc, iscsi, note};
use crate::backends::Backends;
use crate::devices::Device;
use crate::kinds::{FoundVolume, TornDown, all_mounts};
use crate::plan;
use crate::steps::SetUpError;

/// Takes a block device from a pod. Its link does not tell which disk it was of, so that the pod's maps of all disks go: all of
/// its volumes are undone at the same time.
pub(super) async fn device(
    backends: &Backends,
    plugin: &'static str,
    found: &FoundVolume<'_>,
) -> Result<TornDown, SetUpError> {
    let mut device = None;
    let mounts = all_mounts(backends).await?;
    for dir in note::dirs(backends, plugin).await? {
        let Ok(places) = disk::places(backends.node(), plugin, &dir) else { continue };
        let uid = found.uid.as_str();
        let own = block::Places::new(backends.node(), &places.maps, uid, plugin, found.name);
        let map = own.map_err(SetUpError::Refused)?.map;
        if mounts.iter().any(|mount| mount.path == map) {
            device = Some(disk::device(plugin, &dir));
        }
        backends.mounts.unmap_device(&map).await?;
    }
    // Last, so that what is left of the device is found.
    backends.mounts.unlink_device(found.dir).await?;
    Ok(TornDown { device })
}

/// Whether a pod has the disk, by what is mounted.
fn is_of_a_pod(pods: &Path, mounts: &[bridge_node::mounts::MountPoint], places: &Places) -> bool {
    let shown = plan::references(mounts, &places.mount);
    shown.iter().any(|path| path.starts_with(pods))
        || mounts.iter().any(|mount| mount.path.starts_with(&places.maps))
}

/// The disks that are on the node and that no pod uses.
pub(super) async fn idle_devices(
    backends: &Backends,
    plugin: &'static str,
) -> Result<Vec<Device>, SetUpError> {
    let dirs = note::dirs(backends, plugin).await?;
    if dirs.is_empty() {
        return Ok(Vec::new());
    }
    let mounts = all_mounts(backends).await?;
    let pods = backends.node().layout.pods();
    let is_idle = |dir: &String| {
        let places = disk::places(backends.node(), plugin, dir);
        places.is_ok_and(|places| !is_of_a_pod(&pods, &mounts, &places))
    };
    let devices = dirs.into_iter().filter(is_idle).map(|dir| disk::device(plugin, &dir));
    Ok(devices.filter(|device| !backends.devices.is_used(device)).collect())
}

/// Takes a disk from the node, unless a pod uses it. What the kubelet has not brought stays.
pub(super) async fn release(
    backends: &Backends,
    plugin: &'static str,
    device: &Device,
) -> Result<(), SetUpError> {
    let Some(dir) = disk::dir_of(plugin, device) else { return Ok(()) };
    let Ok(places) = disk::places(backends.node(), plugin, dir) else { return Ok(()) };
    let _turn = backends.devices.turn(device).await;
    if backends.devices.is_used(device) {
        return Ok(());
    }
    let mounts = all_mounts(backends).await?;
    if is_of_a_pod(&backends.node().layout.pods(), &mounts, &places) {
        return Ok(());
    }
    if mounts.iter().any(|mount| mount.path == places.mount) {
        plan::is_nowhere_else(&mounts, &places.mount).map_err(SetUpError::Refused)?;
        backends.mounts.unmount(&places.mount).await?;
    }
    match note::read(backends, &places).await? {
        Some(noted) if plugin == ISCSI => iscsi::detach(backends, dir, &noted).await?,
        Some(noted) => fc::detach(backends, &noted).await?,
        None => {
            tracing::info!(
                disk = dir,
                "A disk that another kubelet has brought stays on the node, unmounted"
            );
        }
    }
    note::forget(backends, &places).await
}
