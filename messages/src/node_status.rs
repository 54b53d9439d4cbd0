//! The messages that NodeStatus and Lease receive.

use std::sync::Arc;

use crate::facts::{
    CsiDriversObserved, NodeObserved, OtherVolumesObserved, PressureObserved, RuntimeObserved,
};
use crate::{delivery, receives};

/// Asks NodeStatus to send `NodeObserved` and `NodeAddressesObserved` again, since a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendNode;
delivery!(ResendNode => (): Command, LatestPerKey);

/// Supervision leaves a subsystem stopped after too many crashes, or starts it again: NodeStatus shows this as a
/// condition of the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemReported {
    /// The subsystem's name in the supervision tree.
    pub subsystem: Arc<str>,
    /// Why the subsystem does not run; `None` when it runs.
    pub dormant: Option<Arc<str>>,
}
delivery!(SubsystemReported => (): Command, LatestPerKey, key = |m| crate::Key::Name(m.subsystem.clone()));

/// Asks NodeStatus to post the Node as not ready, since the kubelet is about to exit. Answered when the API server has
/// the condition, or when posting it has failed.
#[derive(Clone, Debug)]
pub struct PostNotReady {
    /// The condition's message; it names the subsystem that has failed.
    pub why: Arc<str>,
}
delivery!(PostNotReady => (): Command, Wait);

receives!(
    "NodeStatus": RuntimeObserved, PressureObserved, OtherVolumesObserved, CsiDriversObserved, ResendNode,
    SubsystemReported, PostNotReady
);

/// The messages that Lease receives.
pub mod lease {
    use super::{NodeObserved, receives};

    receives!("Lease": NodeObserved);
}
