//! PURE: when to try again, and how often: waits that grow from failure to failure, random stretching of waits, and
//! token buckets.
//!
//! This crate reads neither a clock nor random numbers: moments are durations since one fixed moment, and the caller
//! passes random numbers in, so that a run can be repeated from its seed. It depends on none of our other crates, and
//! all of them may use it.

mod backoff;
mod bucket;

pub use backoff::{Backoff, fraction, stretched};
pub use bucket::TokenBucket;
