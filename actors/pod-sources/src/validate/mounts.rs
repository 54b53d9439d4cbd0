//! Validation of how a container uses its pod's volumes: as directories or as block devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use super::field::{Errors, Path, items, text};
use super::paths;

pub(super) fn mounts(
    container: &Container,
    volumes: &BTreeMap<&str, &Volume>,
    path: &Path,
    errors: &mut Errors,
) {
    let devices = items(&container.volume_devices);
    let names: BTreeSet<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    let device_paths: BTreeSet<&str> = devices.iter().map(|device| device.device_path.as_str()).collect();
    let context = container.security_context.as_ref();
    let privileged = context.is_some_and(|context| context.privileged == Some(true));
    let mut points = BTreeSet::new();
    for (index, mount) in items(&container.volume_mounts).iter().enumerate() {
        let path = path.index(index);
        let (name_path, point_path) = (path.child("name"), path.child("mountPath"));
        errors.not_empty(&name_path, &mount.name);
        if !volumes.contains_key(mount.name.as_str()) {
            errors.not_found(&name_path, &mount.name, "");
        }
        errors.not_empty(&point_path, &mount.mount_path);
        if !points.insert(mount.mount_path.as_str()) {
            errors.invalid(&point_path, &mount.mount_path, "must be unique");
        }
        if names.contains(mount.name.as_str()) {
            errors.invalid(&name_path, &mount.name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(mount.mount_path.as_str()) {
            let message = "must not already exist as a path in volumeDevices";
            errors.invalid(&point_path, &mount.mount_path, message);
        }
        sub_paths(mount, &path, errors);
        propagation(mount, privileged, &path, errors);
    }
}

fn sub_paths(mount: &VolumeMount, path: &Path, errors: &mut Errors) {
    let (sub_path, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
    if !sub_path.is_empty() {
        paths::local_descending(sub_path, &path.child("subPath"), errors);
    }
    if !expression.is_empty() {
        let path = path.child("subPathExpr");
        if !sub_path.is_empty() {
            errors.invalid(&path, expression, "subPathExpr and subPath are mutually exclusive");
        }
        paths::local_descending(expression, &path, errors);
    }
}

fn propagation(mount: &VolumeMount, privileged: bool, path: &Path, errors: &mut Errors) {
    if let Some(mode) = &mount.mount_propagation {
        let path = path.child("mountPropagation");
        errors.one_of(&path, mode, &["Bidirectional", "HostToContainer", "None"]);
        if mode == "Bidirectional" && !privileged {
            let message = "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&path, message);
        }
    }
    let Some(mode) = &mount.recursive_read_only else { return };
    let path = path.child("recursiveReadOnly");
    errors.one_of(&path, mode, &["Disabled", "Enabled", "IfPossible"]);
    if matches!(mode.as_str(), "Enabled" | "IfPossible") {
        if mount.read_only != Some(true) {
            errors.forbidden(&path, "may only be specified when readOnly is true");
        }
        if mount.mount_propagation.as_ref().is_some_and(|mode| mode != "None") {
            let message = "may only be specified when mountPropagation is None or not specified";
            errors.forbidden(&path, message);
        }
    }
}

pub(super) fn devices(
    container: &Container,
    volumes: &BTreeMap<&str, &Volume>,
    path: &Path,
    errors: &mut Errors,
) {
    let mounts = items(&container.volume_mounts);
    let names: BTreeSet<&str> = mounts.iter().map(|mount| mount.name.as_str()).collect();
    let mount_paths: BTreeSet<&str> = mounts.iter().map(|mount| mount.mount_path.as_str()).collect();
    let (mut seen_names, mut seen_paths) = (BTreeSet::new(), BTreeSet::new());
    for (index, device) in items(&container.volume_devices).iter().enumerate() {
        let path = path.index(index);
        let (name, name_path) = (device.name.as_str(), path.child("name"));
        let (point, point_path) = (device.device_path.as_str(), path.child("devicePath"));
        errors.not_empty(&name_path, name);
        if !name.is_empty() && !seen_names.insert(name) {
            errors.invalid(&name_path, name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(&name_path, name, ""),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let message =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(&name_path, name, message);
            }
            Some(_) => {}
        }
        errors.not_empty(&point_path, point);
        if paths::has_backsteps(point) {
            errors.invalid(&point_path, point, "can not contain backsteps ('..')");
        } else if !seen_paths.insert(point) {
            errors.invalid(&point_path, point, "must be unique");
        }
        if names.contains(name) {
            errors.invalid(&name_path, name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(point) {
            errors.invalid(&point_path, point, "must not already exist as a path in volumeMounts");
        }
    }
}
