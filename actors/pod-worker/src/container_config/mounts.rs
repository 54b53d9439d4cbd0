//! What a container sees of the node's files (rows 10.20, 10.21, 10.29).

use k8s_openapi::api::core::v1::{Container, VolumeMount};
use runtime_bridge::cri::wire::{Mount, MountPropagation};

use super::{ConfigError, ContainerSetting};

/// Where the managed hosts file is seen in a container.
const ETC_HOSTS: &str = "/etc/hosts";
pub(super) fn mounts(
    container: &Container,
    setting: &ContainerSetting<'_>,
) -> Result<Vec<Mount>, ConfigError> {
    let own = container.volume_mounts.as_deref().unwrap_or_default();
    let mut mounts =
        own.iter().map(|mount| volume_mount(container, mount, setting)).collect::<Result<Vec<_>, _>>()?;
    let has_own_hosts = own.iter().any(|mount| mount.mount_path == ETC_HOSTS);
    if let Some(path) = setting.etc_hosts.filter(|_| !has_own_hosts) {
        mounts.push(Mount {
            container_path: ETC_HOSTS.to_owned(),
            host_path: path.to_owned(),
            ..Mount::default()
        });
    }
    // Last, as upstream has it: nothing of the pod's hides it.
    if let (Some(path), Some(log)) = (&container.termination_message_path, setting.termination_log)
        && !path.is_empty()
    {
        let absolute = if path.starts_with('/') { "" } else { "/" };
        let container_path = format!("{absolute}{path}");
        mounts.push(Mount { container_path, host_path: log.to_owned(), ..Mount::default() });
    }
    Ok(mounts)
}

fn volume_mount(
    container: &Container,
    mount: &VolumeMount,
    setting: &ContainerSetting<'_>,
) -> Result<Mount, ConfigError> {
    let names = || (mount.name.clone(), container.name.clone());
    let is_set = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if is_set(&mount.sub_path) || is_set(&mount.sub_path_expr) {
        let (volume, container) = names();
        return Err(ConfigError::SubPath { volume, container });
    }
    let Some(host_path) = setting.volumes.host_paths.get(&mount.name) else {
        let (volume, container) = names();
        return Err(ConfigError::VolumeMissing { volume, container });
    };
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("None") => MountPropagation::PropagationPrivate,
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        Some(other) => return Err(ConfigError::InvalidPropagation(other.to_owned())),
    };
    let absolute = if mount.mount_path.starts_with('/') { "" } else { "/" };
    Ok(Mount {
        container_path: format!("{absolute}{}", mount.mount_path),
        host_path: host_path.clone(),
        readonly: mount.read_only.unwrap_or(false),
        propagation: propagation.into(),
        ..Mount::default()
    })
}
