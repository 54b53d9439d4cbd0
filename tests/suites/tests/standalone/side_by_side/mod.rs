//! Cases that leave their kubelet alone and so can share one.

mod cgroups;
mod environment;
mod grace;
mod images;
mod init;
mod lifecycle;
mod manifests;
mod names;
mod probes;
mod resources;
mod restarts;
mod security;
mod subpaths;
mod volumes;

use crate::Shared;

pub fn all() -> Vec<(&'static str, Shared)> {
    // Those with back-offs first: they take longest.
    [
        restarts::ALL,
        init::ALL,
        images::ALL,
        volumes::ALL,
        cgroups::ALL,
        subpaths::ALL,
        names::ALL,
        lifecycle::ALL,
        manifests::ALL,
        probes::ALL,
        grace::ALL,
        environment::ALL,
        security::ALL,
        resources::ALL,
    ]
    .concat()
}
