//! The sources of pods besides the API server, and the periods at which they are read again.

use std::collections::BTreeMap;

use super::duration::GoDuration;
use super::section::section;

section! {
    /// Static pods and the periods of the sync loop.
    pub struct SourceConfiguration {
        /// A directory of static pod manifests, or one such file; empty for none.
        "staticPodPath" static_pod_path: String = Value(String::new()), Used;
        /// Longest time between two syncs of a pod.
        "syncFrequency" sync_frequency: GoDuration = Value(GoDuration::from_mins(1)), Used;
        /// Time between two readings of the static pod path.
        "fileCheckFrequency" file_check_frequency: GoDuration = Value(GoDuration::from_secs(20)), Used;
        /// Time between two requests to `staticPodURL`.
        "httpCheckFrequency" http_check_frequency: GoDuration = Value(GoDuration::from_secs(20)), Used;
        /// URL of further static pods; empty for none.
        "staticPodURL" static_pod_url: String = Value(String::new()), Used;
        /// Headers sent to `staticPodURL`; they may hold credentials.
        "staticPodURLHeader" static_pod_url_header: BTreeMap<String, Vec<String>> =
            Value(BTreeMap::new()), Used;
        /// Removed upstream; true is refused.
        "runOnce" run_once: bool = Value(false), AcceptedNoEffectUpstream;
        /// How ConfigMaps and Secrets are followed: `Get`, `Cache` or `Watch`.
        "configMapAndSecretChangeDetectionStrategy" config_map_and_secret_change_detection_strategy: String =
            Value("Watch".to_owned()), Used;
    }
}
