//! Flags of the container runtime and images.

use super::super::FlagRow;
use super::super::kind::{Duration, Int32, OptionalBool, Str};
use super::{config_flag, process_flag};

pub(super) const ROWS: &[FlagRow] = &[
    config_flag!(
        "container-runtime-endpoint",
        Str,
        images.container_runtime_endpoint,
        "containerRuntimeEndpoint",
        "URL of the runtime's socket"
    ),
    config_flag!(
        "image-service-endpoint",
        Str,
        images.image_service_endpoint,
        "imageServiceEndpoint",
        "URL of the image service's socket; the runtime's when empty"
    ),
    config_flag!(
        "runtime-request-timeout",
        Duration,
        images.runtime_request_timeout,
        "runtimeRequestTimeout",
        "Deadline of runtime calls other than pull, logs, exec and attach"
    ),
    config_flag!(
        "registry-qps",
        Int32,
        images.registry_pull_qps,
        "registryPullQPS",
        "Pulls started per second; 0 for no limit"
    ),
    config_flag!(
        "registry-burst",
        Int32,
        images.registry_burst,
        "registryBurst",
        "Pulls that may start at once above --registry-qps"
    ),
    config_flag!(
        "serialize-image-pulls",
        OptionalBool,
        images.serialize_image_pulls,
        "serializeImagePulls",
        "Pull images one at a time"
    ),
    config_flag!(
        "minimum-image-ttl-duration",
        Duration,
        images.image_minimum_gc_age,
        "imageMinimumGCAge",
        "Age below which an unused image is kept"
    ),
    config_flag!(
        "image-gc-high-threshold",
        Int32,
        images.image_gc_high_threshold_percent,
        "imageGCHighThresholdPercent",
        "Disk usage in percent above which images are removed; 100 disables it"
    ),
    config_flag!(
        "image-gc-low-threshold",
        Int32,
        images.image_gc_low_threshold_percent,
        "imageGCLowThresholdPercent",
        "Disk usage in percent down to which images are removed"
    ),
    process_flag!(
        "image-credential-provider-config",
        Str,
        image_credential_provider_config,
        Used,
        "File or directory that configures credential providers"
    ),
    process_flag!(
        "image-credential-provider-bin-dir",
        Str,
        image_credential_provider_bin_dir,
        Used,
        "Directory of credential providers"
    ),
    process_flag!("runtime-cgroups", Str, runtime_cgroups, Used, "Cgroup of the container runtime"),
];
