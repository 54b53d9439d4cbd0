//! What PodSources receives.

use crate::facts::NodeObserved;
use crate::{delivery, receives};

/// Send every source's pods again: the receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendPods;
delivery!(ResendPods => (): Command, LatestPerKey);

receives!("PodSources": ResendPods, NodeObserved);
