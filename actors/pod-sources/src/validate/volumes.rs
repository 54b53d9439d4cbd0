//! Validation of a pod's volumes: names, exactly one source each, and the sources that today's API still has.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    CSIVolumeSource, HostPathVolumeSource, KeyToPath, PersistentVolumeClaimVolumeSource, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::field::{Errors, Path, items, text};
use super::{claims, containers, names, paths, projected, retired_volume_sources};
use pod_spec::quantity::Quantity;

/// Validates all volumes; returns the valid ones by name.
pub(super) fn validate<'a>(
    volumes: &'a [Volume],
    meta: &ObjectMeta,
    path: &Path,
    errors: &mut Errors,
) -> BTreeMap<&'a str, &'a Volume> {
    let pod_name = text(&meta.name);
    let created: BTreeSet<_> = volumes
        .iter()
        .filter(|volume| volume.ephemeral.is_some() && !pod_name.is_empty())
        .map(|volume| format!("{pod_name}-{}", volume.name))
        .collect();
    let mut valid = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let before = errors.len();
        sources(volume, pod_name, &path, errors);
        let name_path = path.child("name");
        if volume.name.is_empty() {
            errors.required(&name_path, "");
        } else {
            errors.all_invalid(&name_path, &volume.name, names::dns_label(&volume.name));
        }
        if valid.contains_key(volume.name.as_str()) {
            errors.duplicate(&name_path, &volume.name);
        }
        if errors.len() == before {
            valid.insert(volume.name.as_str(), volume);
        }
        if let Some(claim) = &volume.persistent_volume_claim
            && created.contains(&claim.claim_name)
        {
            let message = "must not reference a PVC that gets created for an ephemeral volume";
            let path = path.child("persistentVolumeClaim").child("claimName");
            errors.invalid(&path, &claim.claim_name, message);
        }
    }
    valid
}

/// The names of a volume's sources, in the order in which Kubernetes checks them: the first one counts.
fn given(volume: &Volume) -> impl Iterator<Item = &'static str> {
    [
        ("emptyDir", volume.empty_dir.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("secret", volume.secret.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("projected", volume.projected.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("csi", volume.csi.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("image", volume.image.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, given)| given.then_some(name))
}

fn sources(volume: &Volume, pod_name: &str, path: &Path, errors: &mut Errors) {
    let mut given = given(volume);
    let Some(first) = given.next() else {
        return errors.required(path, "must specify a volume type");
    };
    let source_path = path.child(first);
    if !retired_volume_sources::validate(volume, first, path, errors) {
        current(volume, first, pod_name, path, &source_path, errors);
    }
    for other in given {
        errors.forbidden(&path.child(other), "may not specify more than 1 volume type");
    }
}

fn current(
    volume: &Volume,
    source: &str,
    pod_name: &str,
    volume_path: &Path,
    path: &Path,
    errors: &mut Errors,
) {
    match source {
        "emptyDir" => {
            let limit = volume.empty_dir.as_ref().and_then(|source| source.size_limit.as_ref());
            let bad = |text: &str| Quantity::parse(text).map_or(true, |limit| limit.signum() < 0);
            if limit.is_some_and(|limit| bad(&limit.0)) {
                let message = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.child("sizeLimit"), message);
            }
        }
        "hostPath" => volume.host_path.iter().for_each(|source| host_path(source, path, errors)),
        "secret" => {
            if let Some(source) = &volume.secret {
                errors.not_empty(&path.child("secretName"), text(&source.secret_name));
                paths::mode(source.default_mode, &path.child("defaultMode"), errors);
                keys(items(&source.items), &path.child("items"), errors);
            }
        }
        "configMap" => {
            if let Some(source) = &volume.config_map {
                errors.not_empty(&path.child("name"), &source.name);
                paths::mode(source.default_mode, &path.child("defaultMode"), errors);
                keys(items(&source.items), &path.child("items"), errors);
            }
        }
        "persistentVolumeClaim" => {
            let PersistentVolumeClaimVolumeSource { claim_name, .. } =
                volume.persistent_volume_claim.clone().unwrap_or_default();
            errors.not_empty(&path.child("claimName"), &claim_name);
        }
        "downwardAPI" => {
            if let Some(source) = &volume.downward_api {
                paths::mode(source.default_mode, &path.child("defaultMode"), errors);
                projected::downward_files(items(&source.items), &path.child("items"), errors);
            }
        }
        "projected" => volume.projected.iter().for_each(|source| projected::validate(source, path, errors)),
        "csi" => volume.csi.iter().for_each(|source| csi(source, path, errors)),
        "ephemeral" => {
            if let Some(source) = &volume.ephemeral {
                claims::ephemeral_volume(source, path, errors);
            }
            let claim = format!("{pod_name}-{}", volume.name);
            if !pod_name.is_empty() && !volume.name.is_empty() {
                for message in names::dns_subdomain(&claim) {
                    let message = format!("PVC name {claim:?}: {message}");
                    errors.invalid(&volume_path.child("name"), &volume.name, message);
                }
            }
        }
        "image" => {
            if let Some(source) = &volume.image {
                errors.not_empty(&path.child("reference"), text(&source.reference));
                containers::pull_policy(text(&source.pull_policy), &path.child("pullPolicy"), errors);
            }
        }
        _ => {}
    }
}

fn host_path(source: &HostPathVolumeSource, path: &Path, errors: &mut Errors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if source.path.is_empty() {
        return errors.required(&path.child("path"), "");
    }
    paths::no_backsteps(&source.path, &path.child("path"), errors);
    errors.one_of(&path.child("type"), text(&source.type_), &TYPES);
}

fn csi(source: &CSIVolumeSource, path: &Path, errors: &mut Errors) {
    let driver_path = path.child("driver");
    if source.driver.is_empty() {
        errors.required(&driver_path, "");
    } else {
        if source.driver.len() > names::LABEL_BYTES_MAX {
            errors.too_long(&driver_path, names::LABEL_BYTES_MAX);
        }
        let messages = names::dns_subdomain(&source.driver.to_lowercase());
        errors.all_invalid(&driver_path, &source.driver, messages);
    }
    if let Some(secret) = &source.node_publish_secret_ref {
        let path = path.child("nodePublishSecretRef").child("name");
        if secret.name.is_empty() {
            errors.required(&path, "");
        } else {
            errors.all_invalid(&path, &secret.name, names::dns_subdomain(&secret.name));
        }
    }
}

/// Validates which keys of a Secret or ConfigMap become which files.
pub(super) fn keys(keys: &[KeyToPath], path: &Path, errors: &mut Errors) {
    for (index, key) in keys.iter().enumerate() {
        let path = path.index(index);
        errors.not_empty(&path.child("key"), &key.key);
        errors.not_empty(&path.child("path"), &key.path);
        paths::local_non_reserved(&key.path, &path.child("path"), errors);
        paths::mode(key.mode, &path.child("mode"), errors);
    }
}
