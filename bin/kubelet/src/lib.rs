//! The kubelet: the daemon of a Kubernetes node.
//!
//! This crate holds the parts of the process that belong to no subsystem: the command line ([`flags`]), the
//! configuration files ([`config`]), the merge of both ([`load()`](load::load)), the log ([`telemetry`]), the
//! connections between actors ([`wiring`]) and the process itself ([`daemon`]), which first checks [`cgroups`]; and the reading of
//! a configuration that changes while the kubelet runs ([`reload`]).

// The process reads the wall clock for the headers of log lines; no subsystem's decision depends on it.
#![allow(clippy::disallowed_methods)]

mod api_client;
pub mod cgroups;
pub mod cluster;
pub mod config;
pub mod credential_providers;
pub mod daemon;
pub mod flags;
pub mod identity;
pub mod load;
pub mod pod_cidr;
pub mod process_metrics;
pub mod reload;
mod serving;
pub mod settings;
pub mod start;
pub mod systemd;
pub mod telemetry;
mod traces;
pub mod wait;
pub mod wiring;

/// The Kubernetes release with this kubelet's behaviour, as `--version` prints it.
pub const KUBERNETES_VERSION: &str = "v1.36.2";
