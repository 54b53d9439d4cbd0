//! The messages that PodManager receives.

use std::sync::Arc;

use crate::facts::{
    DesiredPods, GonePods, NodeObserved, Pressure, PressureObserved, RuntimeObserved, Source, SourcePod,
    WorkerReported,
};
use crate::{Key, PodUid, delivery, receives};

/// The full set of pods of one source (row 1.6); an empty first set still counts as heard. Writer: PodSources.
#[derive(Clone, Debug)]
pub struct PodsChanged {
    /// The source.
    pub source: Source,
    /// All pods of the source; their full names are unique.
    pub pods: Arc<Vec<SourcePod>>,
    /// Pods that left the source lately.
    pub gone: GonePods,
}
delivery!(PodsChanged => (): Command, LatestPerKey, key = |m| Key::Name(Arc::from(m.source.as_str())));

/// Asks PodManager to send [`DesiredPods`] to all its receivers again, since one of them has restarted.
#[derive(Clone, Debug)]
pub struct ResendDesired;
delivery!(ResendDesired => (): Command, LatestPerKey);

/// Asks for the desired pods, rejected ones included.
#[derive(Clone, Debug)]
pub struct GetPods;
delivery!(GetPods => DesiredPods: Query, Reject);

/// Asks for the node's pressure as EvictionManager last stated it; `None` before the first statement. EvictionManager
/// asks after a restart.
#[derive(Clone, Debug)]
pub struct GetPressure;
delivery!(GetPressure => Option<Pressure>: Query, Reject);

/// Asks for the static pod that a mirror pod of the API server stands for.
#[derive(Clone, Debug)]
pub struct GetStaticOf {
    /// The mirror pod's UID.
    pub mirror: PodUid,
}
delivery!(GetStaticOf => Option<PodUid>: Query, Reject);

receives!("PodManager": PodsChanged, ResendDesired, WorkerReported, RuntimeObserved, NodeObserved, PressureObserved,
    GetPods, GetPressure, GetStaticOf);
