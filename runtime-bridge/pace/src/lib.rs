//! PURE: how often, and when again: waits that grow from failure to failure, a little chance in them, and buckets of tokens.
//! And the place of a panic, for panics that go on in another thread, which supervision and the bridge both know.
//!
//! Neither a clock nor a source of chance is in here: moments are durations since one fixed moment, and random numbers come
//! from whoever calls, so that a seed repeats a run. This crate knows none of the others, and all may know it.

mod backoff;
mod bucket;
pub mod panics;

pub use backoff::{Backoff, fraction, stretched};
pub use bucket::TokenBucket;
