//! Defaults of volumes.

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, DownwardAPIVolumeFile, ProjectedVolumeSource, ScaleIOVolumeSource, Volume,
};

use super::containers::pull_policy_of;
use super::{resources, set_if_empty};

/// Mode of files from secrets, config maps, the downward API and projections: rw-r--r--.
const FILE_MODE: i32 = 0o644;

pub(super) fn set_defaults(volume: &mut Volume) {
    let named = Volume { name: volume.name.clone(), ..Volume::default() };
    if *volume == named {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        downward_defaults(&mut downward.items);
    }
    if let Some(projected) = &mut volume.projected {
        projected_defaults(projected);
    }
    if let Some(image) = &mut volume.image {
        set_if_empty(&mut image.pull_policy, pull_policy_of(image.reference.as_deref().unwrap_or_default()));
    }
    if let Some(template) =
        volume.ephemeral.as_mut().and_then(|ephemeral| ephemeral.volume_claim_template.as_mut())
    {
        template.spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
        if let Some(required) = &mut template.spec.resources {
            resources::round_up(&mut required.limits);
            resources::round_up(&mut required.requests);
        }
    }
    in_tree_defaults(volume);
}

fn projected_defaults(projected: &mut ProjectedVolumeSource) {
    projected.default_mode.get_or_insert(FILE_MODE);
    for source in projected.sources.iter_mut().flatten() {
        if let Some(downward) = &mut source.downward_api {
            downward_defaults(&mut downward.items);
        }
        if let Some(token) = &mut source.service_account_token {
            token.expiration_seconds.get_or_insert(3600);
        }
    }
}

fn downward_defaults(items: &mut Option<Vec<DownwardAPIVolumeFile>>) {
    for field in items.iter_mut().flatten().filter_map(|item| item.field_ref.as_mut()) {
        set_if_empty(&mut field.api_version, "v1");
    }
}

/// Defaults of volume sources that upstream no longer mounts itself and that are still in the API.
fn in_tree_defaults(volume: &mut Volume) {
    if let Some(iscsi) = &mut volume.iscsi {
        set_if_empty(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut volume.rbd {
        set_if_empty(&mut rbd.pool, "rbd");
        set_if_empty(&mut rbd.user, "admin");
        set_if_empty(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(AzureDiskVolumeSource { caching_mode, fs_type, read_only, kind, .. }) = &mut volume.azure_disk
    {
        caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
        fs_type.get_or_insert_with(|| "ext4".to_owned());
        read_only.get_or_insert(false);
        kind.get_or_insert_with(|| "Shared".to_owned());
    }
    if let Some(ScaleIOVolumeSource { storage_mode, fs_type, .. }) = &mut volume.scale_io {
        set_if_empty(storage_mode, "ThinProvisioned");
        set_if_empty(fs_type, "xfs");
    }
}
