//! Disks of the node that pods have as a file system (row 10.13): formatted if they are empty, mounted once for the node and
//! bound into the directory of each pod.

use std::path::{Path, PathBuf};

use bridge_node::mounts::{HelperMount, HostPathType};
use pod_rules::volume_plugins::LOCAL;

use super::{local, turn};
use crate::backends::{Backends, NodeFacts};
use crate::devices::{Device, Turn};
use crate::kinds::{Wanted, all_mounts};
use crate::plan;
use crate::source::Persistent;
use crate::steps::SetUpError;

/// Whether the path is a disk's; what cannot be told is taken for a directory, whose mount fails then.
pub(super) async fn is_disk(backends: &Backends, path: &Path) -> bool {
    backends.mounts.check_host_path(path, HostPathType::BlockDevice).await.is_ok()
}

/// Where the disk of a volume of this name is mounted for the node.
fn place(node: NodeFacts<'_>, name: &str) -> Result<PathBuf, SetUpError> {
    node.layout.device_mount(LOCAL, name).map_err(|error| SetUpError::Refused(error.to_string()))
}

/// Mounts the disk for the node, which the pod uses from then on; returns the place.
pub(super) async fn mounted(
    backends: &Backends,
    wanted: &Wanted<'_>,
    persistent: &Persistent,
) -> Result<PathBuf, SetUpError> {
    let local = local(wanted.source).ok_or_else(|| SetUpError::Refused("no local volume".to_owned()))?;
    let place = place(backends.node(), persistent.name())?;
    let held: Turn = backends.devices.turn(&turn(persistent.name())).await;
    held.joined_by(wanted.uid);
    let mut options = persistent.mount_options();
    if persistent.read_only {
        options.insert("ro".to_owned());
    }
    let fs_type = local.fs_type.clone().unwrap_or_default();
    let source = Path::new("/").join(&local.path).to_string_lossy().into_owned();
    let mount = HelperMount { fs_type, source, options: options.into_iter().collect() };
    backends.mounts.make_mount_point(&place).await?;
    if let Err(error) = backends.mounts.format_and_mount(&place, mount.clone()).await {
        if let Err(left) = backends.mounts.forget(&place, &place.join("none")).await {
            tracing::warn!(error = %left, "What a disk was to be mounted on stays");
        }
        let HelperMount { fs_type, source, .. } = mount;
        let place = place.display();
        let text =
            format!("local: failed to mount device {source} at {place} (fstype: {fs_type}), error {error}");
        return Err(SetUpError::Device(text));
    }
    Ok(place)
}

/// Makes the file system of the disk as large as the disk; false if it is not mounted.
pub(super) async fn grow(backends: &Backends, name: &str, disk: &Path) -> Result<bool, SetUpError> {
    let place = place(backends.node(), name)?;
    let _held = backends.devices.turn(&turn(name)).await;
    if !backends.mounts.is_mount_point(&place).await? {
        return Ok(false);
    }
    backends.mounts.grow_file_system(&place, disk).await?;
    Ok(true)
}

/// Whether a pod's directory shows what is mounted at the place.
fn is_bound(pods: &Path, shown: &[&Path]) -> bool {
    shown.iter().any(|path| path.starts_with(pods))
}

/// The disks that are mounted for the node and that no pod uses.
pub(super) async fn idle(backends: &Backends) -> Result<Vec<Device>, SetUpError> {
    let layout = backends.node().layout;
    let all = all_mounts(backends).await?;
    let names = all.iter().filter_map(|mount| {
        let name = mount.path.file_name()?.to_str()?;
        // Of the thousands of mounts that a machine may have few are disks of the node.
        let is_place = layout.device_mount(LOCAL, name).is_ok_and(|place| place == mount.path);
        let is_idle = || !is_bound(&layout.pods(), &plan::references(&all, &mount.path));
        (is_place && is_idle()).then(|| turn(name))
    });
    Ok(names.filter(|device| !backends.devices.is_used(device)).collect())
}

/// Takes a disk from the node, unless a pod uses it.
pub(super) async fn release(backends: &Backends, device: &Device) -> Result<(), SetUpError> {
    let Some(name) = device.strip_prefix(LOCAL).and_then(|rest| rest.strip_prefix('/')) else {
        return Ok(());
    };
    let place = place(backends.node(), name)?;
    let _held = backends.devices.turn(device).await;
    let all = all_mounts(backends).await?;
    let shown = plan::references(&all, &place);
    if backends.devices.is_used(device) || is_bound(&backends.node().layout.pods(), &shown) {
        return Ok(());
    }
    plan::is_nowhere_else(&all, &place).map_err(SetUpError::Refused)?;
    if all.iter().any(|mount| mount.path == place) {
        backends.mounts.unmount(&place).await?;
    }
    Ok(backends.mounts.forget(&place, &place.join("none")).await?)
}
