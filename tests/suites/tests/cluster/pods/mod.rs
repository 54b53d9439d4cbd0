//! What becomes of pods that the API server has.

mod environment;
mod life;
mod mirror;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // Those that wait for volumes first: they take longest.
    [volumes::ALL, mirror::ALL, life::ALL, environment::ALL].concat()
}
