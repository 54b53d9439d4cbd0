//! Duty: the only writer of mounts: has a pod's volumes ready before its containers start, and gone after they died.
//! Receives: DesiredPodsChanged, MountVolumes, UnmountVolumes, PrepareSubpaths, PodObjectsChanged, GetVolumes, GetVolumeStats.
//! Sends: ResendDesired; GetHeldPods (before anything is cleaned away);
//!   GetSecret, GetConfigMap, GetToken (what volumes show); RecordEvent (FailedMount);
//!   OtherVolumesObserved.
//! State (rebuilt from): mounted volumes (`/proc/self/mountinfo`, pod directories); operations under way (asked
//!   again).
//! On crash: operations run to their end in the bridge; askers learn that the answer is lost and ask again.
//! Never does: touches a volume of a plugin that it does not have, deletes across a mount, detaches lazily, or
//!   removes the directory of a pod that a source, the runtime or a worker may still have.

mod actor;
mod backoff;
mod execute;
mod huge_pages;
mod measure;
mod measurements;
mod memory;
mod metrics;
mod objects;
mod operations;
mod orphans;
mod others;
mod payload;
mod plan;
mod sweep;

pub use actor::{Timer, VolumeManager, VolumeManagerDeps};
pub use execute::Backends;
pub use metrics::VolumeMetrics;
pub use objects::Objects;
pub use orphans::SweepPolicy;
