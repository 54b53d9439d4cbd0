//! The cgroup tree and what of the node is kept back from pods.

use std::collections::BTreeMap;

use super::section::section;

section! {
    /// The cgroup tree and node allocatable.
    pub struct CgroupConfiguration {
        /// Cgroup of the kubelet itself; empty leaves it where it is.
        "kubeletCgroups" kubelet_cgroups: String = Value(String::new()), Used;
        /// Cgroup for system processes without one; needs `cgroupRoot`.
        "systemCgroups" system_cgroups: String = Value(String::new()), Used;
        /// Cgroup under which pods live; empty for the root.
        "cgroupRoot" cgroup_root: String = Value(String::new()), Used;
        /// Whether pods live under a cgroup per QoS class.
        "cgroupsPerQOS" cgroups_per_qos: bool = Pointer(true), Used;
        /// `cgroupfs` or `systemd`; the runtime's own word wins where it has one.
        "cgroupDriver" cgroup_driver: String = Value("cgroupfs".to_owned()), Used;
        /// Resource to percentage of requests that lower QoS classes may not use.
        "qosReserved" qos_reserved: BTreeMap<String, String> = Value(BTreeMap::new()), NotYet;
        /// Resource to quantity kept for system processes.
        "systemReserved" system_reserved: BTreeMap<String, String> = Value(BTreeMap::new()), Used;
        /// Resource to quantity kept for Kubernetes' own processes.
        "kubeReserved" kube_reserved: BTreeMap<String, String> = Value(BTreeMap::new()), Used;
        /// CPUs kept for system and Kubernetes, as `0-3,6`.
        "reservedSystemCPUs" reserved_system_cpus: String = Value(String::new()), NotYet;
        /// Cgroup that `systemReserved` limits.
        "systemReservedCgroup" system_reserved_cgroup: String = Value(String::new()), Used;
        /// Cgroup that `kubeReserved` limits.
        "kubeReservedCgroup" kube_reserved_cgroup: String = Value(String::new()), Used;
        /// What node allocatable is enforced on.
        "enforceNodeAllocatable" enforce_node_allocatable: Vec<String> = List(vec!["pods".to_owned()]), Used;
        /// Whether an unexpected kernel setting ends the start instead of being changed.
        "protectKernelDefaults" protect_kernel_defaults: bool = Value(false), Used;
        /// Whether the kubelet keeps its marker chains in iptables.
        "makeIPTablesUtilChains" make_iptables_util_chains: bool = Pointer(true), Used;
        /// Without effect upstream.
        "iptablesMasqueradeBit" iptables_masquerade_bit: i32 = Pointer(14), AcceptedNoEffectUpstream;
        /// Without effect upstream.
        "iptablesDropBit" iptables_drop_bit: i32 = Pointer(15), AcceptedNoEffectUpstream;
        /// Whether cgroup v1 stops the kubelet from starting.
        "failCgroupV1" fail_cgroup_v1: bool = Pointer(true), Used;
        /// The kubelet's own OOM score adjustment, -1000 to 1000.
        "oomScoreAdj" oom_score_adj: i32 = Pointer(-999), Used;
        /// Files that the kubelet may have open.
        "maxOpenFiles" max_open_files: i64 = Value(1_000_000), Used;
        /// Share of the limit at which a container's memory is throttled; 0 to 1.
        "memoryThrottlingFactor" memory_throttling_factor: f64 = Pointer(0.9), NotYet;
        /// `None` or `TieredReservation`.
        "memoryReservationPolicy" memory_reservation_policy: String = Value("None".to_owned()), NotYet;
    }
}
