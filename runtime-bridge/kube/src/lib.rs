//! The API server: typed calls with a deadline each, and lists that stay current.
//!
//! Each actor is handed only the small traits of [`ports`] that it needs of [`ApiClient`]. The client speaks through a
//! `kube::Client` over any tower service: the real one is [`connect`]ed with the identity of a [`Kubeconfig`]; tests
//! put an API server in memory in its place, which also runs on a paused clock.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod api;
mod api_health;
mod connect;
mod credentials;
mod csr;
mod error;
mod exec;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod follow;
mod identity;
mod kubeconfig;
mod limits;
mod list;
mod metrics;
mod object;
pub mod ports;
mod request;
mod streams;

pub use api::{ApiClient, Delete, Patch, Reply, Select};
pub use connect::{ConnectSettings, connect};
pub use credentials::{Identity, IdentitySource};
pub use csr::{CsrError, Requested, request_certificate, wait_for_certificate};
pub use error::{ApiError, ConnectError};
pub use exec::ProgramMetrics;
pub use follow::Followed;
pub use identity::{FileIdentity, PairIdentity};
pub use kubeconfig::{Kubeconfig, KubeconfigError, Pem, User};
pub use limits::{RateLimit, Traffic};
pub use metrics::{HostMetrics, RestMetrics};
pub use object::{Beyond, Deletion, Object, Said, Unreadable, decode};
pub use ports::{
    CertificateRequests, ClaimStatuses, CsiNodes, Events, Follow, Leases, MirrorObjects, NodeObject,
    PodObjects, PodStatuses, Read, Tokens, VolumeObjects,
};
