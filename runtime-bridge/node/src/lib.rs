//! The machine that the kubelet runs on: mounts, cgroups, directories and files of pods, checkpoints, statistics. Each
//! is a trait with a real implementation and, behind the feature `fake`, one that keeps the same contract in memory.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

mod beneath;
pub mod cgroups;
pub mod checkpoint;
mod du;
pub mod host;
pub mod iptables;
pub mod mounts;
pub mod stats;
mod tenant_files;
mod under_way;
