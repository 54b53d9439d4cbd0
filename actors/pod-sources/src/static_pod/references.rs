//! The objects of the API server that a pod refers to. A static pod may not refer to any.

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Pod, PodSpec, Volume, VolumeProjection};

/// The first API object that the pod refers to, in upstream's words and order; `None` if it refers to none.
pub fn api_reference(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let volumes = || spec.volumes.iter().flatten();
    let found = if spec.service_account_name.as_ref().is_some_and(|name| !name.is_empty()) {
        Some("serviceaccounts")
    } else if names_secrets(spec) {
        Some("secrets")
    } else if names_config_maps(spec) {
        Some("configmaps")
    } else if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        Some("resourceclaims")
    } else {
        volumes().find_map(of_volume)
    };
    found.map(str::to_owned)
}

/// The environment variables of all containers.
fn env(spec: &PodSpec) -> impl Iterator<Item = &EnvVar> {
    let init = spec.init_containers.iter().flatten().filter_map(|container| container.env.as_ref());
    let regular = spec.containers.iter().filter_map(|container| container.env.as_ref());
    let ephemeral = spec.ephemeral_containers.iter().flatten().filter_map(|container| container.env.as_ref());
    init.chain(regular).chain(ephemeral).flatten()
}

fn env_from(spec: &PodSpec) -> impl Iterator<Item = &EnvFromSource> {
    let init = spec.init_containers.iter().flatten().filter_map(|container| container.env_from.as_ref());
    let regular = spec.containers.iter().filter_map(|container| container.env_from.as_ref());
    let ephemeral =
        spec.ephemeral_containers.iter().flatten().filter_map(|container| container.env_from.as_ref());
    init.chain(regular).chain(ephemeral).flatten()
}

fn projections(volume: &Volume) -> impl Iterator<Item = &VolumeProjection> {
    volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten()
}

fn names_secrets(spec: &PodSpec) -> bool {
    spec.image_pull_secrets.iter().flatten().any(|secret| !secret.name.is_empty())
        || env(spec).any(|variable| {
            variable.value_from.as_ref().is_some_and(|source| source.secret_key_ref.is_some())
        })
        || env_from(spec).any(|source| source.secret_ref.is_some())
        || spec.volumes.iter().flatten().any(volume_names_secrets)
}

/// Whether the volume's source refers to a Secret.
fn volume_names_secrets(volume: &Volume) -> bool {
    volume.azure_file.is_some()
        || volume.secret.is_some()
        || volume.cephfs.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.cinder.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.flex_volume.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.rbd.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.scale_io.as_ref().is_some_and(|source| !source.secret_ref.name.is_empty())
        || volume.iscsi.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.storageos.as_ref().is_some_and(|source| source.secret_ref.is_some())
        || volume.csi.as_ref().is_some_and(|source| source.node_publish_secret_ref.is_some())
        || projections(volume).any(|source| source.secret.is_some())
}

fn names_config_maps(spec: &PodSpec) -> bool {
    env(spec).any(|variable| {
        variable.value_from.as_ref().is_some_and(|source| source.config_map_key_ref.is_some())
    }) || env_from(spec).any(|source| source.config_map_ref.is_some())
        || spec.volumes.iter().flatten().any(|volume| {
            volume.config_map.is_some() || projections(volume).any(|source| source.config_map.is_some())
        })
}

fn of_volume(volume: &Volume) -> Option<&'static str> {
    if volume.csi.is_some() {
        Some("csidrivers (via CSI volumes)")
    } else if volume.glusterfs.is_some() {
        Some("endpoints (via glusterFS volumes)")
    } else if volume.persistent_volume_claim.is_some() {
        Some("persistentvolumeclaims")
    } else if volume.ephemeral.is_some() {
        Some("persistentvolumeclaims (via ephemeral volumes)")
    } else {
        projections(volume).find_map(of_projection)
    }
}

fn of_projection(source: &VolumeProjection) -> Option<&'static str> {
    if source.service_account_token.is_some() {
        Some("serviceaccounts (via projected volumes)")
    } else if source.cluster_trust_bundle.is_some() {
        Some("clustertrustbundles")
    } else if source.pod_certificate.is_some() {
        Some("podcertificates")
    } else if *source == VolumeProjection::default() {
        // A source that this version does not know; a later version of the API may have it.
        Some("an unknown source (via projected volumes)")
    } else {
        None
    }
}
