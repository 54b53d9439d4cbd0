//! Node-pressure eviction.

use std::collections::BTreeMap;

use pod_rules::signals;

use super::duration::GoDuration;
use super::section::section;

/// The hard thresholds of a configuration file that names none.
pub const EVICTION_HARD_DEFAULT: [(&str, &str); 5] = [
    (signals::MEMORY_AVAILABLE, "100Mi"),
    (signals::NODE_FS_AVAILABLE, "10%"),
    (signals::NODE_FS_INODES_FREE, "5%"),
    (signals::IMAGE_FS_AVAILABLE, "15%"),
    (signals::IMAGE_FS_INODES_FREE, "5%"),
];

section! {
    /// When pods are evicted, signal by signal.
    pub struct EvictionConfiguration {
        /// Signal to threshold (quantity or percentage) of immediate eviction.
        "evictionHard" eviction_hard: BTreeMap<String, String> = Value(BTreeMap::new()), Used;
        /// Signal to threshold of eviction after a grace period.
        "evictionSoft" eviction_soft: BTreeMap<String, String> = Value(BTreeMap::new()), Used;
        /// Signal to the time that its soft threshold must hold.
        "evictionSoftGracePeriod" eviction_soft_grace_period: BTreeMap<String, String> =
            Value(BTreeMap::new()), Used;
        /// Time before a pressure condition is withdrawn.
        "evictionPressureTransitionPeriod" eviction_pressure_transition_period: GoDuration =
            Value(GoDuration::from_mins(5)), Used;
        /// Longest grace of a pod under soft eviction, in seconds.
        "evictionMaxPodGracePeriod" eviction_max_pod_grace_period: i32 = Value(0), Used;
        /// Signal to the amount that an eviction must free at least.
        "evictionMinimumReclaim" eviction_minimum_reclaim: BTreeMap<String, String> =
            Value(BTreeMap::new()), Used;
        /// Whether the default hard thresholds join those of the file.
        "mergeDefaultEvictionSettings" merge_default_eviction_settings: bool = Pointer(false), Used;
        /// Whether the kernel announces crossed memory thresholds.
        "kernelMemcgNotification" kernel_memcg_notification: bool = Value(false), NotYet;
        /// Whether ephemeral storage is measured and limited.
        "localStorageCapacityIsolation" local_storage_capacity_isolation: bool = Pointer(true), Used;
    }
}
