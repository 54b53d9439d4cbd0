//! What GarbageCollector receives.

use crate::facts::{DesiredPods, PodObserved, WorkerReported};
use crate::{delivery, receives};

/// Collect now, without waiting for the next round.
#[derive(Clone, Debug)]
pub struct CollectNow;
delivery!(CollectNow => (): Command, LatestPerKey);

receives!("GarbageCollector": DesiredPods, PodObserved, WorkerReported, CollectNow);
