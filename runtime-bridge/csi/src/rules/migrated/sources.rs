//! PURE: sources of in-tree plugins as volumes of the drivers that replaced them. Names, handles and attributes are those of
//! upstream, so that the attach controller and each kubelet mean the same volume.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec, SecretReference,
    Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::topology;

const AWS: &str = "ebs.csi.aws.com";
const AZURE_DISK: &str = "disk.csi.azure.com";
const AZURE_FILE: &str = "file.csi.azure.com";
const CINDER: &str = "cinder.csi.openstack.org";
const GCE: &str = "pd.csi.storage.gke.io";
const PORTWORX: &str = "pxd.portworx.com";
const VSPHERE: &str = "csi.vsphere.vmware.com";
/// A part of a volume's handle that is not known.
const UNSPECIFIED: &str = "UNSPECIFIED";
const AZURE_RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
const PORTWORX_SECRET: [&str; 2] =
    ["openstorage.io/auth-secret-name", "openstorage.io/auth-secret-namespace"];

type Attributes = BTreeMap<String, String>;

fn attributes<const N: usize>(pairs: [(&str, String); N]) -> Option<Attributes> {
    Some(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn source(
    driver: &str,
    handle: String,
    fs_type: Option<&String>,
    read_only: Option<bool>,
) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        driver: driver.to_owned(),
        volume_handle: handle,
        fs_type: fs_type.cloned(),
        read_only,
        ..Default::default()
    }
}

