//! Duty: reads the pods that the sources want this node to run, and makes them complete and valid.
//! Receives: ResendPods, NodeObserved, SubmitPod, WithdrawPod.
//! Sends: PodsChanged, ApiPodsChanged, RecordEvent, ResendNode.
//! State (rebuilt from): the manifests (read again from the static-pod path, the URL, and the disk, where submitted ones are
//!   kept), the API server's pods of this node (listed again).
//! On crash: everything is read again, but for refused manifests that could not be removed; pods get the same UIDs.
//! Never does: drops a pod because its manifest is just being written, its path or URL has become unreadable, or the API
//!   server does not answer; says that a pod was submitted or withdrawn before that is safe on the disk.

mod actor;
pub mod api_pods;
pub mod decode;
pub mod default;
mod doubts;
mod fetched;
pub mod judge;
mod manifest_pods;
pub mod manifests;
pub mod pod_security;
pub mod restart_rules;
pub mod static_pod;
mod submitted;
pub mod unsupported;
pub mod validate;

pub use actor::{PodSources, PodSourcesConfig, PodSourcesDeps, SubmissionPorts, Timer};
pub use doubts::Doubts;
pub use pod_security::{PodSecurity, SecurityLevel, StandardVersion};
pub use restart_rules::RestartRules;
