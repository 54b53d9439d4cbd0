//! The stage for tests of one actor alone: a sandbox with a paused clock on one thread, recorded neighbours, and fakes
//! of the outside world.
//!
//! An actor crate's `tests/alone.rs` seats its actor in [`Stage::tree`](Sandbox), gives it addresses of [`Neighbour`]s
//! and bridges of [`Fakes`], and checks its asks, tells and calls.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

mod alone;
mod csi;
mod facts;
mod fakes;
mod neighbour;
mod random;
mod sandbox;
mod sinks;

pub use alone::{Stage, alone, alone_under, ask};
pub use csi::driver_on;
pub use facts::{
    IMAGE, Looks, Reports, api_pod, desired, desired_of, desired_pods, desired_so_far, observed, pod, pods,
    prepare, report, reported, runtime_pod, runtime_well, seen, told, uid,
};
pub use fakes::{Fakes, Ran, START_SECOND};
pub use neighbour::Neighbour;
pub use random::Random;
pub use sandbox::{Sandbox, sandbox};
pub use sinks::{Recorder, recorder};
