//! Duty: the node's own certificates, as a client and as a server: asked of the cluster, and renewed before they end.
//! Receives: NodeAddressesObserved.
//! Sends: ResendNode; CertificateSigningRequests to the API server, pairs to the disk, and what is shown to others.
//! State (rebuilt from): the pair shown (the bridge has it, the disk keeps it), the node's addresses (NodeStatus resends).
//! On crash: the pair shown stays; a request in flight is given up and made anew with another key.
//! Never does: shows a pair that is not safe on disk, ends the kubelet while the API server does not answer, shows a key.

mod actor;
mod execute;
mod metrics;
pub mod rotation;

pub use actor::{CertificateManager, CertificateManagerDeps, Lost, Role, Timer};
pub use metrics::CertificateMetrics;
