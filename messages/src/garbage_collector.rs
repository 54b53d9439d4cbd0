//! What GarbageCollector receives.

use crate::facts::{DesiredPodsChanged, PodObserved, WorkerReported};
use crate::{delivery, receives};

/// Collect now, without waiting for the next round.
#[derive(Clone, Debug)]
pub struct CollectNow;
delivery!(CollectNow => (): Command, LatestPerKey);

/// Remove every container that nobody needs, those of pods that have ended included, whatever may stay otherwise: the
/// disk is full. Answered when that is done, or was tried.
#[derive(Clone, Debug)]
pub struct RemoveDeadContainers;
delivery!(RemoveDeadContainers => (): Command, Wait);

receives!("GarbageCollector": DesiredPodsChanged, PodObserved, WorkerReported, CollectNow, RemoveDeadContainers);
