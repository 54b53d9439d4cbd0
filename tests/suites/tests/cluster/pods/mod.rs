//! Pods of the API server.

mod environment;
mod life;
mod mirror;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // The cases that wait for volumes come first: they take longest.
    [volumes::ALL, mirror::ALL, life::ALL, environment::ALL].concat()
}
