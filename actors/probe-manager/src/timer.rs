//! The entries of ProbeManager's delay queue.

use messages::PodUid;
use messages::facts::ProbeKind;

/// One probe of the node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeKey {
    /// Its pod.
    pub pod: PodUid,
    /// Its container.
    pub container: String,
    /// Its kind.
    pub kind: ProbeKind,
}

/// A timer of the actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A probe is due.
    Due(ProbeKey),
    /// Write this pod's checkpoint again, after a failure.
    Save(PodUid),
    /// Tell this pod's refused verdicts again.
    Publish(PodUid),
}

impl Timer {
    /// The pod of the timer.
    pub fn pod(&self) -> &PodUid {
        match self {
            Self::Due(key) => &key.pod,
            Self::Save(pod) | Self::Publish(pod) => pod,
        }
    }
}
