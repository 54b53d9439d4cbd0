//! The companion for people: `top` shows a running kubelet, `demo` plays the sample pods on a runtime in memory.
//!
//! What is shown is worked out by pure code in [`view`] from what the server said ([`model`]); [`top`] asks and
//! draws, [`demo`] starts a kubelet and asks that one.

// A program for a person at a terminal: it lives on wall time, and nothing of it is ever replayed.
#![allow(clippy::disallowed_methods)]

pub mod cli;
pub mod client;
pub mod demo;
pub mod model;
pub mod terminal;
pub mod top;
pub mod view;
