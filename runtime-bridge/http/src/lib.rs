//! Requests to the containers of pods (probes, hooks) and to the manifest URL: each is a trait with a real
//! implementation and, behind the feature `fake`, one that keeps the same contract in memory.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod manifest_url;
pub mod probes;
