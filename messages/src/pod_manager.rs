//! The messages that PodManager receives.

use std::sync::Arc;

use crate::facts::{
    DesiredPods, NodeObserved, NodeResourcesConfigured, Pressure, PressureObserved, RuntimeObserved, Source,
    SourcePod, WorkerReported,
};
use crate::pod_set::PodSetUpdate;
use crate::{Key, PodUid, delivery, receives};

/// The full set of static pods of one source (row 1.6); an empty first set still counts as heard.
#[derive(Clone, Debug, PartialEq)]
pub struct PodsChanged {
    /// The source.
    pub source: Source,
    /// All pods of the source; their full names are unique.
    pub pods: Arc<Vec<SourcePod>>,
}
delivery!(PodsChanged => (): Command, LatestPerKey, key = |m| Key::Name(Arc::from(m.source.as_str())));

/// The pods of the API server, pod by pod (row 1.6). Writer: PodSources.
#[derive(Clone, Debug)]
pub struct ApiPodsChanged(pub PodSetUpdate<SourcePod>);
delivery!(ApiPodsChanged => (): Command, LatestPerKey, pod = |m| m.0.pod(), key = |m| m.0.key());

/// Send all desired pods again: the receiver has restarted or has missed a change.
#[derive(Clone, Debug)]
pub struct ResendDesired {
    /// Its name in the supervision tree.
    pub receiver: &'static str,
}
delivery!(ResendDesired => (): Command, LatestPerKey, key = |m| Key::Receiver(m.receiver));

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

receives!("PodManager": PodsChanged, ApiPodsChanged, ResendDesired, WorkerReported, RuntimeObserved, NodeObserved,
    PressureObserved, NodeResourcesConfigured, GetPods, GetPressure, GetStaticOf);
