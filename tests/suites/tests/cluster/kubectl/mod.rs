//! Uses of kubectl by people.

mod command;
mod debug;
mod logs;
mod manage;
mod streams;

pub use command::Kubectl;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    [logs::ALL, manage::ALL, streams::ALL, debug::ALL].concat()
}
