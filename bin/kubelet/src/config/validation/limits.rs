//! Rules on ranges of numbers and durations.

use super::super::{FeatureGates, GoDuration, KubeletConfiguration};
use super::Problems;
use super::words::within;

pub(super) fn check(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    not_negative(config, problems);
    ranges(config, problems);
    images(config, gates, problems);
    pods(config, gates, problems);
}

/// Fields that upstream calls "must not be a negative number".
fn not_negative(config: &KubeletConfiguration, problems: &mut Problems) {
    for (name, flag, value) in [
        ("eventBurst", "event-burst", i64::from(config.node.event_burst)),
        ("eventRecordQPS", "event-qps", config.node.event_record_qps.into()),
        ("kubeAPIBurst", "kube-api-burst", config.node.kube_api_burst.into()),
        ("kubeAPIQPS", "kube-api-qps", config.node.kube_api_qps.into()),
        ("maxOpenFiles", "max-open-files", config.cgroups.max_open_files),
        ("maxPods", "max-pods", config.pods.max_pods.into()),
        ("podsPerCore", "pods-per-core", config.pods.pods_per_core.into()),
        ("registryBurst", "registry-burst", config.images.registry_burst.into()),
        ("registryPullQPS", "registry-qps", config.images.registry_pull_qps.into()),
    ] {
        problems.config(value < 0, || format!("{name} (--{flag}) {value} must not be a negative number"));
    }
    problems.config(config.node.node_lease_duration_seconds <= 0, || {
        "nodeLeaseDurationSeconds must be greater than 0".to_owned()
    });
    let images = config.node.node_status_max_images;
    problems.config(images < -1, || {
        format!("nodeStatusMaxImages (--node-status-max-images) {images} must be -1 or greater")
    });
}

/// Fields that upstream calls "must be between".
fn ranges(config: &KubeletConfiguration, problems: &mut Problems) {
    for (name, flag, value, low, high) in [
        ("iptablesDropBit", "iptables-drop-bit", config.cgroups.iptables_drop_bit, 0, 31),
        ("iptablesMasqueradeBit", "iptables-masquerade-bit", config.cgroups.iptables_masquerade_bit, 0, 31),
        ("port", "port", config.server.port, 1, 65_535),
        (
            "imageGCHighThresholdPercent",
            "image-gc-high-threshold",
            config.images.image_gc_high_threshold_percent,
            0,
            100,
        ),
        (
            "imageGCLowThresholdPercent",
            "image-gc-low-threshold",
            config.images.image_gc_low_threshold_percent,
            0,
            100,
        ),
        ("oomScoreAdj", "oom-score-adj", config.cgroups.oom_score_adj, -1000, 1000),
    ] {
        problems.config(!within(value, low, high), || {
            format!("{name} (--{flag}) {value} must be between {low} and {high}, inclusive")
        });
    }
    let healthz = config.server.healthz_port;
    problems.config(healthz != 0 && !within(healthz, 1, 65_535), || {
        format!("healthzPort (--healthz-port) {healthz} must be between 1 and 65535, inclusive")
    });
    let read_only = config.server.read_only_port;
    problems.config(read_only != 0 && !within(read_only, 1, 65_535), || {
        format!("readOnlyPort (--read-only-port) {read_only} must be between 0 and 65535, inclusive")
    });
}

fn images(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let images = &config.images;
    let (low, high) = (images.image_gc_low_threshold_percent, images.image_gc_high_threshold_percent);
    problems.config(low >= high, || {
        format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than \
             imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        )
    });
    let (youngest, oldest) = (images.image_minimum_gc_age, images.image_maximum_gc_age);
    problems.config(oldest != GoDuration::ZERO && !gates.enabled("ImageMaximumGCAge"), || {
        "ImageMaximumGCAge feature gate is required for Kubelet configuration option imageMaximumGCAge"
            .to_owned()
    });
    problems
        .config(youngest < GoDuration::ZERO, || format!("imageMinimumGCAge {youngest} must not be negative"));
    problems.config(oldest < GoDuration::ZERO, || format!("imageMaximumGCAge {oldest} must not be negative"));
    problems.config(oldest > GoDuration::ZERO && oldest <= youngest, || {
        format!("imageMaximumGCAge {oldest} must be greater than imageMinimumGCAge {youngest}")
    });
    let pulls = images.max_parallel_image_pulls;
    problems.config(pulls.is_some_and(|max| max < 1), || {
        format!("maxParallelImagePulls {} must be a positive number", pulls.unwrap_or_default())
    });
    problems.config(images.serialize_image_pulls == Some(true) && pulls.is_some_and(|max| max > 1), || {
        "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) is \
         set to false"
            .to_owned()
    });
}

fn pods(config: &KubeletConfiguration, gates: &FeatureGates, problems: &mut Problems) {
    let pods = &config.pods;
    let period = pods.cpu_cfs_quota_period;
    let custom_period = gates.enabled("CustomCPUCFSQuotaPeriod");
    problems.config(!custom_period && period != GoDuration::from_millis(100), || {
        format!(
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{period}}} requires feature gate CustomCPUCFSQuotaPeriod"
        )
    });
    let allowed = GoDuration::from_millis(1)..=GoDuration::from_secs(1);
    problems.config(custom_period && !allowed.contains(&period), || {
        format!(
            "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {{{period}}} must be between 1ms and 1sec, inclusive"
        )
    });
    let restart = pods.crash_loop_back_off.max_container_restart_period;
    if !gates.enabled("KubeletCrashLoopBackOffMax") {
        problems.config(restart.is_some(), || {
            "FeatureGate KubeletCrashLoopBackOffMax not enabled, CrashLoopBackOff.MaxContainerRestartPeriod must \
             not be set"
                .to_owned()
        });
    } else if let Some(restart) = restart {
        // Upstream compares whole milliseconds.
        let milliseconds = restart.as_nanos() / 1_000_000;
        problems.config(!within(milliseconds, 1000, 300_000), || {
            let seconds = restart.as_nanos() as f64 / 1e9;
            format!(
                "CrashLoopBackOff.MaxContainerRestartPeriod (got: {seconds} seconds) must be set between 1s and 300s"
            )
        });
    } else {
        problems.config(true, || {
            "FeatureGate KubeletCrashLoopBackOffMax is enabled, CrashLoopBackOff.MaxContainerRestartPeriod must \
             be set"
                .to_owned()
        });
    }
    problems.config(pods.container_log_max_workers < 1, || {
        "containerLogMaxWorkers must be greater than or equal to 1".to_owned()
    });
    problems.config(pods.container_log_monitor_interval < GoDuration::from_secs(3), || {
        "containerLogMonitorInterval must be a positive time duration greater than or equal to 3s".to_owned()
    });
    problems.config(pods.container_log_max_files <= 1, || {
        "containerLogMaxFiles must be greater than 1".to_owned()
    });
    let factor = config.cgroups.memory_throttling_factor;
    problems.config(!(factor > 0.0 && factor <= 1.0), || {
        format!("memoryThrottlingFactor {factor} must be greater than 0 and less than or equal to 1.0")
    });
}
