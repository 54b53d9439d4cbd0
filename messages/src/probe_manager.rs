//! The messages that ProbeManager receives.

use crate::facts::{DesiredPodsChanged, NodeAddressesObserved, PodObserved, ProbeVerdict, WorkerReported};
use crate::{delivery, receives};

/// Asks ProbeManager to send every verdict again, since a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendVerdicts;
delivery!(ResendVerdicts => (): Command, LatestPerKey);

/// Asks for all verdicts.
#[derive(Clone, Debug)]
pub struct GetVerdicts;
delivery!(GetVerdicts => Vec<ProbeVerdict>: Query, Reject);

receives!(
    "ProbeManager": DesiredPodsChanged, NodeAddressesObserved, PodObserved, WorkerReported, ResendVerdicts,
    GetVerdicts
);
