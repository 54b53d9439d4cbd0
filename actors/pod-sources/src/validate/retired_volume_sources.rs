//! Validation of volume sources of network and cloud storage that upstream no longer mounts itself.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, FCVolumeSource, FlexVolumeSource, FlockerVolumeSource, GitRepoVolumeSource,
    ISCSIVolumeSource, LocalObjectReference, NFSVolumeSource, QuobyteVolumeSource, StorageOSVolumeSource,
    Volume,
};

use super::field::{Errors, Path, items, text};
use super::{names, paths};

/// The most portals of a target beside the first. Upstream has no bound, and tries each of them for minutes.
const ISCSI_PORTALS_MAX: usize = 15;

/// Validates the source of that name; returns false if it is none of this file's.
pub(super) fn validate(volume: &Volume, source: &str, volume_path: &Path, errors: &mut Errors) -> bool {
    let path = &volume_path.child(source);
    match source {
        "gitRepo" => volume.git_repo.iter().for_each(|source| git_repo(source, path, errors)),
        "nfs" => volume.nfs.iter().for_each(|source| nfs(source, path, errors)),
        "iscsi" => volume.iscsi.iter().for_each(|source| {
            iscsi(source, path, errors);
            let named = source.initiator_name.is_some();
            if named && volume.name.len() + 1 + source.target_portal.len() > 64 {
                let message = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                               iscsi.initiatorName is specified.";
                errors.invalid(&volume_path.child("name"), &volume.name, message);
            }
        }),
        "flocker" => volume.flocker.iter().for_each(|source| flocker(source, path, errors)),
        "quobyte" => volume.quobyte.iter().for_each(|source| quobyte(source, path, errors)),
        "fc" => volume.fc.iter().for_each(|source| fibre_channel(source, path, errors)),
        "flexVolume" => volume.flex_volume.iter().for_each(|source| flex(source, path, errors)),
        "azureDisk" => volume.azure_disk.iter().for_each(|source| azure_disk(source, path, errors)),
        "storageos" => volume.storageos.iter().for_each(|source| storage_os(source, path, errors)),
        _ => return required_only(volume, source, path, errors),
    }
    true
}

/// Validates sources of which only some fields must be given.
fn required_only(volume: &Volume, source: &str, path: &Path, errors: &mut Errors) -> bool {
    let fields: Vec<(&str, &str)> = match source {
        "gcePersistentDisk" => volume.gce_persistent_disk.iter().fold(Vec::new(), |_, source| {
            partition(source.partition, path, errors);
            vec![("pdName", source.pd_name.as_str())]
        }),
        "awsElasticBlockStore" => volume.aws_elastic_block_store.iter().fold(Vec::new(), |_, source| {
            partition(source.partition, path, errors);
            vec![("volumeID", source.volume_id.as_str())]
        }),
        "glusterfs" => volume.glusterfs.iter().fold(Vec::new(), |_, source| {
            vec![("endpoints", source.endpoints.as_str()), ("path", source.path.as_str())]
        }),
        "rbd" => volume.rbd.iter().fold(Vec::new(), |_, source| {
            let monitors = if source.monitors.is_empty() { "" } else { "given" };
            vec![("monitors", monitors), ("image", source.image.as_str())]
        }),
        "cinder" => volume.cinder.iter().fold(Vec::new(), |_, source| {
            secret_ref(source.secret_ref.as_ref(), path, errors);
            vec![("volumeID", source.volume_id.as_str())]
        }),
        "cephfs" => volume.cephfs.iter().fold(Vec::new(), |_, source| {
            vec![("monitors", if source.monitors.is_empty() { "" } else { "given" })]
        }),
        "azureFile" => volume.azure_file.iter().fold(Vec::new(), |_, source| {
            vec![("secretName", source.secret_name.as_str()), ("shareName", source.share_name.as_str())]
        }),
        "vsphereVolume" => volume
            .vsphere_volume
            .iter()
            .fold(Vec::new(), |_, source| vec![("volumePath", source.volume_path.as_str())]),
        "photonPersistentDisk" => volume
            .photon_persistent_disk
            .iter()
            .fold(Vec::new(), |_, source| vec![("pdID", source.pd_id.as_str())]),
        "portworxVolume" => volume
            .portworx_volume
            .iter()
            .fold(Vec::new(), |_, source| vec![("volumeID", source.volume_id.as_str())]),
        "scaleIO" => volume.scale_io.iter().fold(Vec::new(), |_, source| {
            vec![
                ("gateway", source.gateway.as_str()),
                ("system", source.system.as_str()),
                ("volumeName", text(&source.volume_name)),
            ]
        }),
        _ => return false,
    };
    for (name, value) in fields {
        errors.not_empty(&path.child(name), value);
    }
    true
}

fn partition(partition: Option<i32>, path: &Path, errors: &mut Errors) {
    if let Some(partition) = partition.filter(|partition| !(0..=255).contains(partition)) {
        errors.invalid(&path.child("partition"), &partition, names::between(1, 255));
    }
}

fn secret_ref(secret: Option<&LocalObjectReference>, path: &Path, errors: &mut Errors) {
    if secret.is_some_and(|secret| secret.name.is_empty()) {
        errors.required(&path.child("secretRef").child("name"), "");
    }
}

fn git_repo(source: &GitRepoVolumeSource, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("repository"), &source.repository);
    paths::local_descending(text(&source.directory), &path.child("directory"), errors);
}

fn nfs(source: &NFSVolumeSource, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("server"), &source.server);
    errors.not_empty(&path.child("path"), &source.path);
    if !source.path.starts_with('/') {
        errors.invalid(&path.child("path"), &source.path, "must be an absolute path");
    }
}

