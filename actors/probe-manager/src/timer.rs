//! What the actor's one delay queue holds.

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
    /// A checkpoint that could not be written is tried again.
    Save(PodUid),
    /// Verdicts that somebody had no room for are told again.
    Publish(PodUid),
}

impl Timer {
    /// The pod it is about.
    pub fn pod(&self) -> &PodUid {
        match self {
            Self::Due(key) => &key.pod,
            Self::Save(pod) | Self::Publish(pod) => pod,
        }
    }
}
