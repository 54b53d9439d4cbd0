//! The messages that ProbeManager receives.

use std::collections::BTreeMap;

use crate::facts::{DesiredPodsChanged, NodeAddressesObserved, PodObserved, Verdicts, WorkerReported};
use crate::{Key, PodUid, delivery, receives};

/// Asks ProbeManager to send every verdict again: the receiver has restarted or has missed a change.
#[derive(Clone, Debug)]
pub struct ResendVerdicts {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendVerdicts => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

/// Asks for all verdicts.
#[derive(Clone, Debug)]
pub struct GetVerdicts;
delivery!(GetVerdicts => BTreeMap<PodUid, Verdicts>: Query, Reject);

receives!(
    "ProbeManager": DesiredPodsChanged, NodeAddressesObserved, PodObserved, WorkerReported, ResendVerdicts,
    GetVerdicts
);
