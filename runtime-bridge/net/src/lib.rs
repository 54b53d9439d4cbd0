//! What the bridge's connections share: lookups of names, and the trusted authorities.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod names;
pub mod roots;
pub mod unverified;
