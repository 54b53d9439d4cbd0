//! The rules of the house, read from the sources and from cargo: which crates depend on which, what files look like,
//! which actor receives which message, where words stand. All of them are tests.
#![cfg(test)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "these tests read files and run cargo, and take no part in any simulation"
)]

mod arrows;
mod behaviours;
mod circles;
mod commands;
mod effects;
mod features;
mod gate;
mod headers;
mod ports;
mod source;
mod style;
mod tells;
mod tenant_files;
mod tree;
mod words;
