//! Cases that stop, kill or disturb their kubelet, or count what it does, and so have one of their own.

mod bad_manifests;
mod behind_its_back;
mod crashes;
mod disk_full;
mod idle;
mod restarts;
mod strain;

use crate::Alone;

pub fn all() -> Vec<(&'static str, Alone)> {
    [
        bad_manifests::ALL,
        behind_its_back::ALL,
        restarts::ALL,
        strain::ALL,
        crashes::ALL,
        disk_full::ALL,
        idle::ALL,
    ]
    .concat()
}
