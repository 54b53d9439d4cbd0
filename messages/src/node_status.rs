//! The messages that NodeStatus and Lease receive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::config_manager::Configured;
use crate::facts::{
    CsiDriversObserved, NodeObserved, NodeResourcesConfigured, OtherVolumesObserved, PressureObserved,
    RuntimeObserved,
};
use crate::{Key, delivery, receives};

/// Asks NodeStatus to send `NodeObserved` and `NodeAddressesObserved` again, since a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendNode {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendNode => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

/// In which way a subsystem does less than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Degradation {
    /// It is stopped after too many crashes, or many of its workers are.
    Dormant,
    /// It runs, and leaves several pods alone for which it fails at one place.
    PodsLeftAlone,
}

/// Subsystems that are degraded, each with the way and the reason.
pub type DegradedSubsystems = BTreeMap<Arc<str>, (Degradation, Arc<str>)>;

/// The subsystems that supervision leaves stopped after too many crashes, or that leave several pods alone for one cause, all
/// of them, each with the way and the reason: NodeStatus shows them as a condition of the Node. Of these, those with pods that
/// are left alone are named with the place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsystemsReported(pub Arc<DegradedSubsystems>);
delivery!(SubsystemsReported => (): Command, LatestPerKey);

/// Asks NodeStatus to post the Node as not ready, since the kubelet is about to exit. Answered when posting it has ended, with
/// whether the API server has the condition.
#[derive(Clone, Debug)]
pub struct PostNotReady {
    /// The condition's message; it names the subsystem that has failed.
    pub why: Arc<str>,
}
delivery!(PostNotReady => bool: Command, Wait);

/// How often the Node's status is computed and posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPeriods {
    /// `nodeStatusUpdateFrequency`: time between two computations.
    pub update: Duration,
    /// `nodeStatusReportFrequency`: longest time between two postings of an unchanged status.
    pub report: Duration,
}

/// How often the Node's status is computed and posted from now on. Writer: ConfigManager.
pub type NodeStatusConfigured = Configured<StatusPeriods>;
delivery!(NodeStatusConfigured => (): Command, LatestPerKey);

receives!(
    "NodeStatus": RuntimeObserved, PressureObserved, OtherVolumesObserved, CsiDriversObserved, ResendNode,
    SubsystemsReported, PostNotReady, NodeResourcesConfigured, NodeStatusConfigured
);

/// The messages that Lease receives.
pub mod lease {
    use super::{NodeObserved, receives};

    receives!("Lease": NodeObserved);
}
