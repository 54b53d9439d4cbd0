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

/// Whether containers have the volume read-only, whatever their spec says: it shows objects or an image, or it is asked
/// for read-only.
pub fn is_read_only(volume: &Volume) -> bool {
    let asked = [
        volume.persistent_volume_claim.as_ref().and_then(|source| source.read_only),
        volume.nfs.as_ref().and_then(|source| source.read_only),
        volume.iscsi.as_ref().and_then(|source| source.read_only),
        volume.fc.as_ref().and_then(|source| source.read_only),
        volume.csi.as_ref().and_then(|source| source.read_only),
        volume.flex_volume.as_ref().and_then(|source| source.read_only),
    ];
    shows_objects(volume) || volume.image.is_some() || asked.contains(&Some(true))
}

/// Whether the volume keeps its SELinux labels: its files are the host's, a server's or an image's.
pub fn keeps_labels(volume: &Volume) -> bool {
    volume.host_path.is_some() || volume.nfs.is_some() || volume.image.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_read_only_is_read_only() {
        let of = |source: serde_json::Value| {
            let mut volume = source;
            volume["name"] = "v".into();
            let volume: Volume = serde_json::from_value(volume).expect("a volume");
            (is_read_only(&volume), keeps_labels(&volume))
        };
        let claim = |read_only| {
            of(serde_json::json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}))
        };
        assert_eq!((claim(true), claim(false)), ((true, false), (false, false)));
        let nfs = serde_json::json!({"nfs": {"server": "s", "path": "/", "readOnly": true}});
        assert_eq!(of(nfs), (true, true));
        let flex = serde_json::json!({"flexVolume": {"driver": "d/e", "readOnly": true}});
        assert_eq!(of(flex), (true, false));
        assert_eq!(of(serde_json::json!({"image": {"reference": "x"}})), (true, true));
        assert_eq!(of(serde_json::json!({"secret": {"secretName": "x"}})), (true, false));
        assert_eq!(of(serde_json::json!({"hostPath": {"path": "/x"}})), (false, true));
        assert_eq!(of(serde_json::json!({"emptyDir": {}})), (false, false));
    }
}
