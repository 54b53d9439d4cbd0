//! The messages that EvictionManager receives, and words that it shares.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config_manager::Configured;
use crate::facts::{DesiredPodsChanged, WorkerReported};
use crate::{Key, delivery, receives};

/// How the status message of a pod begins that is evicted because the node runs out of a resource. A pod that uses more
/// than its own limits allow is evicted with another message, and does not count as disrupted.
pub const NODE_WAS_LOW: &str = "The node was low on resource: ";

/// Asks EvictionManager to send [`PressureObserved`](crate::facts::PressureObserved) again, since a receiver has
/// restarted. EvictionManager sends nothing before it has measured.
#[derive(Clone, Debug)]
pub struct ResendPressure {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendPressure => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

/// When pods are evicted: thresholds by their signals, as the configuration has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionSettings {
    /// `evictionHard`
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`
    pub soft_grace: BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`
    pub min_reclaim: BTreeMap<String, String>,
    /// `enforceNodeAllocatable` has `pods`.
    pub pods_enforced: bool,
    /// `evictionPressureTransitionPeriod`
    pub transition: Duration,
    /// `evictionMaxPodGracePeriod`, in seconds.
    pub soft_grace_seconds_max: i64,
}

/// When pods are evicted from now on. Writer: ConfigManager.
pub type EvictionConfigured = Configured<Arc<EvictionSettings>>;
delivery!(EvictionConfigured => (): Command, LatestPerKey);

receives!("EvictionManager": DesiredPodsChanged, WorkerReported, ResendPressure, EvictionConfigured);
