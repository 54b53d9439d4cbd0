//! A container's mounts (rows 6.8, 10.20, 10.21, 10.22, 10.29).

use std::collections::BTreeMap;

use bridge_cri::wire::{Mount, MountPropagation};
use k8s_openapi::api::core::v1::{Container, Pod, Volume, VolumeMount};
use messages::volume_manager::{MountedVolumes, Subpath};
use pod_rules::volumes;

use super::{ConfigError, ContainerSetting};
use crate::env::Variables;
use crate::pod_images::ImageVolumes;

/// The path of the managed hosts file in a container.
const ETC_HOSTS: &str = "/etc/hosts";

/// The parts of volumes that a container mounts (`subPath`, `subPathExpr`), with variables expanded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubPaths {
    /// Those that VolumeManager makes ready.
    pub of_volumes: Vec<Subpath>,
    /// The paths within images, which the runtime mounts, by the index of their mount.
    pub of_images: BTreeMap<usize, String>,
}

/// The parts of volumes that a container mounts.
///
/// # Errors
/// A volume is not mounted, a variable has no value, or a path leads out of its volume.
pub fn sub_paths(
    container: &Container,
    environment: &[(String, String)],
    volumes: &MountedVolumes,
    images: &ImageVolumes,
) -> Result<SubPaths, ConfigError> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let variables = Variables::new(environment);
    let mut found = SubPaths::default();
    for (index, mount) in mounts.iter().enumerate() {
        let volume_path = volume_path(container, mount, volumes)?;
        let path = match text(&mount.sub_path_expr) {
            "" => text(&mount.sub_path).to_owned(),
            expression => variables.expand_sub_path(expression).map_err(ConfigError::SubPathExpr)?,
        };
        if path.is_empty() {
            continue;
        }
        if path.starts_with('/') {
            return Err(ConfigError::AbsoluteSubPath(path));
        }
        if path.split('/').any(|part| part == "..") {
            return Err(ConfigError::SubPathSteps(path));
        }
        if images.has(&mount.name) {
            found.of_images.insert(index, path);
        } else {
            let (volume, volume_path) = (mount.name.clone(), volume_path.clone());
            found.of_volumes.push(Subpath { index, volume, volume_path, path });
        }
    }
    Ok(found)
}

/// Whether a mount of the container is to be recursively read-only, which not every runtime supports.
pub fn wants_recursive_read_only(container: &Container) -> bool {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    mounts.iter().any(|mount| !matches!(text(&mount.recursive_read_only), "" | "Disabled"))
}

pub(super) fn mounts(
    pod: &Pod,
    container: &Container,
    setting: &ContainerSetting<'_>,
) -> Result<Vec<Mount>, ConfigError> {
    let own = container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let volumes: BTreeMap<&str, &Volume> = volumes.map(|volume| (volume.name.as_str(), volume)).collect();
    let mut mounts = own
        .iter()
        .enumerate()
        .map(|(index, mount)| volume_mount(&volumes, container, index, mount, setting))
        .collect::<Result<Vec<_>, _>>()?;
    let has_own_hosts = own.iter().any(|mount| mount.mount_path == ETC_HOSTS);
    if let Some(path) = setting.etc_hosts.filter(|_| !has_own_hosts) {
        mounts.push(Mount {
            container_path: ETC_HOSTS.to_owned(),
            host_path: path.to_owned(),
            selinux_relabel: setting.rules.selinux,
            ..Mount::default()
        });
    }
    // Last, as upstream has it: no mount of the pod can hide it.
    if let (Some(path), Some(log)) = (&container.termination_message_path, setting.termination_log)
        && !path.is_empty()
    {
        mounts.push(Mount {
            container_path: absolute(path),
            host_path: log.to_owned(),
            selinux_relabel: setting.rules.selinux,
            ..Mount::default()
        });
    }
    Ok(mounts)
}

