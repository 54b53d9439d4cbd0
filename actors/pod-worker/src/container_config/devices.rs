//! A container's block devices (row 10.19).

use std::collections::BTreeSet;

use bridge_cri::wire::Device;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{ConfigError, ContainerSetting};

/// What a container may do with a device: make it, read it, write it.
const ALL: &str = "mrw";
const READ: &str = "r";

/// The devices of the container: the links that VolumeManager has made. A claim that the pod wants read-only gives a
/// device that can only be read.
pub(super) fn devices(
    pod: &Pod,
    container: &Container,
    setting: &ContainerSetting<'_>,
) -> Result<Vec<Device>, ConfigError> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter(|volume| {
        volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true))
    });
    let read_only: BTreeSet<&str> = claims.map(|volume| volume.name.as_str()).collect();
    let wanted = container.volume_devices.iter().flatten();
    let devices = wanted.map(|device| {
        if !device.device_path.starts_with('/') {
            return Err(ConfigError::RelativeDevicePath(device.device_path.clone()));
        }
        // An image volume has no path.
        let host_path = setting.volumes.host_paths.get(&device.name).filter(|path| !path.is_empty());
        let host_path = host_path.ok_or_else(|| ConfigError::DeviceMissing {
            volume: device.name.clone(),
            container: container.name.clone(),
        })?;
        let permissions = if read_only.contains(device.name.as_str()) { READ } else { ALL };
        Ok(Device {
            container_path: device.device_path.clone(),
            host_path: host_path.clone(),
            permissions: permissions.to_owned(),
        })
    });
    devices.collect()
}
