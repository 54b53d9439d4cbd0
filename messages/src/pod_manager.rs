//! What PodManager receives.

use std::sync::Arc;

use crate::facts::{
    DesiredPods, GonePods, NodeObserved, Pressure, PressureObserved, RuntimeObserved, Source, SourcePod,
    WorkerReported,
};
use crate::{Key, PodUid, delivery, receives};

/// The full set of pods of one source (row 1.6); an empty first set still counts as heard.
#[derive(Clone, Debug)]
pub struct PodsChanged {
    /// Which source.
    pub source: Source,
    /// All its pods, without duplicates of one full name.
    pub pods: Arc<Vec<SourcePod>>,
    /// The newest of those that it has no more.
    pub gone: GonePods,
}
delivery!(PodsChanged => (): Command, LatestPerKey, key = |m| Key::Name(Arc::from(m.source.as_str())));

/// Send [`DesiredPods`] to everybody again: a receiver has restarted.
#[derive(Clone, Debug)]
pub struct ResendDesired;
delivery!(ResendDesired => (): Command, LatestPerKey);

/// The desired pods now, rejected ones included.
#[derive(Clone, Debug)]
pub struct GetPods;
delivery!(GetPods => DesiredPods: Query, Reject);

/// What the node was last said to run out of; nothing before it was measured. EvictionManager asks when it has restarted.
#[derive(Clone, Debug)]
pub struct GetPressure;
delivery!(GetPressure => Option<Pressure>: Query, Reject);

/// The static pod that a pod of the API server stands for.
#[derive(Clone, Debug)]
pub struct GetStaticOf {
    /// The mirror pod's UID.
    pub mirror: PodUid,
}
delivery!(GetStaticOf => Option<PodUid>: Query, Reject);

receives!("PodManager": PodsChanged, ResendDesired, WorkerReported, RuntimeObserved, NodeObserved, PressureObserved,
    GetPods, GetPressure, GetStaticOf);
