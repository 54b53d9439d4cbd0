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
    /// Bring this pod in line with the newest facts about all pods.
    Reconcile(PodUid),
    /// Read again the checkpoints that could not be read.
    Load,
    /// Write this pod's checkpoint again, after a failure.
    Save(PodUid),
    /// Tell and write down this pod's verdicts, which have changed.
    Changed(PodUid),
    /// Tell followers what they are owed of the verdicts, or a digest of them.
    Tell,
}

impl Timer {
    /// The pod of the timer, if it is one pod's.
    pub fn pod(&self) -> Option<&PodUid> {
        match self {
            Self::Due(key) => Some(&key.pod),
            Self::Reconcile(pod) | Self::Save(pod) | Self::Changed(pod) => Some(pod),
            Self::Tell | Self::Load => None,
        }
    }
}
