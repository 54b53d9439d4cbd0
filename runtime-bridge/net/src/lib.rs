//! What every connection of the bridge needs: names looked up, authorities that are trusted.
// The bridge owns time and effects, which actors may not use directly.
#![allow(clippy::disallowed_methods)]

pub mod names;
pub mod roots;
pub mod unverified;
