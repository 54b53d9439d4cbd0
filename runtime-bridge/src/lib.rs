//! Every effect on the outside world: each a trait with a real implementation and, behind the feature `fake`, one that
//! keeps the same contract in memory.
//!
//! The bridge returns futures and streams; it never sends a message. Everything that touches a socket, a child
//! process or a blocking call lives on the runtime behind [`Io`], never on an actor's thread.
// This crate owns time and effects, so that nobody else has to.
#![allow(clippy::disallowed_methods)]

pub mod certificates;
pub mod cgroups;
pub mod checkpoint;
pub mod clock;
pub mod cri;
pub mod host;
mod io;
pub mod kube;
pub mod manifest_url;
pub mod mounts;
pub mod names;
mod percent;
pub mod probes;
pub mod reviews;
pub mod serving;
pub mod stats;

pub use io::{Io, IoRuntime};