fn volume_mount(
    volumes: &BTreeMap<&str, &Volume>,
    container: &Container,
    index: usize,
    mount: &VolumeMount,
    setting: &ContainerSetting<'_>,
) -> Result<Mount, ConfigError> {
    let host_path = volume_path(container, mount, setting.volumes)?;
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("None") => MountPropagation::PropagationPrivate,
        Some("HostToContainer") => MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => MountPropagation::PropagationBidirectional,
        Some(other) => return Err(ConfigError::InvalidPropagation(other.to_owned())),
    };
    let volume = volumes.get(mount.name.as_str()).copied();
    let image = setting.image_volumes.get(&mount.name).cloned();
    if image.is_none() && host_path.is_empty() {
        return Err(volume_missing(container, mount));
    }
    Ok(Mount {
        container_path: absolute(&mount.mount_path),
        host_path: match &image {
            Some(_) => String::new(),
            None => setting.sub_paths.get(&index).unwrap_or(host_path).clone(),
        },
        image_sub_path: setting.image_sub_paths.get(&index).cloned().unwrap_or_default(),
        image,
        readonly: mount.read_only.unwrap_or(false) || volume.is_some_and(volumes::is_read_only),
        recursive_read_only: recursive_read_only(mount, setting.recursive_read_only)
            .map_err(ConfigError::RecursiveReadOnly)?,
        propagation: propagation.into(),
        selinux_relabel: setting.rules.selinux
            && !volume.is_some_and(volumes::keeps_labels)
            && !setting.volumes.keep_labels.contains(&mount.name),
        ..Mount::default()
    })
}

fn volume_path<'a>(
    container: &Container,
    mount: &VolumeMount,
    volumes: &'a MountedVolumes,
) -> Result<&'a String, ConfigError> {
    volumes.host_paths.get(&mount.name).ok_or_else(|| volume_missing(container, mount))
}

fn volume_missing(container: &Container, mount: &VolumeMount) -> ConfigError {
    ConfigError::VolumeMissing { volume: mount.name.clone(), container: container.name.clone() }
}

