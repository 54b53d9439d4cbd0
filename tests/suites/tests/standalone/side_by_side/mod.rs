//! Cases that do not disturb their kubelet and so can share one.

mod cgroups;
mod environment;
mod grace;
mod hooks;
mod images;
mod init;
mod lifecycle;
mod manifests;
mod names;
mod probes;
mod resources;
mod restart_rules;
mod restarts;
mod security;
mod statuses;
mod subpaths;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // Cases with back-offs come first: they take longest.
    [
        restarts::ALL,
        restart_rules::ALL,
        init::ALL,
        images::ALL,
        volumes::ALL,
        cgroups::ALL,
        subpaths::ALL,
        names::ALL,
        lifecycle::ALL,
        manifests::ALL,
        probes::ALL,
        statuses::ALL,
        grace::ALL,
        hooks::ALL,
        environment::ALL,
        security::ALL,
        resources::ALL,
    ]
    .concat()
}
