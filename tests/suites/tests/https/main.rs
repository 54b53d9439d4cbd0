//! The HTTPS server in this process, on a fake runtime: authentication, authorisation, and access to containers.
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
mod http2;
mod log_queries;
mod server;
mod submissions;
mod websockets;
