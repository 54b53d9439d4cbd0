//! Every decoder of the kubelet that reads what others wrote, as a function of bytes, and the means to try it: seeds written by
//! hand (`corpus/`), seeded mutations of them, and one run that catches panics.
//!
//! A [`Target`] fails by a panic: the decoder's own, or that of a property which the target checks, such as that what was
//! decoded and encoded is decoded as the same again. The test `corpus` runs all of them for a moment; `make fuzz` runs them for as
//! long as is wanted, and keeps what fails.

pub mod corpus;
pub mod mutate;
pub mod run;
mod targets;

pub use targets::{TARGETS, Target, named};
