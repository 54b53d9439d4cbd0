//! The whole node in a sandbox, on fake bridges: the life of pods, and every actor failing on every message.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

mod clock;
mod life;
mod matrix;
mod pods;
mod strain;
