//! What tests of the whole kubelet stand on: a node in a sandbox, and the kubelet as a process. What tests of one actor stand
//! on is the crate `stage`, of which the sandbox and the recorders are.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

pub mod mortal;
pub mod node;
pub mod process;

pub use stage::{Random, Recorder, Sandbox, recorder, sandbox};
