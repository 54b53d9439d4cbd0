//! Duty: the node's own certificates, as a client and as a server: requests them from the cluster, renews them early.
//! Receives: NodeAddressesObserved.
//! Sends: ResendNode; CertificateSigningRequests to the API server; pairs to the disk and to the bridge's TLS.
//! State (rebuilt from): the current pair (the bridge has it, the disk keeps it), the node's addresses (NodeStatus
//! resends).
//! On crash: the current pair stays, and one that was saved and not shown yet is read from the disk; a request in flight is given up
//!   and made anew with another key.
//! Never does: presents a pair that is not on disk, ends the kubelet while the API server does not answer, shows a key.

mod actor;
mod execute;
mod metrics;
pub mod rotation;

pub use actor::{CertificateManager, CertificateManagerDeps, IdentityLost, ManagedCertificate, Timer};
pub use metrics::CertificateMetrics;
