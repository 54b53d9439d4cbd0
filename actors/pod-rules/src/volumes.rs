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
