//! The HTTPS server in this process, on a fake runtime: who is answered what, and the way into containers.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests may look at real time and randomly seeded maps"
)]

mod access;
mod bounds;
mod client;
mod containers;
mod hostile;
mod server;
