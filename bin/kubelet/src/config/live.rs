//! The fields whose new values take effect while the kubelet runs; every other one waits for a restart.

use super::KubeletConfiguration;

/// Declares the fields by their paths in the file, with the places of their values.
macro_rules! live {
    ($( $name:literal => $group:ident $(. $field:ident)+; )*) => {
        /// The paths of the fields, as `logging.verbosity`.
        pub const LIVE: &[&str] = &[$( $name ),*];

        /// The configuration of the start, with the live fields of a newer one.
        fn with_live_fields(
            started: &KubeletConfiguration,
            newest: &KubeletConfiguration,
        ) -> KubeletConfiguration {
            let mut config = started.clone();
            $( config.$group $(. $field)+ .clone_from(&newest.$group $(. $field)+ ); )*
            config
        }
    };
}

live! {
    "logging.verbosity" => process.logging.verbosity;
    "registryPullQPS" => images.registry_pull_qps;
    "registryBurst" => images.registry_burst;
    "serializeImagePulls" => images.serialize_image_pulls;
    "maxParallelImagePulls" => images.max_parallel_image_pulls;
    "imageMinimumGCAge" => images.image_minimum_gc_age;
    "imageMaximumGCAge" => images.image_maximum_gc_age;
    "imageGCHighThresholdPercent" => images.image_gc_high_threshold_percent;
    "imageGCLowThresholdPercent" => images.image_gc_low_threshold_percent;
    "maxPods" => pods.max_pods;
    "podsPerCore" => pods.pods_per_core;
    "containerLogMaxSize" => pods.container_log_max_size;
    "containerLogMaxFiles" => pods.container_log_max_files;
    "containerLogMaxWorkers" => pods.container_log_max_workers;
    "containerLogMonitorInterval" => pods.container_log_monitor_interval;
    "nodeStatusUpdateFrequency" => node.node_status_update_frequency;
    "nodeStatusReportFrequency" => node.node_status_report_frequency;
    "evictionHard" => eviction.eviction_hard;
    "evictionSoft" => eviction.eviction_soft;
    "evictionSoftGracePeriod" => eviction.eviction_soft_grace_period;
    "evictionPressureTransitionPeriod" => eviction.eviction_pressure_transition_period;
    "evictionMaxPodGracePeriod" => eviction.eviction_max_pod_grace_period;
    "evictionMinimumReclaim" => eviction.eviction_minimum_reclaim;
    "mergeDefaultEvictionSettings" => eviction.merge_default_eviction_settings;
}

/// What is in force of the newest configuration in a process that was started with another one. What the process made room for
/// at its start (mailboxes, the runtime's answers) bounds `maxPods`: beyond the number of the start only a restart helps.
pub fn in_force(started: &KubeletConfiguration, newest: &KubeletConfiguration) -> KubeletConfiguration {
    let mut config = with_live_fields(started, newest);
    config.pods.max_pods = config.pods.max_pods.min(started.pods.max_pods);
    config
}

