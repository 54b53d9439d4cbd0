//! The guarantees of supervision (G1 to G11, G13), each with tests that would fail without it.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests look at real threads and at plain actix"
)]

mod actors;
mod blame;
mod events;
mod family;
mod faults;
mod isolation;
mod limits;
mod mailbox;
mod orders;
mod progress;
mod quarantine;
mod restart;
mod scripts;
mod threads;
