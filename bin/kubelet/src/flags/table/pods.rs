//! Flags that apply to every pod.

use super::super::FlagRow;
use super::super::kind::{Bool, Duration, Int32, Int64, Str, Strings};
use super::{config_flag, process_flag};

pub(super) const ROWS: &[FlagRow] = &[
    config_flag!(
        "cluster-domain",
        Str,
        pods.cluster_domain,
        "clusterDomain",
        "Domain that pods search first"
    ),
    config_flag!(
        "cluster-dns",
        Strings,
        pods.cluster_dns,
        "clusterDNS",
        "Name servers of pods with dnsPolicy ClusterFirst"
    ),
    config_flag!(
        "resolv-conf",
        Str,
        pods.resolv_conf,
        "resolvConf",
        "Resolver file that pods' own are made from"
    ),
    config_flag!(
        "hairpin-mode",
        Str,
        pods.hairpin_mode,
        "hairpinMode",
        "promiscuous-bridge, hairpin-veth or none"
    ),
    config_flag!("max-pods", Int32, pods.max_pods, "maxPods", "Pods on the node at most"),
    config_flag!(
        "pods-per-core",
        Int32,
        pods.pods_per_core,
        "podsPerCore",
        "Pods per CPU core at most; 0 for no such limit"
    ),
    config_flag!("pod-cidr", Str, pods.pod_cidr, "podCIDR", "Addresses for pods, standalone only"),
    config_flag!(
        "pod-max-pids",
        Int64,
        pods.pod_pids_limit,
        "podPidsLimit",
        "Processes per pod at most; -1 for what the node allows"
    ),
    config_flag!("cpu-cfs-quota", Bool, pods.cpu_cfs_quota, "cpuCFSQuota", "Enforce CPU limits by quota"),
    config_flag!(
        "cpu-cfs-quota-period",
        Duration,
        pods.cpu_cfs_quota_period,
        "cpuCFSQuotaPeriod",
        "Period of the CPU quota"
    ),
    config_flag!("fail-swap-on", Bool, pods.fail_swap_on, "failSwapOn", "Refuse to start while swap is on"),
    config_flag!(
        "container-log-max-size",
        Str,
        pods.container_log_max_size,
        "containerLogMaxSize",
        "Size at which a container's log is rotated"
    ),
    config_flag!(
        "container-log-max-files",
        Int32,
        pods.container_log_max_files,
        "containerLogMaxFiles",
        "Log files per container at most; at least 2"
    ),
    config_flag!(
        "allowed-unsafe-sysctls",
        Strings,
        pods.allowed_unsafe_sysctls,
        "allowedUnsafeSysctls",
        "Unsafe sysctls, or patterns ending in *, that pods may set"
    ),
    process_flag!(
        "seccomp-default",
        Bool,
        seccomp_default,
        Used,
        "Give pods without a seccomp profile RuntimeDefault"
    ),
];
