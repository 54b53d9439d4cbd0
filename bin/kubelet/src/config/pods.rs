//! Settings that apply to every pod of the node: their number, network, limits, logs and restarts.

use super::duration::GoDuration;
use super::section::section;

section! {
    /// Settings shared by all pods.
    pub struct PodConfiguration {
        /// Directory of the pods' log files; absolute, normalised, ASCII.
        "podLogsDir" pod_logs_dir: String = Value("/var/log/pods".to_owned()), Used;
        /// Domain that pods search first; empty for none.
        "clusterDomain" cluster_domain: String = Value(String::new()), Used;
        /// Name servers of pods with `dnsPolicy: ClusterFirst`.
        "clusterDNS" cluster_dns: Vec<String> = Value(Vec::new()), Used;
        /// Resolver file that pods' own are made from; empty for none.
        "resolvConf" resolv_conf: String = Pointer("/etc/resolv.conf".to_owned()), Used;
        /// `promiscuous-bridge`, `hairpin-veth` or `none`.
        "hairpinMode" hairpin_mode: String = Value("promiscuous-bridge".to_owned()), AcceptedNoEffectUpstream;
        /// Pods on the node at most.
        "maxPods" max_pods: i32 = Value(110), Used;
        /// Pods per CPU core at most; 0 for no such limit.
        "podsPerCore" pods_per_core: i32 = Value(0), Used;
        /// Addresses for pods, standalone only; empty for none.
        "podCIDR" pod_cidr: String = Value(String::new()), Used;
        /// Processes per pod at most; -1 for what the node allows.
        "podPidsLimit" pod_pids_limit: i64 = Pointer(-1), Used;
        /// Whether CPU limits are enforced by quota.
        "cpuCFSQuota" cpu_cfs_quota: bool = Pointer(true), Used;
        /// Period of the CPU quota.
        "cpuCFSQuotaPeriod" cpu_cfs_quota_period: GoDuration = Pointer(GoDuration::from_millis(100)), Used;
        /// Whether the OOM killer takes one process instead of the container; absent follows the cgroup version.
        "singleProcessOOMKill" single_process_oom_kill: Option<bool> = Value(None), Used;
        /// Whether swap stops the kubelet from starting.
        "failSwapOn" fail_swap_on: bool = Pointer(true), Used;
        /// What pods may do with swap.
        "memorySwap" memory_swap: MemorySwapConfiguration = Value(MemorySwapConfiguration::default()), Used;
        /// Size at which a container's log is rotated, a quantity of bytes.
        "containerLogMaxSize" container_log_max_size: String = Value("10Mi".to_owned()), Used;
        /// Log files per container at most.
        "containerLogMaxFiles" container_log_max_files: i32 = Pointer(5), Used;
        /// Logs rotated at the same time at most.
        "containerLogMaxWorkers" container_log_max_workers: i32 = Pointer(1), Used;
        /// Time between two looks at the logs' sizes.
        "containerLogMonitorInterval" container_log_monitor_interval: GoDuration =
            Pointer(GoDuration::from_secs(10)), Used;
        /// Unsafe sysctls, or patterns ending in `*`, that pods may set.
        "allowedUnsafeSysctls" allowed_unsafe_sysctls: Vec<String> = Value(Vec::new()), Used;
        /// Whether `RuntimeDefault` is the seccomp profile of pods that name none.
        "seccompDefault" seccomp_default: bool = Pointer(false), Used;
        /// How crashing containers are restarted.
        "crashLoopBackOff" crash_loop_back_off: CrashLoopBackOffConfiguration =
            Value(CrashLoopBackOffConfiguration::default()), Used;
        /// User namespaces of pods; absent for 65536 IDs each.
        "userNamespaces" user_namespaces: Option<UserNamespaces> = Value(None), NotYet;
        /// Time between the order to shut down and the machine's end; 0 disables graceful shutdown.
        "shutdownGracePeriod" shutdown_grace_period: GoDuration = Value(GoDuration::ZERO), NotYet;
        /// The part of `shutdownGracePeriod` kept for critical pods.
        "shutdownGracePeriodCriticalPods" shutdown_grace_period_critical_pods: GoDuration =
            Value(GoDuration::ZERO), NotYet;
        /// Grace by pod priority, instead of the two above.
        "shutdownGracePeriodByPodPriority" shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriod> =
            Value(Vec::new()), NotYet;
    }
}

section! {
    /// What pods may do with swap.
    pub struct MemorySwapConfiguration {
        /// Empty, `NoSwap` or `LimitedSwap`.
        "swapBehavior" swap_behavior: String = Value(String::new()), Used;
    }
}

section! {
    /// How crashing containers are restarted.
    pub struct CrashLoopBackOffConfiguration {
        /// Longest wait between two restarts, 1 s to 300 s; loading fills in 5 minutes.
        "maxContainerRestartPeriod" max_container_restart_period: Option<GoDuration> = Value(None), Used;
    }
}

section! {
    /// User namespaces of pods.
    pub struct UserNamespaces {
        /// User and group IDs per pod; a multiple of 65536.
        "idsPerPod" ids_per_pod: Option<i64> = Value(None), NotYet;
    }
}

section! {
    /// Grace of pods from one priority upwards.
    pub struct ShutdownGracePeriod {
        /// The lowest priority that this applies to.
        "priority" priority: i32 = Always(0), NotYet;
        /// Grace in seconds.
        "shutdownGracePeriodSeconds" shutdown_grace_period_seconds: i64 = Always(0), NotYet;
    }
}

/// The default of `maxContainerRestartPeriod` while its feature gate is on: the delay that counts without the gate, too.
pub const MAX_CONTAINER_RESTART_PERIOD: GoDuration =
    GoDuration::from_secs(pod_worker::backoff::MAX_DEFAULT.as_secs());
