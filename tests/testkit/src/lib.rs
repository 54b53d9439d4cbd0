//! What tests stand on: a sandbox with a paused clock on one thread, recording sinks, and the kubelet as a process.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

pub mod mortal;
pub mod node;
pub mod process;
mod random;
mod sandbox;
mod sinks;

pub use random::Random;
pub use sandbox::{Sandbox, sandbox};
pub use sinks::{Recorder, recorder};
