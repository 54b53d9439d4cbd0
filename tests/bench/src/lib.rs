//! Parts of all benchmarks: samples and their quantiles, the table of figures beside their goals, and a stage on which
//! one subsystem is measured alone.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "measures real time")]

pub mod alone;
mod samples;
mod table;

pub use samples::Samples;
pub use table::{Row, Unit, table};