/// Whether a mount is recursively read-only. The error is for people.
fn recursive_read_only(mount: &VolumeMount, runtime_can: bool) -> Result<bool, String> {
    let mode = text(&mount.recursive_read_only);
    if matches!(mode, "" | "Disabled") {
        return Ok(false);
    }
    let refused = |why: String| {
        Err(format!("volume {:?} requested recursive read-only mode, but it is {why}", mount.name))
    };
    if mount.read_only != Some(true) {
        return refused("not read-only".to_owned());
    }
    match mount.mount_propagation.as_deref() {
        None | Some("None") => {}
        Some(other) => return refused(format!("not compatible with propagation {other:?}")),
    }
    match mode {
        "IfPossible" => Ok(runtime_can),
        "Enabled" if runtime_can => Ok(true),
        "Enabled" => refused("not supported by the runtime".to_owned()),
        other => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

fn absolute(path: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{path}")
}

fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::container;

    fn mounting(mount: VolumeMount) -> Container {
        let mount = VolumeMount { name: "v".into(), mount_path: "/x".into(), ..mount };
        let whole = VolumeMount { name: "v".into(), mount_path: "/whole".into(), ..VolumeMount::default() };
        Container { volume_mounts: Some(vec![whole, mount]), ..container("c") }
    }

    fn volumes() -> MountedVolumes {
        MountedVolumes { host_paths: [("v".to_owned(), "/host/v".to_owned())].into(), ..Default::default() }
    }

    #[test]
    fn parts_are_named_by_their_mounts() {
        let environment = [("POD".to_owned(), "web".to_owned()), ("UP".to_owned(), "..".to_owned())];
        let parts = |mount| sub_paths(&mounting(mount), &environment, &volumes(), &ImageVolumes::default());
        let of = |mount| parts(mount).map(|parts| parts.of_volumes).map_err(|error| error.to_string());
        let part = |path: &str| {
            let (volume, volume_path) = ("v".to_owned(), "/host/v".to_owned());
            Ok(vec![Subpath { index: 1, volume, volume_path, path: path.to_owned() }])
        };
        let expression =
            |text: &str| VolumeMount { sub_path_expr: Some(text.into()), ..VolumeMount::default() };
        let path = |text: &str| VolumeMount { sub_path: Some(text.into()), ..VolumeMount::default() };
        assert_eq!(of(VolumeMount::default()), Ok(vec![]));
        assert_eq!(of(path("a/$(POD)")), part("a/$(POD)"));
        assert_eq!(of(expression("a/$(POD)")), part("a/web"));
        assert_eq!(of(expression("$(NONE)")), Err("missing value for NONE".into()));
        let steps = "unable to provision SubPath `a/..`: must not contain '..'";
        assert_eq!(of(expression("a/$(UP)")), Err(steps.into()));
        assert_eq!(of(path("/a")), Err("error SubPath `/a` must not be an absolute path".into()));
        let nameless = MountedVolumes::default();
        let error = sub_paths(&mounting(path("a")), &environment, &nameless, &ImageVolumes::default());
        let error = error.expect_err("no volume").to_string();
        assert_eq!(error, "cannot find volume \"v\" to mount into container \"c\"");
    }

    #[test]
    fn parts_of_images_are_left_to_the_runtime() {
        let environment = [("POD".to_owned(), "web".to_owned())];
        let mut pod = crate::fixtures::pod("Always", vec![], vec![container("c")]);
        let images = serde_json::json!([{"name": "v", "image": {"reference": "r/x:1"}}]);
        pod.spec.as_mut().expect("a spec").volumes = serde_json::from_value(images).expect("volumes");
        let images = ImageVolumes::of(&pod);
        let ready =
            MountedVolumes { host_paths: [("v".to_owned(), String::new())].into(), ..Default::default() };
        let of = |mount| sub_paths(&mounting(mount), &environment, &ready, &images);
        let expression =
            |text: &str| VolumeMount { sub_path_expr: Some(text.into()), ..VolumeMount::default() };
        let expected = SubPaths { of_volumes: vec![], of_images: [(1, "a/web".to_owned())].into() };
        assert_eq!(of(expression("a/$(POD)")), Ok(expected));
        let error = of(expression("../$(POD)")).expect_err("it leads out of the image").to_string();
        assert_eq!(error, "unable to provision SubPath `../web`: must not contain '..'");
    }

    #[test]
    fn recursive_read_only_is_resolved_as_upstream_does() {
        let mount = |mode: &str, read_only, propagation: Option<&str>| VolumeMount {
            name: "v".into(),
            recursive_read_only: Some(mode.into()),
            read_only: Some(read_only),
            mount_propagation: propagation.map(str::to_owned),
            ..VolumeMount::default()
        };
        let refused =
            |why: &str| Err(format!("volume \"v\" requested recursive read-only mode, but it is {why}"));
        for (mode, read_only, propagation, can, expected) in [
            ("Disabled", false, None, true, Ok(false)),
            ("IfPossible", true, None, true, Ok(true)),
            ("IfPossible", true, Some("None"), false, Ok(false)),
            ("Enabled", true, None, true, Ok(true)),
            ("Enabled", true, None, false, refused("not supported by the runtime")),
            ("Enabled", false, None, true, refused("not read-only")),
            (
                "IfPossible",
                true,
                Some("HostToContainer"),
                true,
                refused("not compatible with propagation \"HostToContainer\""),
            ),
            ("Often", true, None, true, Err("unknown recursive read-only mode \"Often\"".to_owned())),
        ] {
            let resolved = recursive_read_only(&mount(mode, read_only, propagation), can);
            assert_eq!(resolved, expected, "{mode} {read_only} {propagation:?} {can}");
            assert_eq!(wants_recursive_read_only(&mounting(mount(mode, true, None))), mode != "Disabled");
        }
    }
}
