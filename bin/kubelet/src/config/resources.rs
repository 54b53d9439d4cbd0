//! The CPU, memory and topology managers.

use std::collections::BTreeMap;

use super::duration::GoDuration;
use super::quantity::Quantity;
use super::section::section;

section! {
    /// Exclusive CPUs, memory by NUMA node, and their alignment.
    pub struct ResourceConfiguration {
        /// `none` or `static`.
        "cpuManagerPolicy" cpu_manager_policy: String = Value("none".to_owned()), NotYet;
        /// Options of the static CPU policy.
        "cpuManagerPolicyOptions" cpu_manager_policy_options: BTreeMap<String, String> =
            Value(BTreeMap::new()), NotYet;
        /// Time between two reconciliations of CPU sets.
        "cpuManagerReconcilePeriod" cpu_manager_reconcile_period: GoDuration =
            Value(GoDuration::from_secs(10)), NotYet;
        /// `None` or `Static`.
        "memoryManagerPolicy" memory_manager_policy: String = Value("None".to_owned()), NotYet;
        /// `none`, `best-effort`, `restricted` or `single-numa-node`.
        "topologyManagerPolicy" topology_manager_policy: String = Value("none".to_owned()), NotYet;
        /// `container` or `pod`.
        "topologyManagerScope" topology_manager_scope: String = Value("container".to_owned()), NotYet;
        /// Options of the topology policy.
        "topologyManagerPolicyOptions" topology_manager_policy_options: BTreeMap<String, String> =
            Value(BTreeMap::new()), NotYet;
        /// Memory kept back by NUMA node.
        "reservedMemory" reserved_memory: Vec<MemoryReservation> = Value(Vec::new()), NotYet;
    }
}

section! {
    /// Memory kept back on one NUMA node.
    pub struct MemoryReservation {
        /// The NUMA node's number.
        "numaNode" numa_node: i32 = Always(0), NotYet;
        /// `memory` or a huge-page resource, to its quantity.
        "limits" limits: BTreeMap<String, Quantity> = Always(BTreeMap::new()), NotYet;
    }
}
