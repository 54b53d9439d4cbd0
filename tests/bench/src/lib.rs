//! What the benchmarks share: samples and their quantiles, and the table of figures beside their goals.

mod samples;
mod table;

pub use samples::Samples;
pub use table::{Row, Unit, table};
