//! Duty: reads what the sources want this node to run, and turns it into whole, valid pods.
//! Receives: ResendPods, NodeObserved.
//! Sends: PodsChanged, ApiPodsChanged, RecordEvent, ResendNode.
//! State (rebuilt from): the manifests (read again from the static-pod path and the URL), the API server's pods of this
//!   node (listed again).
//! On crash: everything is read again; pods get the same UIDs.
//! Never does: drops a pod because its manifest is just being written, its path or URL has become unreadable, or the API
//!   server does not answer.

mod actor;
pub mod api_pods;
pub mod decode;
pub mod default;
mod fetched;
pub mod manifests;
pub mod restart_rules;
pub mod static_pod;
pub mod unsupported;
pub mod validate;

pub use actor::{PodSources, PodSourcesConfig, PodSourcesDeps, Timer};
pub use restart_rules::RestartRules;