/// Whether the field at a path takes effect while the kubelet runs.
pub fn is_live(path: &str) -> bool {
    LIVE.iter()
        .any(|live| path.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::logging::LoggingConfiguration;
    use crate::config::section::Section;
    use crate::config::understudy::UnderstudyConfiguration;

    /// The fields that wait for a restart.
    const RESTART: &[&str] = &[
        "UnderstudyConfiguration.legacyLogSymlinkDir",
        "UnderstudyConfiguration.mailbox",
        "UnderstudyConfiguration.podSecurity",
        "UnderstudyConfiguration.podSubmission",
        "UnderstudyConfiguration.podWorker",
        "UnderstudyConfiguration.quarantine",
        "UnderstudyConfiguration.relist",
        "UnderstudyConfiguration.server",
        "UnderstudyConfiguration.supervision",
        "UnderstudyConfiguration.sysctlDir",
        "address",
        "allowedUnsafeSysctls",
        "authentication",
        "authorization",
        "cgroupDriver",
        "cgroupRoot",
        "cgroupsPerQOS",
        "clusterDNS",
        "clusterDomain",
        "configMapAndSecretChangeDetectionStrategy",
        "containerRuntimeEndpoint",
        "contentType",
        "cpuCFSQuota",
        "cpuCFSQuotaPeriod",
        "cpuManagerPolicy",
        "cpuManagerPolicyOptions",
        "cpuManagerReconcilePeriod",
        "crashLoopBackOff",
        "enableContentionProfiling",
        "enableControllerAttachDetach",
        "enableDebugFlagsHandler",
        "enableDebuggingHandlers",
        "enableProfilingHandler",
        "enableServer",
        "enableSystemLogHandler",
        "enableSystemLogQuery",
        "enforceNodeAllocatable",
        "eventBurst",
        "eventRecordQPS",
        "failCgroupV1",
        "failSwapOn",
        "featureGates",
        "fileCheckFrequency",
        "hairpinMode",
        "healthzBindAddress",
        "healthzPort",
        "httpCheckFrequency",
        "imagePullCredentialsVerificationPolicy",
        "imageServiceEndpoint",
        "iptablesDropBit",
        "iptablesMasqueradeBit",
        "kernelMemcgNotification",
        "kubeAPIBurst",
        "kubeAPIQPS",
        "kubeReserved",
        "kubeReservedCgroup",
        "kubeletCgroups",
        "localStorageCapacityIsolation",
        "logging.flushFrequency",
        "logging.format",
        "logging.options",
        "logging.vmodule",
        "makeIPTablesUtilChains",
        "maxOpenFiles",
        "memoryManagerPolicy",
        "memoryReservationPolicy",
        "memorySwap",
        "memoryThrottlingFactor",
        "nodeLeaseDurationSeconds",
        "nodeStatusMaxImages",
        "oomScoreAdj",
        "podCIDR",
        "podLogsDir",
        "podPidsLimit",
        "port",
        "preloadedImagesVerificationAllowlist",
        "protectKernelDefaults",
        "providerID",
        "qosReserved",
        "readOnlyPort",
        "registerNode",
        "registerWithTaints",
        "reservedMemory",
        "reservedSystemCPUs",
        "resolvConf",
        "rotateCertificates",
        "runOnce",
        "runtimeRequestTimeout",
        "seccompDefault",
        "serverTLSBootstrap",
        "showHiddenMetricsForVersion",
        "shutdownGracePeriod",
        "shutdownGracePeriodByPodPriority",
        "shutdownGracePeriodCriticalPods",
        "singleProcessOOMKill",
        "staticPodPath",
        "staticPodURL",
        "staticPodURLHeader",
        "streamingConnectionIdleTimeout",
        "syncFrequency",
        "systemCgroups",
        "systemReserved",
        "systemReservedCgroup",
        "tlsCertFile",
        "tlsCipherSuites",
        "tlsCurvePreferences",
        "tlsMinVersion",
        "tlsPrivateKeyFile",
        "topologyManagerPolicy",
        "topologyManagerPolicyOptions",
        "topologyManagerScope",
        "tracing",
        "userNamespaces",
        "volumePluginDir",
        "volumeStatsAggPeriod",
    ];

    #[test]
    fn every_field_takes_effect_at_once_or_waits_for_a_restart() {
        let tops = KubeletConfiguration::rows().map(|row| row.name).filter(|name| *name != "logging");
        let logging = LoggingConfiguration::ROWS.iter().map(|row| format!("logging.{}", row.name));
        let understudy =
            UnderstudyConfiguration::ROWS.iter().map(|row| format!("UnderstudyConfiguration.{}", row.name));
        let all: BTreeSet<String> = tops.map(str::to_owned).chain(logging).chain(understudy).collect();
        let decided: BTreeSet<String> = LIVE.iter().chain(RESTART).map(|name| (*name).to_owned()).collect();
        assert_eq!(all, decided, "left: the fields; right: LIVE and RESTART");
        let both: Vec<_> = LIVE.iter().filter(|name| RESTART.contains(name)).collect();
        assert!(both.is_empty(), "in both lists: {both:?}");
        let wrong: Vec<_> =
            all.iter().filter(|name| is_live(name) != LIVE.contains(&name.as_str())).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn live_fields_are_the_newest_and_all_others_those_of_the_start() {
        let started = KubeletConfiguration::default();
        let mut newest = started.clone();
        newest.process.logging.verbosity = 4;
        newest.pods.container_log_max_files = 9;
        newest.pods.cluster_domain = "another".to_owned();
        newest.eviction.eviction_hard.insert("memory.available".to_owned(), "1Gi".to_owned());
        newest.pods.max_pods = 50;
        let config = in_force(&started, &newest);
        assert_eq!((config.process.logging.verbosity, config.pods.container_log_max_files), (4, 9));
        assert_eq!((config.pods.cluster_domain.as_str(), config.pods.max_pods), ("", 50));
        assert_eq!(config.eviction, newest.eviction);
        newest.pods.max_pods = 500;
        assert_eq!(in_force(&started, &newest).pods.max_pods, 110, "there is room for no more");
        assert!(
            is_live("evictionHard.memory.available") && !is_live("evictionHardly") && !is_live("logging")
        );
    }
}
