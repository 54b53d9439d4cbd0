//! The built program beside a server that answers as a kubelet's authenticated port does.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod access;
mod describe;
mod kubelet;
mod logs;
