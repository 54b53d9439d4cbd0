//! Kubernetes' words and rules about pods that several crates share: each stands here once, so that the crate
//! that writes a word and the crate that recognises it use the same constant or function. A word or rule that
//! only one crate uses stays in that crate.
//!
//! Everything here is pure: no actor, no clock, no effect.

pub mod annotations;
pub mod conditions;
pub mod critical;
pub mod durations;
pub mod errors;
pub mod go_json;
pub mod label_syntax;
pub mod labels;
pub mod node_selector;
pub mod origin;
pub mod phases;
pub mod reasons;
pub mod restart;
pub mod shares;
pub mod signals;
pub mod sysctls;
pub mod taints;
pub mod thresholds;
pub mod versions;
pub mod volume_plugins;
pub mod volumes;
