//! A container's block devices (row 10.19).

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
    let wanted = container.volume_devices.iter().flatten();
    let devices = wanted.map(|device| {
        if !device.device_path.starts_with('/') {
            return Err(ConfigError::RelativeDevicePath(device.device_path.clone()));
        }
        let host_path = setting.volumes.host_paths.get(&device.name);
        let host_path = host_path.ok_or_else(|| ConfigError::DeviceMissing {
            volume: device.name.clone(),
            container: container.name.clone(),
        })?;
        let permissions = if is_read_only(pod, &device.name) { READ } else { ALL };
        Ok(Device {
            container_path: device.device_path.clone(),
            host_path: host_path.clone(),
            permissions: permissions.to_owned(),
        })
    });
    devices.collect()
}

fn is_read_only(pod: &Pod, name: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claim = volumes.find(|volume| volume.name == name).and_then(|it| it.persistent_volume_claim.as_ref());
    claim.is_some_and(|claim| claim.read_only == Some(true))
}
