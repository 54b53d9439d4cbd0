//! The messages that NodeStatus and Lease receive.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

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

/// Supervision leaves a subsystem stopped after too many crashes, or several pods alone for one cause, or does so no longer:
/// NodeStatus shows this as a condition of the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemReported {
    /// The subsystem's name in the supervision tree; for pods that are left alone, with the place.
    pub subsystem: Arc<str>,
    /// What this is about.
    pub degradation: Degradation,
    /// Why it is so; `None` when it is so no longer.
    pub why: Option<Arc<str>>,
}
delivery!(SubsystemReported => (): Command, LatestPerKey, key = |m| crate::Key::Name(m.subsystem.clone()));

/// Asks NodeStatus to post the Node as not ready, since the kubelet is about to exit. Answered when posting it has ended, with
/// whether the API server has the condition.
#[derive(Clone, Debug)]
pub struct PostNotReady {
    /// The condition's message; it names the subsystem that has failed.
    pub why: Arc<str>,
}
delivery!(PostNotReady => bool: Command, Wait);

/// How often the Node's status is computed and posted from now on. Writer: ConfigManager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStatusConfigured {
    /// `nodeStatusUpdateFrequency`: time between two computations.
    pub update: Duration,
    /// `nodeStatusReportFrequency`: longest time between two postings of an unchanged status.
    pub report: Duration,
}
delivery!(NodeStatusConfigured => (): Command, LatestPerKey);

receives!(
    "NodeStatus": RuntimeObserved, PressureObserved, OtherVolumesObserved, CsiDriversObserved, ResendNode,
    SubsystemReported, PostNotReady, NodeResourcesConfigured, NodeStatusConfigured
);

/// The messages that Lease receives.
pub mod lease {
    use super::{NodeObserved, receives};

    receives!("Lease": NodeObserved);
}
