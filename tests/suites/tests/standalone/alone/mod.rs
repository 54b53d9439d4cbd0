//! Cases that stop, kill or disturb their kubelet, or count what it does, and so have one of their own.

mod bad_manifests;
mod behind_its_back;
mod idle;
mod process;
mod restarts;

use crate::Alone;

pub fn all() -> Vec<(&'static str, Alone)> {
    [bad_manifests::ALL, behind_its_back::ALL, restarts::ALL, process::ALL, idle::ALL].concat()
}
