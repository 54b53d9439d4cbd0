//! The generated messages and services of `proto/csi` and `proto/registration`, and hand-written parts that cannot be
//! generated.

use std::collections::BTreeMap;
use std::fmt;

#[allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]
mod generated {
    tonic::include_proto!("csi.v1");
}

/// The registration of plugins with a kubelet.
#[allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

pub use generated::*;

/// The key of a volume's context or secrets under which the driver gets the tokens of the pod's service account.
pub const TOKENS_KEY: &str = "csi.storage.k8s.io/serviceAccount.tokens";
/// What is shown in place of a secret.
const STRIPPED: &str = "***stripped***";

/// A map whose values are secret.
struct Secrets<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|key| (key, STRIPPED))).finish()
    }
}

/// A volume's context, of which the tokens alone are secret.
struct Context<'a>(&'a BTreeMap<String, String>);

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |key: &str, value| if key == TOKENS_KEY { STRIPPED } else { value };
        f.debug_map().entries(self.0.iter().map(|(key, value)| (key, shown(key, value.as_str())))).finish()
    }
}

impl fmt::Debug for NodeStageVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStageVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("publish_context", &self.publish_context)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("secrets", &Secrets(&self.secrets))
            .field("volume_context", &Context(&self.volume_context))
            .finish()
    }
}

impl fmt::Debug for NodePublishVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodePublishVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("publish_context", &self.publish_context)
            .field("staging_target_path", &self.staging_target_path)
            .field("target_path", &self.target_path)
            .field("volume_capability", &self.volume_capability)
            .field("readonly", &self.readonly)
            .field("secrets", &Secrets(&self.secrets))
            .field("volume_context", &Context(&self.volume_context))
            .finish()
    }
}

impl fmt::Debug for NodeExpandVolumeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeExpandVolumeRequest")
            .field("volume_id", &self.volume_id)
            .field("volume_path", &self.volume_path)
            .field("capacity_range", &self.capacity_range)
            .field("staging_target_path", &self.staging_target_path)
            .field("volume_capability", &self.volume_capability)
            .field("secrets", &Secrets(&self.secrets))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_tokens_do_not_reach_a_log() {
        let map = |key: &str| BTreeMap::from([(key.to_owned(), "hidden-value".to_owned())]);
        let tokens = map(TOKENS_KEY);
        let stage = NodeStageVolumeRequest {
            secrets: map("stage-key"),
            volume_context: tokens.clone(),
            ..Default::default()
        };
        let publish = NodePublishVolumeRequest {
            secrets: map("publish-key"),
            volume_context: tokens,
            ..Default::default()
        };
        let expand = NodeExpandVolumeRequest { secrets: map("expand-key"), ..Default::default() };
        let shown = format!("{stage:?} {publish:?} {expand:?}");
        assert!(!shown.contains("hidden-value"), "{shown}");
        for key in ["stage-key", "publish-key", "expand-key", TOKENS_KEY] {
            assert!(shown.contains(key), "{key}: {shown}");
        }
        let plain = NodePublishVolumeRequest { volume_context: map("share"), ..Default::default() };
        assert!(format!("{plain:?}").contains("hidden-value"), "a context is no secret");
    }
}