fn iscsi(source: &ISCSIVolumeSource, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("targetPortal"), &source.target_portal);
    if source.iqn.is_empty() {
        errors.required(&path.child("iqn"), "");
    } else {
        iscsi_name(&source.iqn, &path.child("iqn"), errors);
    }
    if !(0..=255).contains(&source.lun) {
        errors.invalid(&path.child("lun"), &source.lun, names::between(0, 255));
    }
    let portals = items(&source.portals).len();
    if portals > ISCSI_PORTALS_MAX {
        errors.too_many(&path.child("portals"), portals, ISCSI_PORTALS_MAX);
    }
    let chap = source.chap_auth_discovery == Some(true) || source.chap_auth_session == Some(true);
    if chap && source.secret_ref.is_none() {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(name) = &source.initiator_name {
        iscsi_name(name, &path.child("initiatorName"), errors);
    }
}

/// A name in one of iSCSI's three forms.
fn iscsi_name(name: &str, path: &Path, errors: &mut Errors) {
    let hex_like = |prefix: &str, digits: usize| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            // Any one character may separate, as in upstream's expression.
            let mut characters = rest.chars();
            characters.next().is_some()
                && characters.as_str().len() == digits
                && characters.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    let well_formed = match name.get(..3) {
        Some("iqn") => is_iqn(name),
        Some("eui") => hex_like("eui", 16),
        Some("naa") => hex_like("naa", 32),
        _ => {
            return errors.invalid(path, name, "must be valid format starting with iqn, eui, or naa");
        }
    };
    if !well_formed {
        errors.invalid(path, name, "must be valid format");
    }
}

/// `iqn.YYYY-MM.reversed.domain:anything`, the last part without blanks and `,;*&$|`.
fn is_iqn(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("iqn.") else { return false };
    let bytes = rest.as_bytes();
    let date = bytes.len() > 8
        && bytes[..7].iter().enumerate().all(|(index, byte)| match index {
            4 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
        && bytes[7] == b'.';
    if !date {
        return false;
    }
    let authority = rest.get(8..).and_then(|rest| rest.split_once(':'));
    authority.is_some_and(|(domain, own)| {
        let domain_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !domain.is_empty()
            && domain.bytes().all(domain_byte)
            && !own.is_empty()
            && !own.contains(|c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c))
    })
}

fn flocker(source: &FlockerVolumeSource, path: &Path, errors: &mut Errors) {
    let (name, uuid) = (text(&source.dataset_name), text(&source.dataset_uuid));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let message = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", message);
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(source: &QuobyteVolumeSource, path: &Path, errors: &mut Errors) {
    let pairs = "must be a host:port pair or multiple pairs separated by commas";
    let registry_path = path.child("registry");
    if source.registry.is_empty() {
        errors.required(&registry_path, pairs);
    } else if text(&source.tenant).len() >= 65 {
        let message = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), message);
    } else if !source.registry.split(',').all(is_host_and_port) {
        errors.invalid(&registry_path, &source.registry, pairs);
    }
    errors.not_empty(&path.child("volume"), &source.volume);
}

fn is_host_and_port(pair: &str) -> bool {
    pair.rsplit_once(':').is_some_and(|(host, _)| {
        host.strip_prefix('[').map_or(!host.contains(':'), |host| host.ends_with(']'))
    })
}

fn fibre_channel(source: &FCVolumeSource, path: &Path, errors: &mut Errors) {
    let (targets, ids) = (items(&source.target_wwns), items(&source.wwids));
    let targets_path = path.child("targetWWNs");
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => {
            errors.required(&targets_path, "must specify either targetWWNs or wwids, but not both");
        }
        (false, false) => {
            let message = "targetWWNs and wwids can not be specified simultaneously";
            errors.invalid(&targets_path, &targets.to_vec(), message);
        }
        _ => {}
    }
    match source.lun.filter(|_| !targets.is_empty()) {
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(&path.child("lun"), &lun, names::between(0, 255));
        }
        None if !targets.is_empty() => {
            errors.required(&path.child("lun"), "lun is required if targetWWNs is specified");
        }
        _ => {}
    }
}

fn flex(source: &FlexVolumeSource, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("driver"), &source.driver);
    for key in source.options.iter().flatten().map(|(key, _)| key) {
        let namespace = key.split_once('/').map_or(key.as_str(), |(namespace, _)| namespace);
        let dotted = format!(".{}", namespace.to_lowercase());
        if dotted.ends_with(".kubernetes.io") || dotted.ends_with(".k8s.io") {
            let message = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.child("options").key(key), key, message);
        }
    }
}

fn azure_disk(source: &AzureDiskVolumeSource, path: &Path, errors: &mut Errors) {
    errors.not_empty(&path.child("diskName"), &source.disk_name);
    errors.not_empty(&path.child("diskURI"), &source.disk_uri);
    if let Some(mode) = &source.caching_mode {
        errors.one_of(&path.child("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]);
    }
    let Some(kind) = &source.kind else { return };
    errors.one_of(&path.child("kind"), kind, &["Dedicated", "Managed", "Shared"]);
    let (prefix, form) = if kind == "Managed" {
        (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        )
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if !source.disk_uri.starts_with(prefix) {
        errors.unsupported(&path.child("diskURI"), &source.disk_uri, &[form]);
    }
}

fn storage_os(source: &StorageOSVolumeSource, path: &Path, errors: &mut Errors) {
    let name = text(&source.volume_name);
    if name.is_empty() {
        errors.required(&path.child("volumeName"), "");
    }
    for (field, value) in [("volumeName", name), ("volumeNamespace", text(&source.volume_namespace))] {
        if !value.is_empty() {
            errors.all_invalid(&path.child(field), value, names::dns_label(value));
        }
    }
    secret_ref(source.secret_ref.as_ref(), path, errors);
}
