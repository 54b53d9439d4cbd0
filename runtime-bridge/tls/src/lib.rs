//! Certificates and keys: the node's own certificates on disk, and TLS for the kubelet's server.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod certificates;
pub mod serving;
