//! The messages that GarbageCollector receives.

use crate::facts::{DesiredPodsChanged, PodObserved, WorkerReported};
use crate::{delivery, receives};

/// Asks GarbageCollector to collect now, without waiting for the next round.
#[derive(Clone, Debug)]
pub struct CollectNow;
delivery!(CollectNow => (): Command, LatestPerKey);

/// Asks GarbageCollector to remove every container that is not needed, those of ended pods included, ignoring the
/// configured number of dead containers to keep. EvictionManager asks when the disk is full. Answered when the removal
/// has been tried, which it is not before all desired pods are known, or after half a minute.
#[derive(Clone, Debug)]
pub struct RemoveDeadContainers;
delivery!(RemoveDeadContainers => (): Command, Wait);

receives!("GarbageCollector": DesiredPodsChanged, PodObserved, WorkerReported, CollectNow, RemoveDeadContainers);
