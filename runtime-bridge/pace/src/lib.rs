//! PURE: how often, and when again: waits that grow from failure to failure, a little chance in them, buckets of tokens,
//! turns of those that share a queue, and rests that are longer the more there is to do.
//! And the place of a panic, for panics that go on in another thread, and what was done for each pod lately: supervision and
//! the bridge both know of them.
//!
//! This crate reads neither a clock nor random numbers: moments are durations since one fixed moment, and the caller
//! passes random numbers in, so that a run can be repeated from its seed. It depends on none of our other crates, and
//! all of them may use it.

mod backoff;
mod bucket;
mod fair;
pub mod history;
pub mod panics;
mod rests;

pub use backoff::{Backoff, fraction, stretched};
pub use bucket::TokenBucket;
pub use fair::{FairQueue, Turns};
pub use rests::Rests;
