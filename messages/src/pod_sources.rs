//! The messages that PodSources receives.

use crate::facts::NodeObserved;
use crate::{delivery, receives};

/// Asks PodSources to send every source's pods again, since PodManager has restarted.
#[derive(Clone, Debug)]
pub struct ResendPods;
delivery!(ResendPods => (): Command, LatestPerKey);

receives!("PodSources": ResendPods, NodeObserved);
