//! What actix 0.13.5 does and does not do, pinned: supervision is built on these facts, and a newer actix
//! that changes one of them fails here first. The two ways to supervise on top of it are tried in
//! [`mechanisms`].
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "plain actix is what these tests are about"
)]

mod addresses;
mod contexts;
mod mechanisms;
mod panics;
mod world;
