//! What the bridge's connections share: lookups of names, the trusted authorities, and the client behind an address.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod names;
pub mod peer;
pub mod roots;
pub mod unverified;
