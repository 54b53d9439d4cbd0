//! The whole node in a sandbox, on fake bridges: the life of pods, and every actor failing on every message.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

mod admission;
mod api;
mod api_outages;
mod calls;
mod certificates;
mod cgroups;
mod clock;
mod cluster;
mod evictions;
mod garbage;
mod heartbeat;
mod hooks;
mod images;
mod life;
mod matrix;
mod member;
mod names;
mod objects;
mod pods;
mod private_images;
mod probes;
mod refused;
mod restarts;
mod strain;
mod volumes;
