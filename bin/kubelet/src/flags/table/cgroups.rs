//! Flags of cgroups, reservations, resource managers and eviction.

use super::super::FlagRow;
use super::super::kind::{Bool, Duration, Int32, Int64, KeyValues, OneKeyValue, Str, Strings, Thresholds};
use super::super::node_kind::ReservedMemory;
use super::config_flag;

pub(super) const ROWS: &[FlagRow] = &[
    config_flag!(
        "fail-cgroupv1",
        None,
        Bool,
        cgroups.fail_cgroup_v1,
        "failCgroupV1",
        None,
        "Refuse to start on cgroup v1"
    ),
    config_flag!(
        "kubelet-cgroups",
        Str,
        cgroups.kubelet_cgroups,
        "kubeletCgroups",
        "Cgroup of the kubelet itself"
    ),
    config_flag!(
        "system-cgroups",
        Str,
        cgroups.system_cgroups,
        "systemCgroups",
        "Cgroup for system processes without one"
    ),
    config_flag!("cgroup-root", Str, cgroups.cgroup_root, "cgroupRoot", "Cgroup under which pods live"),
    config_flag!(
        "cgroups-per-qos",
        Bool,
        cgroups.cgroups_per_qos,
        "cgroupsPerQOS",
        "Put pods under a cgroup per QoS class"
    ),
    config_flag!("cgroup-driver", Str, cgroups.cgroup_driver, "cgroupDriver", "cgroupfs or systemd"),
    config_flag!(
        "qos-reserved",
        KeyValues,
        cgroups.qos_reserved,
        "qosReserved",
        "Share of requests that lower QoS classes may not use, as resource=percentage"
    ),
    config_flag!(
        "system-reserved",
        KeyValues,
        cgroups.system_reserved,
        "systemReserved",
        "Resources kept for system processes, as resource=quantity"
    ),
    config_flag!(
        "kube-reserved",
        KeyValues,
        cgroups.kube_reserved,
        "kubeReserved",
        "Resources kept for Kubernetes' processes, as resource=quantity"
    ),
    config_flag!(
        "reserved-cpus",
        Str,
        cgroups.reserved_system_cpus,
        "reservedSystemCPUs",
        "CPUs kept for system and Kubernetes, as 0-3,6"
    ),
    config_flag!(
        "system-reserved-cgroup",
        Str,
        cgroups.system_reserved_cgroup,
        "systemReservedCgroup",
        "Cgroup that --system-reserved limits"
    ),
    config_flag!(
        "kube-reserved-cgroup",
        Str,
        cgroups.kube_reserved_cgroup,
        "kubeReservedCgroup",
        "Cgroup that --kube-reserved limits"
    ),
    config_flag!(
        "enforce-node-allocatable",
        Strings,
        cgroups.enforce_node_allocatable,
        "enforceNodeAllocatable",
        "What node allocatable is enforced on"
    ),
    config_flag!(
        "protect-kernel-defaults",
        Bool,
        cgroups.protect_kernel_defaults,
        "protectKernelDefaults",
        "Refuse to start on unexpected kernel settings instead of changing them"
    ),
    config_flag!(
        "make-iptables-util-chains",
        Bool,
        cgroups.make_iptables_util_chains,
        "makeIPTablesUtilChains",
        "Keep the kubelet's marker chains in iptables"
    ),
    config_flag!(
        "oom-score-adj",
        Int32,
        cgroups.oom_score_adj,
        "oomScoreAdj",
        "The kubelet's own OOM score adjustment, -1000 to 1000"
    ),
    config_flag!(
        "max-open-files",
        Int64,
        cgroups.max_open_files,
        "maxOpenFiles",
        "Files that the kubelet may have open"
    ),
    config_flag!(
        "cpu-manager-policy",
        Str,
        resources.cpu_manager_policy,
        "cpuManagerPolicy",
        "none or static"
    ),
    config_flag!(
        "cpu-manager-policy-options",
        OneKeyValue,
        resources.cpu_manager_policy_options,
        "cpuManagerPolicyOptions",
        "Option of the CPU policy, as key=value; repeatable"
    ),
    config_flag!(
        "cpu-manager-reconcile-period",
        Duration,
        resources.cpu_manager_reconcile_period,
        "cpuManagerReconcilePeriod",
        "Time between two reconciliations of CPU sets"
    ),
    config_flag!(
        "memory-manager-policy",
        Str,
        resources.memory_manager_policy,
        "memoryManagerPolicy",
        "None or Static"
    ),
    config_flag!(
        "reserved-memory",
        ReservedMemory,
        resources.reserved_memory,
        "reservedMemory",
        "Memory kept back, as numa:type=quantity, nodes separated by semicolons"
    ),
    config_flag!(
        "topology-manager-policy",
        Str,
        resources.topology_manager_policy,
        "topologyManagerPolicy",
        "none, best-effort, restricted or single-numa-node"
    ),
    config_flag!(
        "topology-manager-policy-options",
        KeyValues,
        resources.topology_manager_policy_options,
        "topologyManagerPolicyOptions",
        "Options of the topology policy, as key=value"
    ),
    config_flag!(
        "topology-manager-scope",
        Str,
        resources.topology_manager_scope,
        "topologyManagerScope",
        "container or pod"
    ),
    config_flag!(
        "eviction-hard",
        Thresholds,
        eviction.eviction_hard,
        "evictionHard",
        "Thresholds of immediate eviction, as signal<threshold"
    ),
    config_flag!(
        "eviction-soft",
        Thresholds,
        eviction.eviction_soft,
        "evictionSoft",
        "Thresholds of eviction after a grace period, as signal<threshold"
    ),
    config_flag!(
        "eviction-soft-grace-period",
        KeyValues,
        eviction.eviction_soft_grace_period,
        "evictionSoftGracePeriod",
        "Time that a soft threshold must hold, as signal=duration"
    ),
    config_flag!(
        "eviction-pressure-transition-period",
        Duration,
        eviction.eviction_pressure_transition_period,
        "evictionPressureTransitionPeriod",
        "Time before a pressure condition is withdrawn"
    ),
    config_flag!(
        "eviction-max-pod-grace-period",
        Int32,
        eviction.eviction_max_pod_grace_period,
        "evictionMaxPodGracePeriod",
        "Longest grace of a pod under soft eviction, in seconds"
    ),
    config_flag!(
        "eviction-minimum-reclaim",
        KeyValues,
        eviction.eviction_minimum_reclaim,
        "evictionMinimumReclaim",
        "What an eviction must free at least, as signal=quantity"
    ),
    config_flag!(
        "kernel-memcg-notification",
        Bool,
        eviction.kernel_memcg_notification,
        "kernelMemcgNotification",
        "Let the kernel announce crossed memory thresholds"
    ),
    config_flag!(
        "local-storage-capacity-isolation",
        Bool,
        eviction.local_storage_capacity_isolation,
        "localStorageCapacityIsolation",
        "Measure and limit ephemeral storage"
    ),
];
