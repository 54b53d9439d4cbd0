//! The container runtime and the images it pulls and keeps.

use super::duration::GoDuration;
use super::section::section;

/// The most pulls in flight when neither file nor flags set parallel pulls.
pub const PARALLEL_PULLS_DEFAULT: i32 = 5;

section! {
    /// The runtime's sockets, image pulls and image garbage collection.
    pub struct ImageConfiguration {
        /// URL of the runtime's socket.
        "containerRuntimeEndpoint" container_runtime_endpoint: String =
            Always("unix:///run/containerd/containerd.sock".to_owned()), Used;
        /// URL of the image service's socket; empty for the runtime's.
        "imageServiceEndpoint" image_service_endpoint: String = Value(String::new()), Used;
        /// Deadline of runtime calls other than pull, logs, exec and attach.
        "runtimeRequestTimeout" runtime_request_timeout: GoDuration = Value(GoDuration::from_mins(2)), Used;
        /// Pulls started per second; 0 for no limit.
        "registryPullQPS" registry_pull_qps: i32 = Pointer(5), Used;
        /// Pulls that may start at once above the rate.
        "registryBurst" registry_burst: i32 = Value(10), Used;
        /// Whether images are pulled one at a time. Loading always leaves a value here.
        "serializeImagePulls" serialize_image_pulls: Option<bool> = Value(None), Used;
        /// Pulls in flight at most; none for no limit.
        "maxParallelImagePulls" max_parallel_image_pulls: Option<i32> = Value(None), Used;
        /// Which images a pod may use without its own credentials.
        "imagePullCredentialsVerificationPolicy" image_pull_credentials_verification_policy: String =
            Value(String::new()), Used;
        /// Images exempt under `NeverVerifyAllowlistedImages`.
        "preloadedImagesVerificationAllowlist" preloaded_images_verification_allowlist: Vec<String> =
            Value(Vec::new()), Used;
        /// Age below which an unused image is kept.
        "imageMinimumGCAge" image_minimum_gc_age: GoDuration = Value(GoDuration::from_mins(2)), Used;
        /// Age above which an unused image is removed; 0 for never.
        "imageMaximumGCAge" image_maximum_gc_age: GoDuration = Value(GoDuration::ZERO), Used;
        /// Disk usage, in percent, above which images are removed.
        "imageGCHighThresholdPercent" image_gc_high_threshold_percent: i32 = Pointer(85), Used;
        /// Disk usage, in percent, down to which images are removed.
        "imageGCLowThresholdPercent" image_gc_low_threshold_percent: i32 = Pointer(80), Used;
    }
}

impl ImageConfiguration {
    /// Settles how images are pulled, after file, drop-ins and flags were read. If none of them sets it, pulls are
    /// parallel with a cap; if the operator sets one field, upstream's rule decides the other.
    pub fn settle_parallel_pulls(&mut self) {
        match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
            (None, None) => {
                self.serialize_image_pulls = Some(false);
                self.max_parallel_image_pulls = Some(PARALLEL_PULLS_DEFAULT);
            }
            (None, Some(max)) => self.serialize_image_pulls = Some(max < 2),
            (Some(_), _) => {}
        }
    }
}
