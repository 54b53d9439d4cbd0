//! What NodeStatus and Lease receive.

use std::sync::Arc;

use crate::facts::{NodeObserved, OtherVolumesObserved, PressureObserved, RuntimeObserved};
use crate::{delivery, receives};

/// Say again what the API server has of the Node: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendNode;
delivery!(ResendNode => (): Command, LatestPerKey);

/// A subsystem is left alone after too many crashes, or is tried again: a condition of the Node says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemReported {
    /// Its name in the supervision tree.
    pub subsystem: Arc<str>,
    /// Why it does not run; absent when it does.
    pub dormant: Option<Arc<str>>,
}
delivery!(SubsystemReported => (): Command, LatestPerKey, key = |m| crate::Key::Name(m.subsystem.clone()));

/// The kubelet is about to end for this reason: the Node is not ready any more. Answered when the API server knows, or
/// will not know.
#[derive(Clone, Debug)]
pub struct PostNotReady {
    /// Names the subsystem that has failed.
    pub why: Arc<str>,
}
delivery!(PostNotReady => (): Command, Wait);

receives!(
    "NodeStatus": RuntimeObserved, PressureObserved, OtherVolumesObserved, ResendNode, SubsystemReported,
    PostNotReady
);

/// What Lease receives.
pub mod lease {
    use super::{NodeObserved, receives};

    receives!("Lease": NodeObserved);
}