/// The PersistentVolume that stands for an inline volume.
fn alone(name: String, mode: &str, source: CSIPersistentVolumeSource) -> PersistentVolume {
    PersistentVolume {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec![mode.to_owned()]),
            volume_mode: Some("Filesystem".to_owned()),
            csi: Some(source),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// An inline volume of a migrated plugin as a PersistentVolume of its driver; `None` for another volume.
///
/// # Errors
/// Upstream's text: the driver cannot have such a volume.
pub(super) fn inline(volume: &Volume, namespace: &str) -> Option<Result<PersistentVolume, String>> {
    const ONE: &str = "ReadWriteOnce";
    const READ: &str = "ReadOnlyMany";
    if let Some(ebs) = &volume.aws_elastic_block_store {
        let made = ebs_id(&ebs.volume_id).map(|id| {
            let mut made = source(AWS, id.clone(), ebs.fs_type.as_ref(), ebs.read_only);
            made.volume_attributes = attributes([("partition", ebs.partition.unwrap_or(0).to_string())]);
            alone(format!("{AWS}-{id}"), ONE, made)
        });
        Some(made)
    } else if let Some(disk) = &volume.azure_disk {
        Some(azure_kind(disk.kind.as_deref()).map(|()| {
            let mut made = source(AZURE_DISK, disk.disk_uri.clone(), disk.fs_type.as_ref(), disk.read_only);
            let caching = disk.caching_mode.as_deref().filter(|mode| !mode.is_empty());
            made.volume_attributes = Some(azure_attributes(caching, disk.fs_type.as_deref()));
            alone(disk.disk_uri.clone(), ONE, made)
        }))
    } else if let Some(file) = &volume.azure_file {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        let account = azure_account(&file.secret_name);
        let handle = format!("#{account}#{}#{}#{namespace}", file.share_name, volume.name);
        let mut made = source(AZURE_FILE, handle.clone(), None, file.read_only);
        made.volume_attributes = attributes([("sharename", file.share_name.clone())]);
        made.node_stage_secret_ref = secret(&file.secret_name, namespace);
        Some(Ok(alone(handle, "ReadWriteMany", made)))
    } else if let Some(cinder) = &volume.cinder {
        let made = source(CINDER, cinder.volume_id.clone(), cinder.fs_type.as_ref(), cinder.read_only);
        Some(Ok(alone(format!("{CINDER}-{}", cinder.volume_id), ONE, made)))
    } else if let Some(disk) = &volume.gce_persistent_disk {
        let handle = format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{}", disk.pd_name);
        let mut made = source(GCE, handle, disk.fs_type.as_ref(), disk.read_only);
        made.volume_attributes = attributes([("partition", gce_partition(disk.partition))]);
        let mode = if disk.read_only == Some(true) { READ } else { ONE };
        Some(Ok(alone(format!("{GCE}-{}", disk.pd_name), mode, made)))
    } else if let Some(portworx) = &volume.portworx_volume {
        let made = source(PORTWORX, portworx.volume_id.clone(), portworx.fs_type.as_ref(), None);
        let mode = if portworx.read_only == Some(true) { READ } else { ONE };
        Some(Ok(alone(format!("{PORTWORX}-{}", portworx.volume_id), mode, made)))
    } else {
        let disk = volume.vsphere_volume.as_ref()?;
        let mut made = source(VSPHERE, disk.volume_path.clone(), disk.fs_type.as_ref(), None);
        made.volume_attributes = vsphere_attributes(disk.storage_policy_name.as_deref());
        Some(Ok(alone(format!("{VSPHERE}-{}", disk.volume_path), ONE, made)))
    }
}

/// A PersistentVolume of a migrated plugin as one of its driver; `None` for another volume.
///
/// # Errors
/// Upstream's text: the driver cannot have such a volume.
pub(super) fn persistent(volume: &PersistentVolume) -> Option<Result<PersistentVolume, String>> {
    let spec = volume.spec.as_ref()?;
    if spec.aws_elastic_block_store.is_none()
        && spec.azure_disk.is_none()
        && spec.azure_file.is_none()
        && spec.cinder.is_none()
        && spec.gce_persistent_disk.is_none()
        && spec.portworx_volume.is_none()
        && spec.vsphere_volume.is_none()
    {
        return None;
    }
    Some(translated(volume, spec).map(|(made, place)| {
        let mut volume = volume.clone();
        match place {
            Place::Zone(key) => topology::of_zone(&mut volume, key),
            Place::ZoneAndRegion(zone, region) => topology::of_zone_and_region(&mut volume, zone, region),
            Place::Unsaid => {}
        }
        if let Some(spec) = &mut volume.spec {
            if spec.gce_persistent_disk.take().is_some() {
                spec.access_modes = spec.access_modes.as_deref().map(gce_modes);
            }
            spec.aws_elastic_block_store = None;
            spec.azure_disk = None;
            spec.azure_file = None;
            spec.cinder = None;
            spec.portworx_volume = None;
            spec.vsphere_volume = None;
            spec.csi = Some(made);
        }
        volume
    }))
}

/// How the driver tells where a volume is.
enum Place {
    Zone(&'static str),
    ZoneAndRegion(&'static str, &'static str),
    Unsaid,
}

fn translated(
    volume: &PersistentVolume,
    spec: &PersistentVolumeSpec,
) -> Result<(CSIPersistentVolumeSource, Place), String> {
    if let Some(ebs) = &spec.aws_elastic_block_store {
        let mut made = source(AWS, ebs_id(&ebs.volume_id)?, ebs.fs_type.as_ref(), ebs.read_only);
        made.volume_attributes = attributes([("partition", ebs.partition.unwrap_or(0).to_string())]);
        Ok((made, Place::Zone("topology.ebs.csi.aws.com/zone")))
    } else if let Some(disk) = &spec.azure_disk {
        azure_kind(disk.kind.as_deref())?;
        let mut made = source(AZURE_DISK, disk.disk_uri.clone(), disk.fs_type.as_ref(), disk.read_only);
        made.volume_attributes =
            Some(azure_attributes(disk.caching_mode.as_deref(), disk.fs_type.as_deref()));
        Ok((made, Place::Unsaid))
    } else if let Some(file) = &spec.azure_file {
        let claim = spec.claim_ref.as_ref().and_then(|claim: &ObjectReference| claim.namespace.as_deref());
        let namespace = file.secret_namespace.as_deref().or(claim).unwrap_or_default();
        if namespace.is_empty() {
            return Err("could not find a secret namespace in PersistentVolumeSource or ClaimRef".to_owned());
        }
        let annotations = volume.metadata.annotations.as_ref();
        let group = annotations.and_then(|all| all.get(AZURE_RESOURCE_GROUP)).map_or("", String::as_str);
        let (account, share) = (azure_account(&file.secret_name), &file.share_name);
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let handle = format!("{group}#{account}#{share}#{name}#{namespace}");
        let mut made = source(AZURE_FILE, handle, None, file.read_only);
        made.volume_attributes = attributes([("sharename", share.clone())]);
        made.node_stage_secret_ref = secret(&file.secret_name, namespace);
        Ok((made, Place::Unsaid))
    } else if let Some(cinder) = &spec.cinder {
        let made = source(CINDER, cinder.volume_id.clone(), cinder.fs_type.as_ref(), cinder.read_only);
        Ok((made, Place::Zone("topology.cinder.csi.openstack.org/zone")))
    } else if let Some(disk) = &spec.gce_persistent_disk {
        let handle = gce_handle(topology::zones_of(volume), &disk.pd_name)?;
        let mut made = source(GCE, handle, disk.fs_type.as_ref(), disk.read_only);
        made.volume_attributes = attributes([("partition", gce_partition(disk.partition))]);
        Ok((made, Place::Zone("topology.gke.io/zone")))
    } else if let Some(portworx) = &spec.portworx_volume {
        let mut made = source(PORTWORX, portworx.volume_id.clone(), portworx.fs_type.as_ref(), None);
        let annotations = volume.metadata.annotations.as_ref();
        let [name, namespace] = PORTWORX_SECRET.map(|key| annotations.and_then(|all| all.get(key)));
        if let Some((name, namespace)) = name.zip(namespace) {
            made.node_stage_secret_ref = secret(name, namespace);
            made.node_publish_secret_ref = secret(name, namespace);
            made.node_expand_secret_ref = secret(name, namespace);
            made.controller_publish_secret_ref = secret(name, namespace);
            made.controller_expand_secret_ref = secret(name, namespace);
        }
        Ok((made, Place::Unsaid))
    } else {
        let disk = spec.vsphere_volume.as_ref().ok_or("no migrated volume")?;
        let mut made = source(VSPHERE, disk.volume_path.clone(), disk.fs_type.as_ref(), None);
        made.volume_attributes = vsphere_attributes(disk.storage_policy_name.as_deref());
        Ok((made, Place::ZoneAndRegion("topology.csi.vmware.com/zone", "topology.csi.vmware.com/region")))
    }
}

fn secret(name: &str, namespace: &str) -> Option<SecretReference> {
    Some(SecretReference { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()) })
}

/// The disk of `aws://<zone>/<disk>` or `<disk>`.
fn ebs_id(id: &str) -> Result<String, String> {
    let Some(url) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let disk = url.split_once('/').map_or("", |(_, path)| path).trim_matches('/');
    if disk.starts_with("vol-") && !disk.contains('/') {
        Ok(disk.to_owned())
    } else {
        Err(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"
        ))
    }
}

