//! Cases that leave their kubelet alone and so can share one.

mod environment;
mod grace;
mod hooks;
mod images;
mod init;
mod lifecycle;
mod manifests;
mod probes;
mod restart_rules;
mod restarts;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // Those with back-offs first: they take longest.
    [
        restarts::ALL,
        restart_rules::ALL,
        init::ALL,
        images::ALL,
        volumes::ALL,
        lifecycle::ALL,
        manifests::ALL,
        probes::ALL,
        grace::ALL,
        hooks::ALL,
        environment::ALL,
    ]
    .concat()
}
