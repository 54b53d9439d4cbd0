//! Cases that stop, kill or disturb their kubelet, or count its calls, and so need a kubelet of their own.

mod admission;
mod bad_manifests;
mod behind_its_back;
mod cgroups;
mod crashes;
mod disk_full;
mod flex;
mod garbage;
mod hostile;
mod https;
mod idle;
mod logs;
mod manifest_url;
mod process;
mod refused;
mod reload;
mod restarts;
mod rules;
mod samples;
mod strain;
mod submission;
mod usage;

use crate::Alone;

pub fn all() -> Vec<(&'static str, Alone)> {
    [
        admission::ALL,
        bad_manifests::ALL,
        behind_its_back::ALL,
        cgroups::ALL,
        crashes::ALL,
        disk_full::ALL,
        flex::ALL,
        garbage::ALL,
        hostile::ALL,
        https::ALL,
        idle::ALL,
        logs::ALL,
        manifest_url::ALL,
        process::ALL,
        refused::ALL,
        reload::ALL,
        restarts::ALL,
        rules::ALL,
        samples::ALL,
        strain::ALL,
        submission::ALL,
        usage::ALL,
    ]
    .concat()
}
