//! What a volume is, by its source.

use k8s_openapi::api::core::v1::Volume;

/// Whether the volume shows objects (secrets, config maps, tokens, the pod itself) as files: they change with the objects,
/// and containers have them read-only, whatever their spec says.
pub fn shows_objects(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// Whether the volume lies on the node's own disk and counts to its pod's ephemeral storage, as upstream chooses them: an
/// emptyDir that is not in memory, or a ConfigMap.
pub fn is_on_node_disk(volume: &Volume) -> bool {
    let on_disk = |medium: &Option<String>| medium.as_deref().is_none_or(str::is_empty);
    volume.empty_dir.as_ref().is_some_and(|dir| on_disk(&dir.medium)) || volume.config_map.is_some()
}