/// Only managed disks are migrated.
fn azure_kind(kind: Option<&str>) -> Result<(), String> {
    match kind.filter(|kind| !kind.eq_ignore_ascii_case("Managed")) {
        Some(kind) => Err(format!("kind({kind}) is not supported in csi migration")),
        None => Ok(()),
    }
}

fn azure_attributes(caching: Option<&str>, fs_type: Option<&str>) -> Attributes {
    let told = [("kind", Some("Managed")), ("cachingmode", caching), ("fstype", fs_type)];
    told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect()
}

/// The storage account that a secret's name tells, else the name.
fn azure_account(secret: &str) -> &str {
    let after = secret.split_once("azure-storage-account-").map(|(_, after)| after);
    let account = after.and_then(|after| after.rsplit_once("-secret")).map(|(account, _)| account);
    account.filter(|account| !account.is_empty()).unwrap_or(secret)
}

fn gce_partition(partition: Option<i32>) -> String {
    partition.filter(|number| *number != 0).map(|number| number.to_string()).unwrap_or_default()
}

fn gce_handle(zones: &str, disk: &str) -> Result<String, String> {
    let place = match zones.split(topology::ZONES_DELIMITER).collect::<Vec<_>>().as_slice() {
        [] | [""] => format!("zones/{UNSPECIFIED}"),
        [zone] => format!("zones/{zone}"),
        zones => format!("regions/{}", gce_region(zones)?),
    };
    Ok(format!("projects/{UNSPECIFIED}/{place}/disks/{disk}"))
}

fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        match zone.split('-').collect::<Vec<_>>().as_slice() {
            [locale, region, _] => regions.insert(format!("{locale}-{region}")),
            _ => {
                return Err(format!(
                    "failed to get region from zones: zone in unexpected format, expected: \
                     {{locale}}-{{region}}-{{zone}}, got: {zone}"
                ));
            }
        };
    }
    match (regions.pop_first(), regions.is_empty()) {
        (Some(region), true) => Ok(region),
        (first, _) => {
            let all: Vec<String> = first.into_iter().chain(regions).collect();
            let all = all.join(" ");
            Err(format!(
                "failed to get region from zones: multiple or no regions gotten from zones, got: [{all}]"
            ))
        }
    }
}

/// The in-tree plugin attached each volume to one node for writing, whatever its modes said.
fn gce_modes(modes: &[String]) -> Vec<String> {
    let is_read_only = !modes.is_empty()
        && modes.iter().all(|mode| mode != "ReadWriteOnce" && mode != "ReadWriteMany")
        && modes.iter().any(|mode| mode == "ReadOnlyMany");
    vec![if is_read_only { "ReadOnlyMany" } else { "ReadWriteOnce" }.to_owned()]
}

fn vsphere_attributes(policy: Option<&str>) -> Option<Attributes> {
    let policy = policy.filter(|policy| !policy.is_empty())?;
    attributes([("storagepolicyname", policy.to_owned())])
}
