//! Parts of tests of the whole kubelet: a node in a sandbox, and the kubelet as a process. The parts of tests of one
//! actor, among them the sandbox and the recorders, are in the crate `stage`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

pub mod cases;
pub mod configuration;
pub mod mortal;
pub mod node;
pub mod process;

pub use stage::{Random, Recorder, Sandbox, driver_on, recorder, sandbox};
