//! Duty: the only writer of mounts: has a pod's volumes ready before its containers start, and gone after they died.
//! Receives: DesiredPodsChanged, MountVolumes, UnmountVolumes, PrepareSubpaths, PodObjectsChanged, NodeObserved,
//!   NodeResourcesConfigured, GetVolumes, GetVolumeStats.
//! Sends: ResendDesired, ResendNode, ResendConfiguration; GetHeldPods (before anything is cleaned away);
//!   GetSecret, GetConfigMap, GetToken (what volumes show); RecordEvent (FailedMount);
//!   OtherVolumesObserved, CsiDriversObserved; PodObjectsChanged (to the pods that wait for a driver);
//!   EvictPod (VolumeAttachmentLimitExceeded).
//! State (rebuilt from): mounted volumes (`/proc/self/mountinfo`, pod directories); staged volumes and their pods (notes
//!   beside the mounts); CSI drivers (offered again); changed resources of the node (ConfigManager is asked); operations under
//!   way (asked again); volumes and drivers of which the cluster is still to be told that they are gone (`Attachments`, beside
//!   the actor).
//! On crash: operations run to their end in the bridge; askers learn that the answer is lost and ask again.
//! Never does: touches a volume of a plugin that it does not have, deletes across a mount, detaches lazily, or
//!   removes the directory of a pod that a source, the runtime or a worker may still have.

mod actor;
mod attachments;
mod backends;
mod backoff;
mod checks;
mod csi_node;
mod devices;
mod drivers;
mod execute;
mod expand;
mod expansion;
mod flex;
mod found;
mod fs_group;
mod kinds;
mod measure;
mod measurements;
mod memory;
mod metrics;
mod notices;
mod objects;
mod operations;
mod orphans;
mod others;
mod plan;
mod resolve;
mod selinux;
mod source;
mod steps;
mod subpaths;
mod sweep;
mod unmount;

pub use actor::{Timer, VolumeManager, VolumeManagerDeps, VolumeSettings};
pub use attachments::Attachments;
pub use backends::{Backends, Csi};
pub use devices::Devices;
pub use flex::{Able as FlexAble, Flex, Status as FlexStatus, Undone as FlexUndone, judged as flex_answer};
pub use metrics::VolumeMetrics;
pub use objects::{Objects, Showing};
pub use orphans::SweepPolicy;
pub use selinux::Selinux;
