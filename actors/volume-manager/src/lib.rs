//! **Duty.** The only writer of mounts: has a pod's volumes ready before its containers start, and gone after they died.
//! **Receives.** DesiredPodsChanged, MountVolumes, UnmountVolumes, PrepareSubpaths, PodObjectsChanged, GetVolumes.
//! **Sends.** ResendDesired; GetHeldPods (before anything is cleaned away);
//!   GetSecret, GetConfigMap, GetToken (what volumes show); RecordEvent (FailedMount);
//!   OtherVolumesObserved.
//! **State (rebuilt from).** What is mounted (`/proc/self/mountinfo`, pod directories); operations under way (asked again).
//! **On crash.** Operations run to their end in the bridge; askers hear that the answer is lost and ask again.
//! **Never does.** Touches a volume of a plugin that it does not have, deletes across a mount, detaches lazily, or cleans up what anybody may still know.

mod actor;
mod backoff;
mod execute;
mod huge_pages;
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
pub use execute::Ways;
pub use metrics::VolumeMetrics;
pub use objects::Objects;
pub use orphans::SweepPolicy;
