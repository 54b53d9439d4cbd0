//! Telling the API server: what to send of a status, which pod is next, and the sending.

mod diff;
mod execute;
mod queue;

pub(crate) use execute::{Outcome, call};
pub(crate) use queue::{Publication, Publisher};
