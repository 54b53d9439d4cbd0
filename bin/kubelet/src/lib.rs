//! The kubelet: the daemon of a Kubernetes node.
//!
//! This crate holds what belongs to the process and to no subsystem: the command line ([`flags`]), the
//! configuration files ([`config`]), both put together ([`load()`](load::load)), the log ([`telemetry`]), who knows whom ([`wiring`]) and the process itself
//! ([`daemon`]), with what it has to know of [`cgroups`] first.

// The process's edge reads the wall clock for the header of log lines; no subsystem's decision depends on it.
#![allow(clippy::disallowed_methods)]

mod api_client;
pub mod cgroups;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod flags;
pub mod identity;
pub mod load;
pub mod pod_cidr;
mod serving;
pub mod settings;
pub mod start;
pub mod systemd;
pub mod telemetry;
pub mod wait;
pub mod wiring;

/// The Kubernetes release whose behaviour this kubelet has, as `--version` prints it.
pub const KUBERNETES_VERSION: &str = "v1.36.2";
